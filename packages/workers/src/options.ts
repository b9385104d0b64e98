/** Pure: the options that `ExclusiveWorker` adds to BullMQ's, their defaults, and the rules for all options. */
import type { Redlock, Reentrancy } from "@x/redlock-core";
import {
  Check,
  choice,
  DAY_MS,
  type Fault,
  integer,
  kindOf,
  nearestName,
  type Option,
  quote,
  Schema,
  type ShapeOf,
  show,
  text,
  textLike,
} from "@x/redlock-core/kit";
import { redlock, validityMs } from "@x/redlock-core/protocol";
import type { WorkerOptions } from "./bullmq/public.ts";
import type { KeyRate, LaneRules, LineRules, OnFailure } from "./bullmq/rules/compose.ts";
import { withSocketTimeout } from "./bullmq/rules/connection.ts";
import type { WorkerFinding, WorkerFindingCode } from "./errors.ts";
import { type KeyPath, keyFault, MAX_KEY_BYTES, parsePath, valueAt } from "./rules/entity-key.ts";
import type { StoredJob } from "./rules/stored-job.ts";

export const QUEUE_NAME: Check<string> = text({ min: 1 });

/** Path to fields of `job.data`, separated by dots, or a function of the stored job. */
export type KeyOption<Data, Name extends string> =
  | KeyPath<NoInfer<Data>>
  | ((job: StoredJob<Data, Name>) => string | number | readonly (string | number)[] | null | undefined);

/** Limits that apply to each key separately. */
export interface PerKey {
  /**
   * How many jobs of a key may run at the same time over all workers and processes, from 1 to 100. Default 1.
   *
   * The jobs start in order and end in any order. Each job has a slot of the key, with its own lock and fencing tokens.
   * Plain code that holds the key's lock keeps out only the job in the first slot. More than 1 requires `onFailure:
   * "skip"`.
   */
  readonly concurrency?: number | undefined;
  /**
   * Rate at which jobs of a key may start, over all workers and processes: at most `max` within any `duration` ms.
   * `max` is 1 to 10000, `duration` 1 to a day. Default: any number.
   *
   * The starts may come in a burst. A job that may not start yet is parked until its start is allowed, and delays no
   * other key.
   */
  readonly rate?: KeyRate | undefined;
  /**
   * How many jobs may wait for a key: at most `max` (1 to 1000000). Default: any number.
   *
   * When another job arrives, a job fails with `KeyBacklogError` before the processor is called: the new job (`drop:
   * "newest"`, the default) or the first job in line (`"oldest"`).
   */
  readonly maxWaiting?: MaxWaiting | undefined;
  /**
   * How many jobs one call handles with `whenBusy: "merge"`: at most `size` (1 to 1000, default 100). A call with fewer
   * jobs waits in its slot for more jobs, for `wait` ms (0 to an hour, default 0).
   */
  readonly batch?: BatchSize | undefined;
}

/** Which key comes next if several keys have waiting jobs. */
export type Between =
  | "arrival"
  | "rotate"
  | { readonly rotate: { readonly weights: Readonly<Record<string, number>> } };

/** Number of jobs that one call of the processor handles, see `PerKey`. */
export interface BatchSize {
  /** Maximum number of jobs in one call, from 1 to 1000. Default 100. */
  readonly size?: number | undefined;
  /** How long a call waits in its slot for more jobs, in ms, from 0 to an hour. Default 0. */
  readonly wait?: number | undefined;
}

/** Number of jobs that may wait for a key, see `PerKey`. */
export interface MaxWaiting {
  /** Maximum number of waiting jobs, from 1 to 1000000. */
  readonly max: number;
  /**
   * Which job fails when another one arrives: the new job (`"newest"`) or the first job in line (`"oldest"`). Default
   * "newest".
   */
  readonly drop?: "newest" | "oldest" | undefined;
}

