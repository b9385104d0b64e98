/**
 * What anybody may ask of an election's schedules, and order: from any process, also from one that does not have them.
 *
 * What it tells is what a quorum of nodes knew a moment ago. An order is on a quorum of nodes when the call resolves;
 * the leader that has the schedule carries it out.
 */
import { boolean, type Check, integer, protocolOf, quote, Schema, type ShapeOf, text } from "@x/redlock-core/protocol";
import type { LeaderElection } from "../election/election.ts";
import { UnknownScheduleError } from "../errors.ts";
import { Slice } from "../kit/slice.ts";
import type { LeaderInfo } from "../rules/record.ts";
import { dateOf } from "../rules/values.ts";
import { newestIn, pastOf, recordOf, type TickRecord } from "./rules/history.ts";
import {
  isLater,
  isValidLine,
  NOTE,
  notedTick,
  PAUSE,
  pauseLine,
  pauseOf,
  stateOf,
  TRIGGER,
  triggerLine,
} from "./rules/lines.ts";
import { type Answer, newestOf, type Store } from "./store.ts";
import type { Entry } from "./timetable.ts";

export interface ScheduleInfo {
  readonly name: string;
  /**
   * The next tick. If this process does not have the schedule, it is as its last leader saw it, if that writes a
   * history.
   */
  readonly next: Date | null;
  /** The last tick that ran, or was about to. */
  readonly last: Date | null;
  /** What became of the newest tick in its history; null: there is none. */
  readonly lastTick: TickRecord | null;
  /** What became of its last ticks, the newest first, as many as `list` was asked for and the nodes keep. */
  readonly history: readonly TickRecord[];
  /** Ticks given up so far. */
  readonly missed: number;
  readonly paused: boolean;
  /**
   * How many runs are under way, or wait for a slot. If this process leads, they are its own, also those of a schedule
   * of this name that was removed. Else they are those with `at-least-once`, which are recorded on the nodes.
   */
  readonly running: number;
  /** Who runs the ticks now. */
  readonly owner: LeaderInfo | null;
}

export interface ListOptions {
  /**
   * Whether to list also the schedules that this process does not have, of which the nodes keep something. Default
   * false.
   */
  readonly all?: boolean | undefined;
  /**
   * The number of the last ticks of each schedule that are told, too, as far as they are kept. It takes one more
   * request per node for each hundred schedules. 0 to 100, default 0.
   */
  readonly history?: number | undefined;
}

interface OperatorParts {
  readonly election: LeaderElection;
  /** The schedules of this process. */
  readonly entries: ReadonlyMap<string, Entry>;
  /** The most ticks of each schedule that are told. */
  readonly kept: number;
  readonly store: () => Store;
  /** Returns how many runs of a schedule are under way here, if this process leads. */
  readonly runningOf: (name: string) => number | undefined;
  readonly report: (error: unknown) => void;
}

/** What the nodes know of all schedules. */
interface Known {
  /** The lines by field, the latest of the register and the mailboxes. */
  readonly lines: ReadonlyMap<string, string>;
  /** The number of runs that are recorded as begun, by the name of the schedule. */
  readonly running: ReadonlyMap<string, number>;
}

export const historyLength: Check<number> = integer({ min: 0, max: 100, unit: "" });

const LIST = new Schema({
  all: boolean.default(false),
  history: historyLength.default(0),
} satisfies ShapeOf<ListOptions>);

export class Operator {
  readonly #parts: OperatorParts;
  #triggerCount = 0;

  constructor(parts: OperatorParts) {
    this.#parts = parts;
  }

