/** Pure: the options that ExclusiveWorker adds to BullMQ's, their defaults, and the rules that all of them obey. */
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
  redlock,
  Schema,
  type ShapeOf,
  show,
  text,
  validityMs,
} from "@x/redlock-core/protocol";
import type { WorkerOptions } from "./bullmq/public.ts";
import type { KeyRate, LaneRules, LineRules, OnFailure } from "./bullmq/rules/compose.ts";
import type { WorkerFinding, WorkerFindingCode } from "./errors.ts";
import type { StoredJob } from "./lane/lane.ts";
import { type KeyPath, keyFault, MAX_KEY_BYTES, parsePath, valueAt } from "./rules/entity-key.ts";

/** A path to fields of `job.data`, separated by dots, or a function of the stored job. */
export type KeyOption<Data, Name extends string> =
  | KeyPath<NoInfer<Data>>
  | ((job: StoredJob<Data, Name>) => string | number | readonly (string | number)[] | null | undefined);

/** What holds for each key by itself. */
export interface PerKey {
  /**
   * At most so many jobs of a key (1 to 100) run at a time, over all workers and processes. Default 1.
   *
   * They start in order and end in any. Each has a slot of the key, with a lock and fencing tokens of its own. Plain
   * code that takes the key's lock keeps out only the job in the first slot. More than 1 needs `onFailure: "skip"`.
   */
  readonly concurrency?: number | undefined;
  /**
   * At most `max` (1 to 10000) jobs of a key start in any `duration` ms (1 to a day), over all workers and processes.
   * Default: any number.
   *
   * They may start in a burst. A job that may not start yet is parked until it may, and holds up no other key.
   */
  readonly rate?: KeyRate | undefined;
  /**
   * At most `max` (1 to 1000000) jobs wait for a key. Default: any number.
   *
   * When one more comes, a job fails with `KeyBacklogError` before the processor is called. It is the one that has come
   * (`drop: "newest"`, the default), or the first in line (`"oldest"`).
   */
  readonly maxWaiting?: MaxWaiting | undefined;
  /**
   * With `whenBusy: "merge"`: at most `size` jobs (1 to 1000, default 100) are given to a call. Where fewer wait, it
   * waits for more in its slot, for `wait` ms (0 to an hour, default 0).
   */
  readonly batch?: BatchSize | undefined;
}

/** Which key is next where several have jobs that wait. */
export type Between =
  | "arrival"
  | "rotate"
  | { readonly rotate: { readonly weights: Readonly<Record<string, number>> } };

/** How many jobs one call of the processor is given; see `PerKey`. */
export interface BatchSize {
  /** The most jobs of one call, from 1 to 1000. Default 100. */
  readonly size?: number | undefined;
  /** How long a call waits in its slot for more jobs, in ms; from 0 to an hour. Default 0. */
  readonly wait?: number | undefined;
}

/** How many jobs may wait for a key; see `PerKey`. */
export interface MaxWaiting {
  /** The most jobs that wait, from 1 to 1000000. */
  readonly max: number;
  /** Which job fails when one more comes: it, or the first in line (`"oldest"`). Default "newest". */
  readonly drop?: "newest" | "oldest" | undefined;
}

