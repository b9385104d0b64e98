/**
 * Reads an election's schedules, and sends orders to their leader, from any process, including processes without these
 * schedules.
 *
 * The answers show what a quorum of nodes knew a moment ago. When the call for an order resolves, a quorum of nodes has
 * the order. The leader that has the schedule then follows the order.
 */
import { type Check, integer, quote, Schema, type ShapeOf, text } from "@x/redlock-core/kit";
import { protocolOf } from "@x/redlock-core/protocol";
import type { LeaderElection } from "../election/election.ts";
import { UnknownScheduleError } from "../errors.ts";
import { Slice } from "../kit/slice.ts";
import type { LeaderInfo } from "../rules/record.ts";
import { dateOf } from "../rules/values.ts";
import { definitionsIn, knownFrom } from "./known.ts";
import type { ResolvedScheduleOptions } from "./options.ts";
import type { RegisterStore } from "./register-store.ts";
import type { Calendar } from "./rules/calendar.ts";
import { type Definition, type Times, timesOf } from "./rules/definition.ts";
import { newestIn, pastOf, recordOf, type TickRecord } from "./rules/history.ts";
import { isLater, PAUSE, pauseLine, pauseOf, removedMsOf, stateOf, TRIGGER, triggerLine } from "./rules/lines.ts";
import type { ScheduleEntry } from "./timetable.ts";

export interface ScheduleInfo {
  readonly name: string;
  /** The kind of a schedule as data. Null for a schedule in code. */
  readonly kind: string | null;
  /**
   * The next tick. If the schedule is in the code of another process, the value comes from the history that the last
   * leader wrote. Null if there is no next tick, or if it is not known.
   */
  readonly next: Date | null;
  /** The last tick that ran or was claimed to run. */
  readonly last: Date | null;
  /** Outcome of the newest tick in the history. Null if the history is empty. */
  readonly lastTick: TickRecord | null;
  /** Outcomes of the last ticks, the newest first. The length is limited by `list` and by the nodes' history. */
  readonly history: readonly TickRecord[];
  /** Number of ticks that were missed so far. */
  readonly missed: number;
  readonly paused: boolean;
  /**
   * Number of runs that are active or wait for a slot. If this process leads, the number includes the runs of a removed
   * schedule with the same name. Otherwise only `at-least-once` runs count, because the nodes record no other runs.
   */
  readonly running: number;
  /** The current leader, which runs the ticks. Null if there is no leader. */
  readonly owner: LeaderInfo | null;
}

export interface ListOptions {
  /**
   * The greatest number of past ticks to return for each schedule. Each hundred schedules cost one more request per
   * node. 0 to 100, default 0.
   */
  readonly history?: number | undefined;
}

interface OperatorParts {
  readonly election: LeaderElection;
  /** Schedules of this process, by name. */
  readonly entries: ReadonlyMap<string, ScheduleEntry>;
  /** The greatest number of past ticks to return for each schedule. */
  readonly kept: number;
  readonly store: () => RegisterStore;
  /** Returns the number of active runs of a schedule in this process. Undefined if this process does not lead. */
  readonly runningOf: (name: string) => number | undefined;
  readonly report: (error: unknown) => void;
}

export const historyLength: Check<number> = integer({ min: 0, max: 100, unit: "" });

const LIST = new Schema({
  history: historyLength.default(0),
} satisfies ShapeOf<ListOptions>);

export class ScheduleOperator {
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
    // The ID contains the time, because a test may give its `Redlock` the same random numbers each time.
    const parts = [atMs, Math.floor(random.fraction() * 2 ** 40), this.#triggerCount];
    const id = parts.map((part) => part.toString(36)).join("");
    await store().order(TRIGGER + id, triggerLine({ name, atMs }, false), election.redlock.quorum);
  }

  /**
   * Pauses or resumes a schedule. The order wins over every order that a node reports in time, even if the version of
   * that order comes from a faster clock. If two orders are given at the same time, the same order wins on all nodes.
   * An order to resume a schedule that is not paused does not count as the end of a pause.
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
    const { history } = LIST.resolve(options);
    const { election, entries, kept, runningOf } = this.#parts;
    const toldCount = Math.min(history, kept);
    const { clock } = protocolOf(election.redlock);
    const store = this.#parts.store();
    const [answers, newest, owner] = await Promise.all([
      store.look(),
      // The histories below contain the newest tick, so no extra request is needed. Their names come from the register.
      kept > 0 && toldCount === 0 ? store.newestOfAll() : [],
      election.leader(),
    ]);
    const slice = new Slice(clock);
    const { lines, running } = await knownFrom(answers, slice);
    const { definitions } = await definitionsIn(lines, slice);
    const found = new Set([...entries.keys(), ...definitions.keys()]);
    for (const [field, line] of lines) {
      if (slice.isOver) await slice.another();
      if (!field.includes(":") && removedMsOf(line) === undefined) found.add(field);
    }
    const names = [...found];
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
    const shared = new Map<string, ResolvedScheduleOptions>();
    for (const name of names) {
      if (slice.isOver) await slice.another();
      const definition = entries.has(name) ? undefined : definitions.get(name);
      const entry = entries.get(name) ?? (definition === undefined ? undefined : this.#timesOf(definition, shared));
      const { accountedMs = 0, lastMs = 0, missed = 0 } = stateOf(lines.get(name)) ?? {};
      const { nextMs: seenMs = null, pastTicks } = pastOf(ticks.get(name) ?? []);
      const told = pastTicks.slice(0, Math.max(1, toldCount)).map((each) => recordOf(name, each, owner?.term));
      const fromMs = Math.max(nowMs, accountedMs, definition?.sinceMs ?? 0);
      const nextMs = entry === undefined ? seenMs : this.#nextOf(entry.calendar, fromMs);
      infos.push({
        name,
        kind: definition?.kind ?? null,
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
    const { pastTicks } = pastOf(texts);
    // A schedule with a history is known. Only a schedule without a history needs a read of the whole register.
    if (pastTicks.length === 0) await this.#known(name);
    return pastTicks.slice(0, kept).map((pastTick) => recordOf(name, pastTick, owner?.term));
  }

  /** Returns the calendar and options of a schedule as data. Undefined if this process does not know a value. */
  #timesOf(definition: Definition, shared: Map<string, ResolvedScheduleOptions>): Times | undefined {
    try {
      return timesOf(definition, shared);
    } catch (error) {
      this.#parts.report(error);
      return undefined;
    }
  }

  #nextOf(calendar: Calendar, afterMs: number): number | null {
    try {
      return calendar.next(afterMs);
    } catch (error) {
      this.#parts.report(error);
      return null;
    }
  }

  /**
   * Returns the calendar and options of a schedule. Undefined if they are in the code of another process.
   * @throws UnknownScheduleError
   */
  async #known(name: string): Promise<Times | undefined> {
    const { election, entries, store } = this.#parts;
    const entry = entries.get(text().of("name", name));
    if (entry !== undefined) return entry;
    const slice = new Slice(protocolOf(election.redlock).clock);
    const { lines } = await knownFrom(await store().look(), slice);
    const definition = (await definitionsIn(lines, slice)).definitions.get(name);
    if (definition !== undefined) return this.#timesOf(definition, new Map<string, ResolvedScheduleOptions>());
    // Fields of other kinds contain a colon, which no schedule's name contains.
    const state = name.includes(":") ? undefined : lines.get(name);
    if (state === undefined || removedMsOf(state) !== undefined) throw new UnknownScheduleError(election.name, name);
    return undefined;
  }
}
