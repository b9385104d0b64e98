/**
 * Writes the schedules as data, from any process. A call reads what the nodes know, sends one order, and resolves when
 * a quorum of nodes has the order. The leader then copies the order into the register.
 *
 * Guaranteed: a set replaces all schedules as data as a whole, or not at all, even if this process freezes or dies. Of
 * two sets, the set with the greater revision wins, then the set of the later call. Of two calls at the same time, one
 * counts as the later call, and the same on all nodes.
 */
import { Check, integer, kindOf, quote, Schema, type ShapeOf, text } from "@x/redlock-core/kit";
import { protocolOf } from "@x/redlock-core/protocol";
import type { LeaderElection } from "../election/election.ts";
import { UnknownScheduleError } from "../errors.ts";
import { Slice } from "../kit/slice.ts";
import { dateOf } from "../rules/values.ts";
import { definitionsIn, type KnownDefinitions, knownFrom, nodeTimeMs } from "./known.ts";
import { type DefinitionOptions, type ResolvedScheduleOptions, scheduleName, storedOptions, zone } from "./options.ts";
import type { RegisterStore } from "./register-store.ts";
import { type Calendar, checkCron } from "./rules/calendar.ts";
import {
  DEFINITION,
  type Definition,
  definitionText,
  isSameTimes,
  jsonOf,
  orderLine,
  SET,
  setLine,
  timesOf,
} from "./rules/definition.ts";
import { canonicalJson } from "./rules/json.ts";
import type { ScheduleEntry } from "./timetable.ts";

/** A schedule as data. Exactly one of `cron` and `every` is present. */
export interface ScheduleDefinition {
  /** Name of the schedule, of 1 to 200 characters without ":". Unique among all schedules of the scheduler. */
  readonly name: string;
  /** The kind, of 1 to 200 characters. The leader calls the handler that `handle(kind, …)` registered. */
  readonly kind: string;
  /** Cron expression, as for `LeaderScheduler.cron()`. */
  readonly cron?: string | undefined;
  /** Period in ms, as for `LeaderScheduler.every()`. */
  readonly every?: number | undefined;
  /** IANA time zone of the cron expression. Default: the time zone of the scheduler that writes the schedule. */
  readonly timezone?: string | undefined;
  /** Data for `tick.data`: a JSON value of at most 4,096 characters. Default: undefined. */
  readonly data?: unknown;
  /** Options as for `cron()` or `every()`. */
  readonly options?: DefinitionOptions | undefined;
}

export interface ReconcileOptions {
  /**
   * Number that grows with each version of the set, such as a number of the deployment or the time of the last change
   * of the table. A set with a smaller revision than the stored set is not written. Default: the revision of the stored
   * set.
   */
  readonly revision?: number | undefined;
}

/** Names of schedules, by the effect of a `reconcile()`. */
export interface Reconciled {
  readonly added: readonly string[];
  readonly changed: readonly string[];
  readonly removed: readonly string[];
  readonly unchanged: readonly string[];
  /** Whether the stored set has a greater revision. Then nothing was written, and the lists are empty. */
  readonly isOutdated: boolean;
}

interface WantedParts {
  readonly election: LeaderElection;
  readonly timezone: string;
  /** Schedules in the code of this process, by name. */
  readonly entries: ReadonlyMap<string, ScheduleEntry>;
  readonly store: () => RegisterStore;
}

/** The greatest number of characters of a set. A node, and each reader, handles this text within some 20 ms. */
const LONGEST_SET = 4_000_000;
const LONGEST_DATA = 4_096;
const LONGEST_KIND = 200;
/** A call that takes longer reads again, because the leader may have forgotten that a schedule was removed. */
const LONGEST_CALL_MS = 3_600_000;
const MOST_PREVIEWED = 1_000;

export const KIND: Check<string> = text({ min: 1, max: LONGEST_KIND });

const DEFINED = {
  kind: KIND,
  cron: text({ min: 1 }).optional(),
  every: integer({ min: 1 }).optional(),
  timezone: zone.optional(),
  data: { rule: "JSON", fallback: undefined, of: (_name: string, given: unknown) => given },
  options: {
    rule: "an object",
    fallback: undefined,
    of: (_name: string, given: unknown) => given as DefinitionOptions,
  },
} satisfies ShapeOf<Omit<ScheduleDefinition, "name">>;

const UNNAMED = new Schema(DEFINED);
const NAMED = new Schema({ name: scheduleName, ...DEFINED } satisfies ShapeOf<ScheduleDefinition>);
const RECONCILE = new Schema({
  revision: integer({ min: 0, unit: "" }).optional(),
} satisfies ShapeOf<ReconcileOptions>);
const LIST = new Check<readonly unknown[]>({
  rule: "an array of schedules",
  faultOf: (given) => (Array.isArray(given) ? undefined : "type"),
  show: kindOf,
});
const COUNT = integer({ min: 1, max: MOST_PREVIEWED, unit: "" });