  /** See `LeaderScheduler.trigger`. */
  async trigger(name: string): Promise<void> {
    await this.#known(name);
    const { election, store } = this.#parts;
    const { clock, random } = protocolOf(election.redlock);
    const atMs = Math.floor(clock.wallMs());
    this.#triggerCount += 1;
    // The time also, because a test may have its `Redlock` draw the same each time.
    const parts = [atMs, Math.floor(random.fraction() * 2 ** 40), this.#triggerCount];
    const id = parts.map((part) => part.toString(36)).join("");
    await store().order(TRIGGER + id, triggerLine({ name, atMs }, false), election.redlock.quorum);
  }

  /**
   * The order wins over every one that a node which answers in time knows, whatever clock gave that its version. Of two
   * at once one wins, the same on all nodes. An order to resume what is not paused ends no pause.
   */
  async setPaused(name: string, isPaused: boolean): Promise<void> {
    const isPausedAtFirst = (await this.#known(name))?.options.paused ?? false;
    const { redlock } = this.#parts.election;
    const nowMs = Math.floor(protocolOf(redlock).clock.wallMs());
    const store = this.#parts.store();
    const tell = async (line: string): Promise<string> => {
      const lines = await store.order(PAUSE + name, line, redlock.nodeCount);
      return lines.reduce((best, each) => (isLater(each, best) ? each : best));
    };
    let known = await tell("");
    const { isPaused: wasPaused = isPausedAtFirst, resumedMs = 0 } = pauseOf(known) ?? {};
    const pause = { isPaused, resumedMs: wasPaused && !isPaused ? nowMs : resumedMs };
    for (;;) {
      const version = Math.max(nowMs, (pauseOf(known)?.version ?? 0) + 1);
      if (!Number.isSafeInteger(version))
        throw new RangeError(`the pause of ${quote(name)} has a version that cannot be raised: ${quote(known)}`);
      const line = pauseLine({ ...pause, version });
      known = await tell(line);
      if (known === line) return;
    }
  }

  /** See `LeaderScheduler.list`. */
  async list(options: ListOptions): Promise<readonly ScheduleInfo[]> {
    const { all, history } = LIST.resolve(options);
    const { election, entries, kept, runningOf } = this.#parts;
    const toldCount = Math.min(history, kept);
    const { clock } = protocolOf(election.redlock);
    const store = this.#parts.store();
    const [answers, newest, owner] = await Promise.all([
      store.look(),
      // Histories have the newest, too. Their names are known once the register is read.
      kept > 0 && toldCount === 0 ? store.newestOfAll() : [],
      election.leader(),
    ]);
    const slice = new Slice(clock);
    const { lines, running } = await knownFrom(answers, slice);
    const stored = all ? [...lines.keys()].filter((field) => !field.includes(":")) : [];
    const names = [...new Set([...entries.keys(), ...stored])];
    const histories = toldCount > 0 ? await store.historiesOf(names) : [];
    const ticks = new Map<string, readonly string[]>(names.map((name, at) => [name, histories[at] ?? []]));
    for (const text of newest) {
      for (const [name, line] of newestIn(text)) {
        if (slice.isOver) await slice.another();
        ticks.set(name, [...(ticks.get(name) ?? []), line]);
      }
    }
    const nowMs = clock.wallMs();
    const infos: ScheduleInfo[] = [];
    for (const name of names) {
      if (slice.isOver) await slice.another();
      const entry = entries.get(name);
      const { accountedMs = 0, lastMs = 0, missed = 0 } = stateOf(lines.get(name)) ?? {};
      const { nextMs: seenMs = null, happenings } = pastOf(ticks.get(name) ?? []);
      const told = happenings.slice(0, Math.max(1, toldCount)).map((each) => recordOf(name, each, owner?.term));
      const nextMs = entry === undefined ? seenMs : this.#nextOf(entry, Math.max(nowMs, accountedMs));
      infos.push({
        name,
        next: nextMs === null ? null : dateOf(nextMs),
        last: lastMs === 0 ? null : dateOf(lastMs),
        lastTick: told[0] ?? null,
        history: told.slice(0, toldCount),
        missed,
        paused: pauseOf(lines.get(PAUSE + name))?.isPaused ?? entry?.options.paused ?? false,
        running: runningOf(name) ?? running.get(name) ?? 0,
        owner,
      });
    }
    return infos;
  }

  /** See `LeaderScheduler.history`. */
  async history(name: string): Promise<readonly TickRecord[]> {
    text().of("name", name);
    const { election, kept, store } = this.#parts;
    const [[texts = []], owner] = await Promise.all([store().historiesOf([name]), election.leader()]);
    const { happenings } = pastOf(texts);
    // What has a history is known. To look a name up is to read the whole register.
    if (happenings.length === 0) await this.#known(name);
    return happenings.slice(0, kept).map((happening) => recordOf(name, happening, owner?.term));
  }

  #nextOf(entry: Entry, afterMs: number): number | null {
    try {
      return entry.calendar.next(afterMs);
    } catch (error) {
      this.#parts.report(error);
      return null;
    }
  }

  /** Resolves with undefined for a schedule that only the nodes know. @throws UnknownScheduleError */
  async #known(name: string): Promise<Entry | undefined> {
    const { election, entries, store } = this.#parts;
    const entry = entries.get(text().of("name", name));
    if (entry !== undefined) return entry;
    // What the register has beside schedules has a colon in its field, and no schedule has one in its name.
    const fields = name.includes(":") ? [] : newestOf(await store().look()).fields;
    for (const [field] of fields) if (field === name) return undefined;
    throw new UnknownScheduleError(election.name, name);
  }
}

/** Puts together the newest version that a node has, and what is in the mailboxes. */
async function knownFrom(answers: readonly Answer[], slice: Slice): Promise<Known> {
  const lines = new Map<string, string>();
  const running = new Map<string, number>();
  for (const list of [newestOf(answers).fields, ...answers.map(({ mail }) => mail)]) {
    for (const [field, line] of list) {
      if (slice.isOver) await slice.another();
      if (isLater(line, lines.get(field))) lines.set(field, line);
      if (!field.startsWith(NOTE) || !isValidLine(field, line)) continue;
      const { name } = notedTick(field);
      running.set(name, (running.get(name) ?? 0) + 1);
    }
  }
  return { lines, running };
}