export interface ExclusiveOptions<Data = unknown, Name extends string = string> {
  /**
   * The entity that a job is about. At most one job of a key runs at a time, in the order in which the jobs were added.
   *
   * The option is a path into `job.data`, such as `"account.id"` (not `"data.account.id"`), or a function of the stored
   * job. The path or function leads to one of these values:
   * - A string or a safe integer: the job has this key.
   * - An array of at most 16 strings or integers: the job has all of these keys at the same time.
   * - `undefined` or `null`: the job has no key, see `withoutKey`.
   *
   * With any other value, and if the function throws, the job fails. An error never means "no key". A key is fixed when
   * a worker first looks at the job, which may be hundreds of jobs before the job runs. Do not change the field later.
   */
  readonly key: KeyOption<Data, Name>;
  /**
   * The name of a key's lock. Plain code that locks the same name is excluded. Default: the key itself.
   *
   * A string is a prefix of the key (`"account:"`). A function computes the name, which costs one more request for each
   * job. Two different keys must have two different names.
   */
  readonly resource?: string | ((key: string) => string) | undefined;
  /**
   * How a job without a key is handled.
   *
   * - `"pass"` (default): the job runs as in a plain worker.
   * - `"fail"`: the job fails with a `JobKeyError`. This reveals a misspelt path and producers that leave the field
   *   out.
   */
  readonly withoutKey?: "pass" | "fail" | undefined;
  /**
   * The `Redlock` that stores the locks. Default: a new one on the queue's own Redis, which is closed with the worker.
   * Your own `Redlock` stays open.
   */
  readonly redlock?: Redlock | undefined;
  /**
   * How a failed job affects its key.
   *
   * - `"skip"` (default): the key's next job starts while the failed job waits for its retry, as in plain BullMQ.
   * - `"block"`: the key waits for the retry, so the order is kept.
   * - `"halt"`: the key waits for the retry. A job that has finally failed stops its key until `resumeKey`.
   *
   * With `whenBusy` set to `"interrupt"` or `"merge"` the default is `"block"`. With `"interrupt"`, `"skip"` is
   * rejected.
   */
  readonly onFailure?: OnFailure | undefined;
  /**
   * How a job is handled while its key belongs to another job, or is paused or limited.
   *
   * - `"queue"` (default): the job waits in line.
   * - `"latest"`: the job waits, and the job that waited before it is completed without a run. The return value of the
   *   completed job is a `NotRun`.
   * - `"interrupt"`: like `"latest"`, and the `signal` of the running job aborts with a `SupersededError`. The running
   *   job does not run again: if its processor rejects, the job is completed with a `NotRun`.
   * - `"merge"`: the job waits in line, and the next call handles the waiting jobs as `lock.batch`, up to
   *   `perKey.batch.size`.
   * - `"drop"`: the job is completed without a run. Its return value is a `NotRun`.
   */
  readonly whenBusy?: "queue" | "latest" | "interrupt" | "merge" | "drop" | undefined;
  /**
   * Which key comes next if several keys have waiting jobs. Use the same value in all workers of a queue.
   *
   * - `"arrival"` (default): the key whose job arrived first. A key with a line keeps its slot until the line is empty.
   * - `"rotate"`: the keys take turns. While a key waits for its turn, every other key starts at most one job.
   * - `{ rotate: { weights } }`: like `"rotate"`, but a key in `weights` starts that many jobs in its turn (1 to 100,
   *   for at most 100 keys). All other keys start one.
   *
   * With `whenBusy: "drop"` only `"arrival"` is accepted, because no job waits.
   */
  readonly between?: Between | undefined;
  /** Limits for each key. Use the same limits in all workers of a queue. */
  readonly perKey?: PerKey | undefined;
  /**
   * TTL of a key's lock in ms. The lock is extended while the job runs. Default and maximum: `lockDuration`. At least
   * 50.
   */
  readonly ttl?: number | undefined;
  /**
   * How long a job waits in its slot for a lock that plain code holds, in ms. Afterwards the job returns to `delayed`,
   * keeps its key, and is woken when the lock is released. From 0 to a day. Default 100.
   */
  readonly timeout?: number | undefined;
  /**
   * How a processor's call of `using` of the worker's `Redlock` behaves if the processor's job has the same key.
   *
   * - `"wait"` (default): the call waits for the lock like any other caller, until its `timeout`.
   * - `"refuse"`: the call immediately rejects with a `ReentrancyError`.
   * - `"join"`: the call runs under the job's lock, which the job keeps until the call has ended.
   *
   * The last two values follow each processor through its asynchronous context. On Node.js 20 and 22, this costs about
   * 10 % of the CPU time of a job that does nothing. A processor in a separate file is not followed.
   */
  readonly reentrancy?: Reentrancy | undefined;
  /**
   * How long the first job in line for a key waits, in ms, until the job is judged again even if no other job has
   * passed the key on. From 100 to a day. Default 15000. The n-th job in line waits n times as long, but at most an
   * hour. A longer `recheckInterval` replaces the hour.
   *
   * If jobs were removed by hand, their keys move on within three times this value. Both times are longer while
   * thousands of keys are busy.
   */
  readonly recheckInterval?: number | undefined;
  /**
   * Accepts the script texts of a BullMQ release that this package has not been tested with: the fingerprint of exactly
   * these texts, 16 hexadecimal digits. Default: only tested texts are accepted.
   *
   * `npx @x/console bullmq` tests the installed release against your own Redis, and prints the fingerprint if the tests
   * pass. A worker with accepted texts emits a process warning, and `check()` reports `UNTESTED_BULLMQ`. The option has
   * no effect once the texts are known.
   */
  readonly acceptScripts?: string | undefined;
}