export interface ExclusiveOptions<Data = unknown, Name extends string = string> {
  /**
   * What the job is about. At most one job per key runs at a time, in the order in which they were added.
   *
   * It is a path such as `"account.id"` into `job.data` (do not write `"data.account.id"`), or a function of the job as
   * it is stored. It leads to one of these:
   * - A string or a safe integer: the job has this key.
   * - An array of at most 16 of them: the job has all of these keys at once.
   * - `undefined` or `null`: the job has no key, see `withoutKey`.
   *
   * Anything else, and a function that throws, fails the job: it never means "no key". A key is fixed when a worker
   * first looks at the job, which may be hundreds of jobs before it runs. Do not change the field later.
   */
  readonly key: KeyOption<Data, Name>;
  /**
   * The name of the lock for a key; plain code that locks the same name is excluded. Default: the key itself.
   *
   * A string is put before the key (`"account:"`). A function makes the name, which costs a request of its own per job.
   * Two different keys must have two different names.
   */
  readonly resource?: string | ((key: string) => string) | undefined;
  /**
   * What a job without a key does.
   *
   * - `"pass"` (default): it runs as in a plain worker.
   * - `"fail"`: it fails with a `JobKeyError`, so that a misspelt path or a producer that forgot the field is
   *   noticed.
   */
  readonly withoutKey?: "pass" | "fail" | undefined;
  /**
   * The `Redlock` that has the locks. Default: one on the queue's own Redis, which is closed with the worker. Yours
   * stays open.
   */
  readonly redlock?: Redlock | undefined;
  /**
   * What a failed job does to its key.
   *
   * - `"skip"` (default): the key moves on while the job waits for its retry, as in plain BullMQ.
   * - `"block"`: the key waits for the retry, so order is kept.
   * - `"halt"`: the key waits for the retry, and a job that failed for good stops its key until `resumeKey`.
   *
   * With `whenBusy` `"interrupt"` or `"merge"` the default is `"block"`; with `"interrupt"`, `"skip"` is refused.
   */
  readonly onFailure?: OnFailure | undefined;
  /**
   * What a job does whose key another job has, or whose key is paused or limited.
   *
   * - `"queue"` (default): it waits in line.
   * - `"latest"`: it waits, and the one that waited before it is completed without a run; its return value is a
   *   `NotRun`.
   * - `"interrupt"`: as `"latest"`, and the `signal` of the job that runs aborts with a `SupersededError`. That job is
   *   not run again: if it rejects, it is completed with a `NotRun`.
   * - `"merge"`: it waits in line, and the next call is given all that wait, as `lock.batch`.
   * - `"drop"`: it is completed without a run; its return value is a `NotRun`.
   */
  readonly whenBusy?: "queue" | "latest" | "interrupt" | "merge" | "drop" | undefined;
  /**
   * Which key is next where several have jobs that wait. All workers of a queue must have the same.
   *
   * - `"arrival"` (default): the one whose job came first. A key that has a line keeps its slot until that is empty.
   * - `"rotate"`: each in turn. While a key waits for its turn, no other key starts more than one job.
   * - `{ rotate: { weights } }`: as `"rotate"`, and the turn of a key has as many starts as its weight says (1 to 100,
   *   at most 100 keys). All others have one.
   *
   * Both are refused with `whenBusy: "drop"`, because no job waits then.
   */
  readonly between?: Between | undefined;
  /** Limits for each key. All workers of a queue must have the same. */
  readonly perKey?: PerKey | undefined;
  /**
   * The lease of a key's lock in ms, which is extended while the job runs. Default and largest: `lockDuration`. At
   * least 50.
   */
  readonly ttl?: number | undefined;
  /**
   * How long a job waits in its slot for a lock that plain code holds, in ms, before it goes back to `delayed`. It
   * keeps its key there, and is woken by the release. Default 100; at least 0.
   */
  readonly timeout?: number | undefined;
  /**
   * What becomes of `using` of the worker's `Redlock`, in a processor, for a key that its job has.
   *
   * - `"wait"` (default): it waits for the job around it, as any other caller, until its `timeout`.
   * - `"refuse"`: it rejects with a `ReentrancyError` at once.
   * - `"join"`: it runs under the lock of the job, which has its key until the call has ended.
   *
   * The last two follow each processor by its asynchronous context. On Node.js 20 and 22, that costs some 10 % of the
   * CPU time of a job that does nothing. A processor in a file of its own is not followed.
   */
  readonly reentrancy?: Reentrancy | undefined;
  /**
   * When the first job in line for a key is judged again though nobody passed the key on, in ms. The n-th in line waits
   * n times as long, at most an hour. Default 15000; at least 100.
   *
   * After jobs were removed by hand, their keys move on within three times this. Both take longer where thousands of
   * keys are busy.
   */
  readonly recheckInterval?: number | undefined;
}

/**
 * BullMQ's options, with defaults by which a killed worker's keys move on within 15 s and a moment: lockDuration 10000,
 * stalledInterval 5000.
 */
export type ExclusiveWorkerOptions<Data = unknown, Name extends string = string> = WorkerOptions &
  ExclusiveOptions<Data, Name>;

type KeyFunction = (job: StoredJob<never, never>) => unknown;

/** Options whose values in force are as they are given, or a default. */
type InForce = Pick<
  ExclusiveWorkerOptions,
  "withoutKey" | "ttl" | "timeout" | "reentrancy" | "recheckInterval" | "lockDuration" | "stalledInterval"
>;

export interface ResolvedExclusiveOptions extends Readonly<{ [Name in keyof InForce]-?: NonNullable<InForce[Name]> }> {
  readonly rules: LaneRules;
  readonly keyOf: KeyFunction;
  readonly resourceOf: (key: string) => string;
  /** The text before the key in the name of its lock. It is undefined if only `resourceOf` knows the name. */
  readonly resourcePrefix: string | undefined;
  /** No lock's key on a node begins with this text; those that do are BullMQ's. */
  readonly reserved: string;
  readonly redlock: Redlock | undefined;
  /** The promises that these options weaken. */
  readonly warnings: readonly WorkerFinding[];
}

/** Nobody waits for a job this far back in line. It is only there in case the lane's own keys were lost. */
const FAR_MS = 3_600_000;
/** Whoever asks for a key whose slots are all taken looks at each of them: some 2 µs each. */
export const MOST_SLOTS = 100;

