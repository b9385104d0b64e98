/** Pure: options and arguments, with defaults and rules. */
import { types } from "node:util";
import {
  type Check,
  callback,
  DAY_MS,
  integer,
  objectWith,
  Schema,
  type ShapeOf,
  shaped,
  text,
  textLike,
} from "@x/redlock-core/kit";
import type { ConnectionOptions } from "bullmq";
import { type EffectJob, inboxIdOf } from "./rules/inbox-id.ts";

export interface EffectsOptions {
  /** Schema of the tables. The schema must exist. Default: the connection's search path decides. */
  readonly schema?: string | undefined;
  /**
   * Beginning of the tables' names: lower-case letters, digits and _, at most 40 characters. Every service needs its
   * own prefix or schema. Default "effects_".
   */
  readonly prefix?: string | undefined;
  /** Largest result of an effect, in bytes of JSON. Default 65536; from 2 to 268435456. */
  readonly maxResult?: number | undefined;
  /**
   * How long a transaction may be idle between two statements before the server rolls it back, in ms. A frozen process
   * holds up the next holder of its resource for this long. Default 30000; at least 100.
   */
  readonly idleTimeout?: number | undefined;
  /**
   * Number of attempts of `once` after the first, with growing pauses. `once` repeats an attempt after a lost
   * connection or a conflict. `transaction` repeats nothing, but asks the server for an unknown outcome until more
   * requests than this number have failed. Default 5; from 0 to 100.
   */
  readonly retries?: number | undefined;
}

/** Lock under which an effect happens: the lock of a job, a `Lock`, or the term of a leader. */
export type EffectLock =
  | {
      readonly resources: readonly string[];
      /** The effect claims nothing if the token is 0, which is the token of a job without a key. */
      readonly fencingToken: number;
      readonly batch?: { readonly jobs: readonly unknown[] } | undefined;
    }
  | { readonly election: string; readonly fencingToken: number };

/** The identity and the lock of an effect. */
export interface OnceOptions {
  /** The BullMQ job of the effect. Exactly one of `job` and `key` must be given. */
  readonly job?: EffectJob | undefined;
  /** Name that you choose for the effect, 1 to 512 characters, such as the number of a payment. */
  readonly key?: string | undefined;
  /** Name of this effect if the job or key has several effects, 1 to 128 characters. Default: none. */
  readonly step?: string | undefined;
  /** The lock under which the effect happens. The effect claims the lock's resources. Default: no claim. */
  readonly lock?: EffectLock | undefined;
}

export interface CleanupOptions {
  /** Age from which inbox rows are deleted, in ms. Default 2592000000, 30 days; at least 60000. */
  readonly olderThan?: number | undefined;
}

export interface ReplayOptions {
  /** The name of the queue whose rows are relayed again. */
  readonly queue: string;
  /** Start of the period. Rows that were relayed at this time or later are relayed again. */
  readonly since: Date;
}

/** The part of a leader's term that the relay uses. */
export interface RelayTerm {
  readonly election: string;
  readonly signal: AbortSignal;
  assertCurrent(): void;
}

/** The part of a `LeaderElection` that the relay uses. */
export interface RelayElection {
  readonly name: string;
  run(task: (term: RelayTerm) => Promise<void>, options: { readonly signal: AbortSignal }): Promise<void>;
}

export interface OutboxRelayOptions {
  /** The leader of this election relays. Give it a name of its own for each outbox. */
  readonly election: RelayElection;
  /**
   * The Redis of the queues, in the form that BullMQ takes. Give a client, not options, for one connection to all
   * queues.
   */
  readonly connection: ConnectionOptions;
  /** BullMQ's prefix of all keys. Default "bull". */
  readonly prefix?: string | undefined;
  /** How long relayed rows are kept for `replay`, in ms. Default 0: relayed rows are deleted. */
  readonly keepFor?: number | undefined;
}

const NAME = textLike("a name of lower-case letters, digits and _ with at most 40 characters", (name) =>
  /^[a-z_][a-z0-9_]{0,39}$/.test(name),
);
const TOKEN = integer({ min: 0, unit: "" });
const LONGEST_BOUND_MS = 2 ** 31 - 1;