/**
 * BullMQ's options, with other defaults: `lockDuration` 10000 (100 to a day) and `stalledInterval` 5000 (1 to a day).
 * With these defaults, a killed worker's keys move on after about 15 s at the latest. `lockRenewTime` must be at most
 * half of `lockDuration`.
 */
export type ExclusiveWorkerOptions<Data = unknown, Name extends string = string> = WorkerOptions &
  ExclusiveOptions<Data, Name>;

type JobKeyFunction = (job: StoredJob<never, never>) => unknown;

/** Options that are resolved by their default alone. */
type DefaultedOptions = Pick<
  ExclusiveWorkerOptions,
  "withoutKey" | "ttl" | "timeout" | "reentrancy" | "recheckInterval" | "lockDuration" | "stalledInterval"
>;

export interface ResolvedExclusiveOptions
  extends Readonly<{ [Name in keyof DefaultedOptions]-?: NonNullable<DefaultedOptions[Name]> }> {
  readonly rules: LaneRules;
  readonly keyOf: JobKeyFunction;
  readonly resourceOf: (key: string) => string;
  /** Prefix of a key in the name of its lock. Undefined if a function (`resourceOf`) computes the name. */
  readonly resourcePrefix: string | undefined;
  /** No lock may have a Redis key with this prefix, because BullMQ's own keys begin with it. */
  readonly reserved: string;
  readonly redlock: Redlock | undefined;
  readonly acceptScripts: string | undefined;
  /** Findings about options that weaken a promise. */
  readonly warnings: readonly WorkerFinding[];
}

/** Longest time between two judgements of a job in line. Only jobs whose lane lost its Redis keys wait so long. */
const FAR_MS = 3_600_000;
const NEAR_MS = 15_000;

/** The rules of a worker whose options are all left out. */
export const DEFAULT_RULES: LaneRules & { readonly slots: number } = {
  path: undefined,
  onFailure: "skip",
  slots: 1,
  nearMs: NEAR_MS,
  farMs: FAR_MS,
};

/** Judging a job while all slots of its key are taken costs about 2 µs for each slot. */
export const MAX_SLOTS = 100;