/** Returns the check of a text that has to be usable, or a function. */
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
  concurrency: integer({ min: 1, max: MOST_SLOTS, unit: "" }).default(1),
  rate: RATE,
  maxWaiting: MAX_WAITING,
  batch: unlessLeftOut(BATCH),
} satisfies ShapeOf<PerKey>);

/** Weights are written into each script. */
const MOST_WEIGHTS = 100;
export const MOST_STARTS = 100;

function faultOfWeights(between: unknown): "type" | "range" | undefined {
  const { rotate, ...others } = between as { readonly rotate?: { readonly weights?: object } };
  const { weights, ...further } = rotate ?? {};
  const isRecord = Object.prototype.toString.call(weights) === "[object Object]";
  if (!isRecord || Object.keys({ ...others, ...further }).length > 0) return "type";
  const entries = Object.entries(weights ?? {});
  const isUsable = entries.every(
    ([key, weight]) => keyFault(key) === undefined && Number.isInteger(weight) && weight >= 1 && weight <= MOST_STARTS,
  );
  return isUsable && entries.length <= MOST_WEIGHTS ? undefined : "range";
}

const BETWEEN = new Check<Between>({
  rule: `"arrival", "rotate", or { rotate: { weights } } with integers from 1 to ${MOST_STARTS} for at most ${MOST_WEIGHTS} keys`,
  faultOf: (between) => {
    if (typeof between === "string") return between === "arrival" || between === "rotate" ? undefined : "range";
    return faultOfWeights(between);
  },
});

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
  recheckInterval: integer({ min: 100, max: DAY_MS }).default(15_000),
} satisfies ShapeOf<ExclusiveOptions<never, never>>);

/** These are options of BullMQ whose values are needed here, or whose promises are stronger here. */
const BULL = new Schema({
  // The next check of another worker, or the one after it, brings back the jobs of a killed one.
  lockDuration: integer({ min: 100, max: DAY_MS }).default(10_000),
  stalledInterval: integer({ min: 1, max: DAY_MS }).default(5_000),
  lockRenewTime: integer({ min: 1, max: DAY_MS }).optional(),
  prefix: text({ min: 1 }).default("bull"),
});

/**
 * Reads each of the caller's options once. BullMQ ignores names that it does not know, and one that was meant to be
 * ours must not be lost so.
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

/** Resolves the options, which `readOptions` has read, for the queue of this name. */
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
      `perKey.concurrency must be 1 with onFailure ${quote(onFailure)}, got ${perKey.concurrency}: others of the key would pass the job that waits for its retry`,
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
    resourceOf: typeof resource === "string" ? (name: string): string => resource + name : namedBy(resource),
    // Entities may be named by strangers; a prefix of the user's own is only kept off this very queue.
    reserved: resourcePrefix ? `${prefix}:${queue}:` : `${prefix}:`,
    redlock,
    ttl,
    recheckInterval,
    lockDuration,
    stalledInterval,
    warnings: warningsFor(options, lockDuration),
  });
}

/** Throws unless a lease is renewed while it is trusted. A large drift leaves hardly half of its time. */
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
 * Returns BullMQ's part of the options, with the defaults above. The worker is started here only when everything is in
 * place.
 */
export function bullOptions<Data, Name extends string>(
  options: ExclusiveWorkerOptions<Data, Name>,
  resolved: ResolvedExclusiveOptions,
): WorkerOptions {
  const { lockDuration, stalledInterval } = resolved;
  const own: readonly string[] = OWN.names;
  const bull = Object.fromEntries(Object.entries(options).filter(([name]) => !own.includes(name)));
  return { ...(bull as unknown as WorkerOptions), lockDuration, stalledInterval, autorun: false };
}

/** Returns what a failure does. A retry must not come after the job that has superseded it, so its key waits for it. */
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

/** Returns the weights sorted, so that workers with the same weights have the same scripts. */
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

/** Returns an option that has all members of a schema, or is left out. */
function unlessLeftOut<Value>(schema: { resolve(given: unknown, path: string): Value }): Option<Value | undefined> {
  const of = (name: string, given: unknown): Value | undefined =>
    given === undefined ? undefined : schema.resolve(given, name);
  return { rule: "an object", fallback: undefined, of };
}

/** Returns the path of a key that is one, and the function that finds the key of a job. */
export function keyOptions(key: KeyOption<never, never>): {
  readonly path: readonly string[] | undefined;
  readonly keyOf: KeyFunction;
} {
  if (typeof key === "function") return { path: undefined, keyOf: key };
  const path = parsePath(key) ?? [];
  return { path, keyOf: ({ data }) => valueAt(data, path) };
}

function namedBy(resource: (key: string) => unknown): (key: string) => string {
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
      "skipStalledCheck is true: this worker brings back no jobs of killed workers, whose keys stay busy until another worker does";
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