export class ScheduleWriter {
  readonly #parts: WantedParts;

  constructor(parts: WantedParts) {
    this.#parts = parts;
  }

  /** See `LeaderScheduler.reconcile`. */
  async reconcile(wanted: readonly ScheduleDefinition[], options: ReconcileOptions): Promise<Reconciled> {
    const { revision } = RECONCILE.resolve(options);
    const jsons = await this.#jsonsOf(wanted);
    const { known, nowMs } = await this.#read();
    if (revision !== undefined && revision < known.revision) return outdated();
    const { texts, reconciled } = await this.#compared(jsons, known.definitions, nowMs);
    const isSame = reconciled.added.length + reconciled.changed.length + reconciled.removed.length === 0;
    if (isSame && (revision ?? known.revision) === known.revision) return reconciled;
    const set = { revision: revision ?? known.revision, version: Math.max(nowMs, known.version + 1), texts };
    const kept = await this.#send(SET, setLine(set, this.#nonce()));
    return kept.some((line) => Number.parseInt(line, 10) > set.revision) ? outdated() : reconciled;
  }

  /** See `LeaderScheduler.upsert`. */
  async upsert(name: string, definition: Omit<ScheduleDefinition, "name">): Promise<"added" | "changed" | "unchanged"> {
    scheduleName.of("name", name);
    const json = this.#jsonOf({ ...UNNAMED.resolve(definition, "definition"), name }, "definition");
    this.#checkIsData(name, "name");
    const outcome = await this.#order(name, (old) =>
      old?.json === json ? undefined : { json, outcome: old === undefined ? ("added" as const) : ("changed" as const) },
    );
    return outcome ?? "unchanged";
  }

  /** See `LeaderScheduler.remove`. */
  async remove(name: string): Promise<boolean> {
    text().of("name", name);
    this.#checkIsData(name, "name");
    const outcome = await this.#order(name, (old) =>
      old === undefined ? undefined : { json: undefined, outcome: "removed" as const },
    );
    return outcome !== undefined;
  }

  /** See `LeaderScheduler.preview`. */
  async preview(name: string, count: number): Promise<readonly Date[]> {
    text().of("name", name);
    COUNT.of("count", count);
    const { clock } = protocolOf(this.#parts.election.redlock);
    const calendar = this.#parts.entries.get(name)?.calendar ?? (await this.#storedCalendar(name));
    const dates: Date[] = [];
    const slice = new Slice(clock);
    for (let atMs = calendar.next(clock.wallMs()); atMs !== null; atMs = calendar.next(atMs)) {
      dates.push(dateOf(atMs));
      if (dates.length === count) break;
      if (slice.isOver) await slice.another();
    }
    return dates;
  }

  async #storedCalendar(name: string): Promise<Calendar> {
    const { known } = await this.#read();
    const definition = known.definitions.get(name);
    if (definition === undefined) throw new UnknownScheduleError(this.#parts.election.name, name);
    return timesOf(definition, new Map<string, ResolvedScheduleOptions>()).calendar;
  }

  /** Checks the schedules of a set. Returns their JSON by name. */
  async #jsonsOf(wanted: readonly ScheduleDefinition[]): Promise<ReadonlyMap<string, string>> {
    const slice = this.#slice();
    const jsons = new Map<string, string>();
    let length = 0;
    for (const [index, given] of itemsOf(wanted).entries()) {
      if (slice.isOver) await slice.another();
      const path = `wanted[${index}]`;
      const definition = NAMED.resolve(given, path);
      const { name } = definition;
      this.#checkIsData(name, `${path}.name`);
      if (jsons.has(name)) throw new RangeError(`${path}.name must be used once in wanted, got ${quote(name)} again`);
      const json = this.#jsonOf(definition, path);
      jsons.set(name, json);
      length += json.length + String(Number.MAX_SAFE_INTEGER).length;
      if (length > LONGEST_SET)
        throw new RangeError(`wanted must have at most ${LONGEST_SET} characters as JSON, got more at ${path}`);
    }
    return jsons;
  }

  /** Returns the canonical JSON of a schedule. */
  #jsonOf(given: ScheduleDefinition, path: string): string {
    const { name, kind, cron, every, timezone = this.#parts.timezone, options } = given;
    if ((cron === undefined) === (every === undefined))
      throw new TypeError(`${path} must have one of cron and every, got ${cron === undefined ? "neither" : "both"}`);
    if (every !== undefined && given.timezone !== undefined)
      throw new TypeError(`${path}.timezone must be left out with every, got ${quote(timezone)}`);
    if (cron !== undefined) checkCron(cron, timezone, `${path}.cron`);
    const data = given.data === undefined ? undefined : canonicalJson(given.data, `${path}.data`);
    if (data !== undefined && data.length > LONGEST_DATA)
      throw new RangeError(`${path}.data must have at most ${LONGEST_DATA} characters as JSON, got ${data.length}`);
    return jsonOf({
      name,
      kind,
      times: cron ?? every ?? 0,
      timezone: cron === undefined ? "" : timezone,
      data,
      options: options === undefined ? "{}" : storedOptions(options, every, `${path}.options`),
    });
  }

  /** Refuses a name that the code of this process uses. The code would hide the stored schedule in some processes. */
  #checkIsData(name: string, path: string): void {
    if (this.#parts.entries.has(name))
      throw new RangeError(`${path} must not be of a schedule in the code of this process, got ${quote(name)}`);
  }

  /** Compares a set with the stored schedules. A schedule whose times are unchanged keeps its `sinceMs`. */
  async #compared(
    jsons: ReadonlyMap<string, string>,
    stored: ReadonlyMap<string, Definition>,
    nowMs: number,
  ): Promise<{ readonly texts: readonly string[]; readonly reconciled: Reconciled }> {
    const added: string[] = [];
    const changed: string[] = [];
    const removed: string[] = [];
    const unchanged: string[] = [];
    const texts: string[] = [];
    const slice = this.#slice();
    for (const [name, json] of jsons) {
      if (slice.isOver) await slice.another();
      const old = stored.get(name);
      (old === undefined ? added : old.json === json ? unchanged : changed).push(name);
      texts.push(definitionText({ sinceMs: sinceOf(old, json, nowMs), json }));
    }
    for (const name of stored.keys()) if (!jsons.has(name)) removed.push(name);
    return { texts, reconciled: { added, changed, removed, unchanged, isOutdated: false } };
  }

  /**
   * Adds, changes or removes one schedule. Sends nothing if `decide` returns undefined. Without `json`, the schedule is
   * removed.
   */
  async #order<Outcome>(
    name: string,
    decide: (
      old: Definition | undefined,
    ) => { readonly json: string | undefined; readonly outcome: Outcome } | undefined,
  ): Promise<Outcome | undefined> {
    const { clock } = protocolOf(this.#parts.election.redlock);
    for (;;) {
      const beganMs = clock.wallMs();
      const { known, nowMs } = await this.#read();
      const old = known.definitions.get(name);
      const decision = decide(old);
      if (decision === undefined) return undefined;
      const { json, outcome } = decision;
      const text = json === undefined ? undefined : definitionText({ sinceMs: sinceOf(old, json, nowMs), json });
      let length = text?.length ?? 0;
      for (const each of known.definitions.values()) length += each.json.length + 1;
      if (text !== undefined && length > LONGEST_SET)
        throw new RangeError(`definition must fit into ${LONGEST_SET} characters with all others, got ${length}`);
      const version = Math.max(nowMs, known.version + 1);
      await this.#send(DEFINITION + name, orderLine({ version, text }, this.#nonce()));
      if (clock.wallMs() - beganMs < LONGEST_CALL_MS) return outcome;
    }
  }

  async #read(): Promise<{ readonly known: KnownDefinitions; readonly nowMs: number }> {
    const { clock } = protocolOf(this.#parts.election.redlock);
    const answers = await this.#parts.store().look();
    const nowMs = nodeTimeMs(answers, clock.wallMs());
    const slice = this.#slice();
    const { lines } = await knownFrom(answers, slice);
    return { known: await definitionsIn(lines, slice), nowMs };
  }

  /** Sends an order to all nodes. Resolves with the lines that they keep. */
  #send(field: string, line: string): Promise<readonly string[]> {
    return this.#parts.store().order(field, line, this.#parts.election.redlock.nodeCount);
  }

  #nonce(): string {
    const { random } = protocolOf(this.#parts.election.redlock);
    return Math.floor(random.fraction() * 2 ** 40).toString(36);
  }

  #slice(): Slice {
    return new Slice(protocolOf(this.#parts.election.redlock).clock);
  }
}

/** Copies the list, which the caller may change while slices of it are checked. */
function itemsOf(wanted: unknown): readonly unknown[] {
  const list = LIST.of("wanted", wanted);
  try {
    return [...list];
  } catch (error) {
    throw new TypeError("wanted must be readable, got one that throws when it is read", { cause: error });
  }
}

function sinceOf(old: Definition | undefined, json: string, nowMs: number): number {
  return old !== undefined && (old.json === json || isSameTimes(old.json, json)) ? old.sinceMs : nowMs;
}

function outdated(): Reconciled {
  return { added: [], changed: [], removed: [], unchanged: [], isOutdated: true };
}