/** Returns the check of an option that is a function, or a text for which `isUsable` returns true. */
function textOrFunction<Value>(rule: string, isUsable: (text: string) => boolean): Check<Value> {
  const faultOf = (given: unknown): Fault | undefined => {
    if (typeof given === "string") return isUsable(given) ? undefined : "range";
    return typeof given === "function" ? undefined : "type";
  };
  return new Check({ rule, faultOf });
}

export const PATH_OR_FUNCTION: Check<KeyOption<never, never>> = textOrFunction(
  'a path of fields such as "account.id" or a function',
  (path) => parsePath(path) !== undefined,
);

const PREFIX_OR_FUNCTION = textOrFunction<string | ((key: string) => string)>(
  `a string of at most ${MAX_KEY_BYTES} bytes without control characters, or a function`,
  (prefix) => prefix === "" || keyFault(prefix) === undefined,
);

export const RATE: Option<KeyRate | undefined> = unlessLeftOut(
  new Schema({
    max: integer({ min: 1, max: 10_000, unit: "" }),
    duration: integer({ min: 1, max: DAY_MS }),
  } satisfies ShapeOf<KeyRate>),
);

export const MAX_WAITING: Option<MaxWaiting | undefined> = unlessLeftOut(
  new Schema({
    max: integer({ min: 1, max: 1_000_000, unit: "" }),
    drop: choice(["newest", "oldest"]).default("newest"),
  } satisfies ShapeOf<MaxWaiting>),
);

const BATCH = new Schema({
  size: integer({ min: 1, max: 1_000, unit: "" }).default(100),
  wait: integer({ min: 0, max: 3_600_000 }).default(0),
} satisfies ShapeOf<BatchSize>);

const PER_KEY = new Schema({
  concurrency: integer({ min: 1, max: MAX_SLOTS, unit: "" }).default(1),
  rate: RATE,
  maxWaiting: MAX_WAITING,
  batch: unlessLeftOut(BATCH),
} satisfies ShapeOf<PerKey>);

/** Limited because the weights are written into each script. */
const MAX_WEIGHTED_KEYS = 100;
export const MAX_WEIGHT = 100;

function faultOfWeights(between: unknown): "type" | "range" | undefined {
  const { rotate, ...others } = between as { readonly rotate?: { readonly weights?: object } };
  const { weights, ...further } = rotate ?? {};
  const isRecord = Object.prototype.toString.call(weights) === "[object Object]";
  if (!isRecord || Object.keys({ ...others, ...further }).length > 0) return "type";
  const entries = Object.entries(weights ?? {});
  const isUsable = entries.every(
    ([key, weight]) => keyFault(key) === undefined && Number.isInteger(weight) && weight >= 1 && weight <= MAX_WEIGHT,
  );
  return isUsable && entries.length <= MAX_WEIGHTED_KEYS ? undefined : "range";
}

const BETWEEN = new Check<Between>({
  rule: `"arrival", "rotate", or { rotate: { weights } } with integers from 1 to ${MAX_WEIGHT} for at most ${MAX_WEIGHTED_KEYS} keys`,
  faultOf: (between) => {
    if (typeof between === "string") return between === "arrival" || between === "rotate" ? undefined : "range";
    return faultOfWeights(between);
  },
});

export const FINGERPRINT: Check<string> = textLike("a fingerprint of 16 hexadecimal digits", (text) =>
  /^[0-9a-f]{16}$/.test(text),
);