const OF_EFFECTS = new Schema({
  schema: textLike("a name of letters, digits and _ with at most 63 characters", (name) =>
    /^[A-Za-z_][A-Za-z0-9_]{0,62}$/.test(name),
  ).optional(),
  prefix: NAME.default("effects_"),
  maxResult: integer({ min: 2, max: 2 ** 28, unit: "bytes" }).default(65_536),
  idleTimeout: integer({ min: 100, max: LONGEST_BOUND_MS }).default(30_000),
  retries: integer({ min: 0, max: 100, unit: "" }).default(5),
} satisfies ShapeOf<EffectsOptions>);

const JOB: Check<EffectJob> = shaped<EffectJob>(
  "a job of BullMQ",
  ({ id, timestamp, queueQualifiedName }) =>
    typeof id === "string" && Number.isInteger(timestamp) && typeof queueQualifiedName === "string",
);
const LOCK = shaped<EffectLock>("a lock or a term, with its fencing token", ({ fencingToken, resources, election }) => {
  const isNamed = Array.isArray(resources)
    ? resources.every((resource) => typeof resource === "string")
    : typeof election === "string";
  return isNamed && TOKEN.accepts(fencingToken);
});
const ONCE = new Schema({
  job: JOB.optional(),
  key: text({ min: 1, max: 512 }).optional(),
  step: text({ min: 1, max: 128 }).optional(),
  lock: LOCK.optional(),
} satisfies ShapeOf<OnceOptions>);
const CLEANUP = new Schema({
  olderThan: integer({ min: 60_000 }).default(30 * DAY_MS),
} satisfies ShapeOf<CleanupOptions>);
const REPLAY = new Schema({
  queue: text({ min: 1 }),
  since: shaped<Date>("a Date", (value) => types.isDate(value) && !Number.isNaN(Number(value))),
} satisfies ShapeOf<ReplayOptions>);
const OF_RELAYS = new Schema({
  election: objectWith<RelayElection>(["run"]),
  connection: shaped<ConnectionOptions>("a connection of BullMQ", () => true),
  prefix: text({ min: 1 }).default("bull"),
  keepFor: integer({ min: 0 }).default(0),
} satisfies ShapeOf<OutboxRelayOptions>);

export const FN: Check<(...args: never[]) => unknown> = callback();

type Complete<Options> = { readonly [Name in keyof Options]-?: NonNullable<Options[Name]> };

export type ResolvedEffectsOptions = Complete<Omit<EffectsOptions, "schema">> & {
  readonly schema: string | undefined;
};

export function resolveEffects(given: EffectsOptions): ResolvedEffectsOptions {
  return OF_EFFECTS.resolve(given);
}

/** The resolved options of a call of `once`. */
export interface Effect {
  readonly id: string;
  readonly job: EffectJob | undefined;
  /** The resources to claim, each once. Empty without a claim. */
  readonly resources: readonly string[];
  readonly fencingToken: number;
}

export function resolveOnce(given: OnceOptions): Effect {
  const { job, key, step, lock } = ONCE.resolve(given);
  if ((job === undefined) === (key === undefined))
    throw new TypeError(`job must be given, or key, got ${job === undefined ? "neither" : "both"}`);
  const { fencingToken = 0 } = lock ?? {};
  const named = lock !== undefined && "election" in lock ? [`leader:${lock.election}`] : (lock?.resources ?? []);
  const batch = lock !== undefined && "batch" in lock ? (lock.batch?.jobs.length ?? 1) : 1;
  if (key === undefined && batch > 1)
    throw new RangeError(`lock must be of one job, got a batch of ${batch}: give each of its effects a key`);
  const resources = fencingToken === 0 ? [] : [...new Set(named)];
  const effect = job === undefined ? { key: key ?? "" } : { job };
  return { id: inboxIdOf(effect, step), job, resources, fencingToken };
}

export function resolveCleanup(given: CleanupOptions): { readonly olderThan: number } {
  return CLEANUP.resolve(given);
}

export function resolveReplay(given: ReplayOptions): { readonly queue: string; readonly sinceMs: number } {
  const { queue, since } = REPLAY.resolve(given);
  return { queue, sinceMs: since.getTime() };
}

export function resolveRelay(given: OutboxRelayOptions): Complete<OutboxRelayOptions> {
  return OF_RELAYS.resolve(given);
}

export const TERM: Check<RelayTerm> = shaped<RelayTerm>(
  "a term of an election",
  ({ signal, assertCurrent }) => signal instanceof AbortSignal && typeof assertCurrent === "function",
);