const OWN = new Schema({
  key: PATH_OR_FUNCTION,
  resource: PREFIX_OR_FUNCTION.default(""),
  withoutKey: choice(["pass", "fail"]).default("pass"),
  redlock: redlock.optional(),
  onFailure: choice(["skip", "block", "halt"]).optional(),
  whenBusy: choice(["queue", "latest", "interrupt", "merge", "drop"]).default("queue"),
  between: BETWEEN.default("arrival"),
  perKey: PER_KEY.inside(),
  ttl: integer({ min: 50, max: DAY_MS }).optional(),
  timeout: integer({ min: 0, max: DAY_MS }).default(100),
  reentrancy: choice(["wait", "refuse", "join"]).default("wait"),
  recheckInterval: integer({ min: 100, max: DAY_MS }).default(NEAR_MS),
  acceptScripts: FINGERPRINT.optional(),
} satisfies ShapeOf<ExclusiveOptions<never, never>>);

/** BullMQ's options whose values this package needs, or for which its rules are stricter. */
const BULL = new Schema({
  // After a worker was killed and its locks of jobs have expired, the next stalled check of another worker brings these
  // jobs back.
  lockDuration: integer({ min: 100, max: DAY_MS }).default(10_000),
  stalledInterval: integer({ min: 1, max: DAY_MS }).default(5_000),
  lockRenewTime: integer({ min: 1, max: DAY_MS }).optional(),
  prefix: text({ min: 1 }).default("bull"),
});

/**
 * Reads each of the caller's options once. Throws `TypeError` for a name that is probably a misspelt option of this
 * package, because BullMQ ignores unknown names.
 */
export function readOptions<Options extends object>(
  given: Options,
  names: readonly string[] = OWN.names,
  needs = "connection and key",
): Options {
  let options: Options | undefined;
  try {
    if (Object.prototype.toString.call(given) === "[object Object]") options = { ...given };
  } catch (cause) {
    throw new TypeError("options must be readable, got an object that throws when it is read", { cause });
  }
  if (options === undefined) throw new TypeError(`options must be an object with ${needs}, got ${kindOf(given)}`);
  for (const name of Object.keys(options)) {
    const meant = nearestName(name, names);
    if (meant !== undefined && meant !== name)
      throw new TypeError(`unknown option "${name}": did you mean "${meant}"?`);
  }
  return options;
}

/** Resolves the options that `readOptions` has read, for the queue of this name. */
export function resolveOptions<Data, Name extends string>(
  queue: string,
  options: ExclusiveWorkerOptions<Data, Name>,
): ResolvedExclusiveOptions {
  const {
    key,
    resource,
    redlock,
    perKey,
    between,
    whenBusy,
    recheckInterval,
    onFailure: onFailureGiven,
    ...own
  } = OWN.pick(options);
  const onFailure = onFailureOf(onFailureGiven, whenBusy);
  const { lockDuration, stalledInterval, lockRenewTime, prefix } = BULL.pick(options);
  const { ttl = lockDuration } = own;
  const line = lineRules(whenBusy, perKey);
  const merge = mergeRules(whenBusy, perKey);
  const rotate = rotationOf(between);
  const { path, keyOf } = keyOptions(key);
  const rules: LaneRules = {
    path,
    onFailure,
    slots: perKey.concurrency,
    rate: perKey.rate,
    line,
    rotate,
    merge,
    nearMs: recheckInterval,
    farMs: Math.max(FAR_MS, recheckInterval),
  };
  if (rotate !== undefined && whenBusy === "drop") {
    throw new RangeError('between must be "arrival" where whenBusy is "drop": no job waits for a turn');
  }
  if (perKey.concurrency > 1 && (whenBusy === "interrupt" || whenBusy === "merge")) {
    throw new RangeError(`perKey.concurrency must be 1 where whenBusy is "${whenBusy}", got ${perKey.concurrency}`);
  }
  if (perKey.concurrency > 1 && onFailure !== "skip") {
    throw new RangeError(
      `perKey.concurrency must be 1 with onFailure ${quote(onFailure)}, got ${perKey.concurrency}: other jobs of the key would pass the job that waits for its retry`,
    );
  }
  if (ttl > lockDuration) {
    throw new RangeError(
      `ttl must be <= lockDuration (${lockDuration}), got ${ttl}: a killed worker's key would stay locked after its job is free again`,
    );
  }
  if (lockRenewTime !== undefined && lockRenewTime > lockDuration / 2) {
    throw new RangeError(
      `lockRenewTime must be <= lockDuration / 2 (${lockDuration / 2}), got ${lockRenewTime}: one late renewal would lose the job`,
    );
  }
  if (redlock !== undefined) checkLeases(redlock, { ttl, lockDuration, lockRenewTime });
  const resourcePrefix = typeof resource === "string" ? resource : undefined;
  return Object.freeze({
    ...own,
    rules,
    keyOf,
    resourcePrefix,
    resourceOf: typeof resource === "string" ? (name: string): string => resource + name : checkedResource(resource),
    // Without a prefix, strangers may choose the names of entities, so the keys of all BullMQ queues are reserved. With
    // a prefix, only the keys of this queue are.
    reserved: resourcePrefix ? `${prefix}:${queue}:` : `${prefix}:`,
    redlock,
    ttl,
    recheckInterval,
    lockDuration,
    stalledInterval,
    warnings: warningsFor(options, lockDuration),
  });
}

/**
 * Throws unless each lease is renewed while it can be trusted. A large drift shortens this time to hardly half of the
 * lease.
 */
function checkLeases(
  { options: { maxTtl, driftFactor } }: Redlock,
  {
    ttl,
    lockDuration,
    lockRenewTime = lockDuration / 2,
  }: Pick<ResolvedExclusiveOptions, "ttl" | "lockDuration"> & { readonly lockRenewTime: number | undefined },
): void {
  if (ttl > maxTtl) throw new RangeError(`ttl must be <= maxTtl of redlock (${maxTtl}), got ${ttl}`);
  const longestMs = validityMs(lockDuration, driftFactor);
  if (lockRenewTime < longestMs) return;
  throw new RangeError(
    `lockRenewTime must be < lockDuration − drift of redlock (${longestMs}), got ${lockRenewTime}: the job would be lost before it is renewed`,
  );
}

/**
 * Returns BullMQ's part of the options, with the defaults above. `autorun` is false, because the worker starts its loop
 * only when its parts exist.
 */
export function bullOptions<Data, Name extends string>(
  options: ExclusiveWorkerOptions<Data, Name>,
  resolved: ResolvedExclusiveOptions,
): WorkerOptions {
  const { lockDuration, stalledInterval } = resolved;
  const own: readonly string[] = OWN.names;
  const bull = Object.fromEntries(Object.entries(options).filter(([name]) => !own.includes(name)));
  const connection = withSocketTimeout(options.connection);
  return { ...(bull as unknown as WorkerOptions), connection, lockDuration, stalledInterval, autorun: false };
}

/**
 * Returns the effective `onFailure`. With `"interrupt"` the key waits for a retry, which must not run after the newer
 * job.
 */
function onFailureOf(given: OnFailure | undefined, whenBusy: NonNullable<ExclusiveOptions["whenBusy"]>): OnFailure {
  if (whenBusy === "merge") return given ?? "block";
  if (whenBusy !== "interrupt") return given ?? "skip";
  if (given === "skip") {
    throw new RangeError(`onFailure must be "block" or "halt" where whenBusy is "${whenBusy}", got "skip"`);
  }
  return given ?? "block";
}

function lineRules(
  whenBusy: NonNullable<ExclusiveOptions["whenBusy"]>,
  { maxWaiting }: Pick<PerKey, "maxWaiting">,
): LineRules | undefined {
  if (whenBusy === "queue" || whenBusy === "merge") {
    if (whenBusy === "merge" && maxWaiting?.drop === "oldest") {
      throw new RangeError('perKey.maxWaiting.drop must be "newest" where whenBusy is "merge", got "oldest"');
    }
    return maxWaiting === undefined
      ? undefined
      : { max: maxWaiting.max, drop: maxWaiting.drop ?? "newest", as: "backlog" };
  }
  if (maxWaiting !== undefined) {
    throw new RangeError(`perKey.maxWaiting must be left out where whenBusy is "${whenBusy}", got ${maxWaiting.max}`);
  }
  if (whenBusy === "drop") return { max: 0, drop: "newest", as: "busy" };
  return { max: 1, drop: "oldest", as: "superseded", interrupts: whenBusy === "interrupt" || undefined };
}

/** Returns the weights in sorted order, so that workers with the same weights have the same scripts. */
function rotationOf(between: Between): LaneRules["rotate"] {
  if (between === "arrival") return undefined;
  const weights = between === "rotate" ? {} : between.rotate.weights;
  return { weights: Object.fromEntries(Object.entries(weights).sort(([a], [b]) => (a < b ? -1 : 1))) };
}

function mergeRules(
  whenBusy: NonNullable<ExclusiveOptions["whenBusy"]>,
  { batch }: Pick<PerKey, "batch">,
): LaneRules["merge"] {
  if (whenBusy === "merge") return BATCH.pick(batch ?? {});
  if (batch === undefined) return undefined;
  throw new RangeError(`whenBusy must be "merge" where perKey.batch is given, got "${whenBusy}"`);
}

/** Returns an option that may be left out, or else must match the schema. */
function unlessLeftOut<Value>(schema: { resolve(given: unknown, path: string): Value }): Option<Value | undefined> {
  const of = (name: string, given: unknown): Value | undefined =>
    given === undefined ? undefined : schema.resolve(given, name);
  return { rule: "an object", fallback: undefined, of };
}

/** Returns the fields of `key` if it is a path, and the function that computes a job's key. */
export function keyOptions(key: KeyOption<never, never>): {
  readonly path: readonly string[] | undefined;
  readonly keyOf: JobKeyFunction;
} {
  if (typeof key === "function") return { path: undefined, keyOf: key };
  const path = parsePath(key) ?? [];
  return { path, keyOf: ({ data }) => valueAt(data, path) };
}

function checkedResource(resource: (key: string) => unknown): (key: string) => string {
  return (key) => {
    const name: unknown = resource(key);
    if (typeof name !== "string") throw new TypeError(`resource must return a string, got ${show(name)}`);
    const fault = keyFault(name);
    if (fault !== undefined) throw new RangeError(`resource must return a usable name, but ${quote(name)} ${fault}`);
    return name;
  };
}

function warningsFor(options: ExclusiveWorkerOptions<never, never>, lockDuration: number): WorkerFinding[] {
  const found: WorkerFinding[] = [];
  const warn = (code: WorkerFindingCode, option: string, message: string): void => {
    found.push({ code, severity: "warning", subjects: [option], message });
  };
  const first = typeof options.key === "string" ? /^(data|job)\./.exec(options.key)?.[1] : undefined;
  if (first !== undefined) {
    const message = `key is "${String(options.key)}": a path begins in job.data, so this is the field ${first} of job.data`;
    warn("KEY_PATH", "key", message);
  }
  if (options.skipStalledCheck === true) {
    const message =
      "skipStalledCheck is true: this worker does not bring back jobs of killed workers, whose keys stay busy until another worker brings these jobs back";
    warn("NO_STALLED_CHECK", "skipStalledCheck", message);
  }
  if (options.skipLockRenewal === true) {
    const message = `skipLockRenewal is true: the signal of a job that runs for longer than lockDuration (${lockDuration}) aborts, and the job is run again, unless it calls job.extendLock`;
    warn("NO_LOCK_RENEWAL", "skipLockRenewal", message);
  }
  if (options.maxStalledCount === 0) {
    const message = "maxStalledCount is 0: the job that a killed worker was running fails instead of being run again";
    warn("NO_SECOND_RUN", "maxStalledCount", message);
  }
  return found;
}
