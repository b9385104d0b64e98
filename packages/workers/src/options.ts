/** Pure: the options that ExclusiveWorker adds to BullMQ's, their defaults, and the rules that all of them obey. */
import type { Redlock } from "@x/redlock-core";
import type { WorkerOptions } from "bullmq";
import type { LaneRules, OnFailure } from "./compose.ts";
import { keyFault, parsePath, valueAt } from "./entity-key.ts";
import type { StoredJob } from "./lane.ts";
import { refuseMisspelt } from "./misspelt.ts";

/** A path to fields of `job.data`, separated by dots, or a function of the stored job. */
export type KeyOption<Data, Name extends string> =
  | string
  | ((job: StoredJob<Data, Name>) => string | number | readonly (string | number)[] | null | undefined);

export interface ExclusiveOptions<Data = unknown, Name extends string = string> {
  /**
   * What the job is about: at most one job per key runs at a time, in the order in which they were added. A path such as
   * `"account.id"` into `job.data` (do not write `"data.account.id"`), or a function of the job as it is stored. A string, a safe
   * integer, or an array of at most 16 of them: then the job has all of these keys at once. `undefined` or `null`: no key, see
   * `withoutKey`. Anything else, and a function that throws, fails the job: it never means "no key". A key is fixed when a worker first
   * looks at the job, which may be hundreds of jobs before it runs: do not change the field later.
   */
  readonly key: KeyOption<Data, Name>;
  /**
   * Name of the lock for a key; plain code that locks the same name is excluded. A string is put before the key (`"account:"`);
   * a function makes the name, which costs a request of its own per job. Default: the key itself. Two different keys must
   * have two different names.
   */
  readonly resource?: string | ((key: string) => string) | undefined;
  /**
   * What a job without a key does: `"pass"` (default), it runs as in a plain worker; `"fail"`, it fails with a `JobKeyError`, so
   * that a misspelt path or a producer that forgot the field is noticed.
   */
  readonly withoutKey?: "pass" | "fail" | undefined;
  /** Where the locks live. Default: a Redlock on the queue's own Redis, closed with the worker; yours stays open. */
  readonly redlock?: Redlock | undefined;
  /**
   * What a failed job does to its key. `"skip"` (default): the key moves on while the job waits for its retry, as in plain BullMQ.
   * `"block"`: the key waits for the retry, so order is kept. `"halt"`: as block, and a job that failed for good stops its key
   * until `resumeKey`.
   */
  readonly onFailure?: OnFailure | undefined;
  /** Lease of a key's lock in ms; it is extended while the job runs. Default and largest: `lockDuration`. At least 50. */
  readonly lockTtl?: number | undefined;
  /**
   * How long a job waits in its slot for a lock that plain code holds, in ms, before it goes back to `delayed`. Default 100; at
   * least 0. It keeps its key there and is woken by the release.
   */
  readonly lockWait?: number | undefined;
  /**
   * When the first job in line for a key is judged again though nobody passed the key on, in ms; the n-th in line waits n times as
   * long, at most an hour. After jobs were removed by hand, their keys move on within three times this. Default 15000; at least 100.
   */
  readonly recheckInterval?: number | undefined;
}

/** BullMQ's options with these defaults, chosen so that a killed worker's keys move on within 20 s: lockDuration 10000, stalledInterval 5000. */
export type ExclusiveWorkerOptions<Data = unknown, Name extends string = string> = WorkerOptions &
  ExclusiveOptions<Data, Name>;

export interface ResolvedExclusiveOptions {
  readonly rules: LaneRules;
  readonly keyOf: (job: StoredJob<never, never>) => unknown;
  readonly resourceOf: (key: string) => string;
  /** What stands before the key in the name of its lock; undefined: only `resourceOf` knows. */
  readonly resourcePrefix: string | undefined;
  /** No lock's key on a node begins so: those that do are BullMQ's. */
  readonly reserved: string;
  readonly withoutKey: "pass" | "fail";
  readonly redlock: Redlock | undefined;
  readonly lockTtl: number;
  readonly lockWait: number;
  readonly recheckInterval: number;
  readonly lockDuration: number;
  readonly stalledInterval: number;
  /** Promises that these options weaken, in words. */
  readonly warnings: readonly string[];
}

/** A killed worker: its locks end within lockDuration, the next check but one of another worker brings its jobs back. */
const DEFAULT_LOCK_DURATION_MS = 10_000;
const DEFAULT_STALLED_INTERVAL_MS = 5_000;
/** Nobody waits for a job this far back in line; it is only there in case the lane's own keys were lost. */
const FAR_MS = 3_600_000;
const DAY_MS = 86_400_000;

const OWN_OPTIONS = [
  "key",
  "resource",
  "withoutKey",
  "redlock",
  "onFailure",
  "lockTtl",
  "lockWait",
  "recheckInterval",
] as const;

/** `queue`: its name. */
export function resolveOptions<Data, Name extends string>(
  queue: string,
  options: ExclusiveWorkerOptions<Data, Name>,
): ResolvedExclusiveOptions {
  if (typeof options !== "object" || options === null) {
    throw new TypeError(`options must be an object with connection and key, got ${describe(options)}`);
  }
  refuseMisspelt(options, OWN_OPTIONS);
  const lockDuration = integer("lockDuration", options.lockDuration ?? DEFAULT_LOCK_DURATION_MS, 100);
  const stalledInterval = integer("stalledInterval", options.stalledInterval ?? DEFAULT_STALLED_INTERVAL_MS, 1);
  const lockTtl = integer("lockTtl", options.lockTtl ?? lockDuration, 50);
  if (lockTtl > lockDuration) {
    throw new RangeError(
      `lockTtl must be <= lockDuration (${lockDuration}), got ${lockTtl}: a killed worker's key would stay locked after its job is free again`,
    );
  }
  const { lockRenewTime } = options;
  if (lockRenewTime !== undefined && integer("lockRenewTime", lockRenewTime, 1) > lockDuration / 2) {
    throw new RangeError(
      `lockRenewTime must be <= lockDuration / 2 (${lockDuration / 2}), got ${lockRenewTime}: one late renewal would lose the job`,
    );
  }
  const recheckInterval = integer("recheckInterval", options.recheckInterval ?? 15_000, 100);
  const onFailure = options.onFailure ?? "skip";
  if (!["skip", "block", "halt"].includes(onFailure)) {
    throw new RangeError(`onFailure must be "skip", "block" or "halt", got ${describe(onFailure)}`);
  }
  const withoutKey = options.withoutKey ?? "pass";
  if (!["pass", "fail"].includes(withoutKey)) {
    throw new RangeError(`withoutKey must be "pass" or "fail", got ${describe(withoutKey)}`);
  }
  const { path, keyOf } = resolveKey(options.key);
  const resource = resolveResource(options.resource);
  const { prefix = "bull" } = options;
  return Object.freeze({
    rules: { path, onFailure, nearMs: recheckInterval, farMs: Math.max(FAR_MS, recheckInterval) },
    keyOf,
    ...resource,
    // Entities may be named by strangers; a prefix of the user's own is only kept off this very queue.
    reserved: resource.resourcePrefix ? `${prefix}:${queue}:` : `${prefix}:`,
    withoutKey,
    redlock: resolveRedlock(options.redlock, lockTtl),
    lockTtl,
    lockWait: integer("lockWait", options.lockWait ?? 100, 0),
    recheckInterval,
    lockDuration,
    stalledInterval,
    warnings: warningsFor(options, lockDuration),
  });
}

/** BullMQ's part of the options, with the defaults above; it starts the worker itself only when everything is in place. */
export function bullOptions<Data, Name extends string>(
  options: ExclusiveWorkerOptions<Data, Name>,
  resolved: ResolvedExclusiveOptions,
): WorkerOptions {
  const { key: _key, resource: _resource, redlock: _redlock, onFailure: _onFailure, ...others } = options;
  const {
    lockTtl: _lockTtl,
    lockWait: _lockWait,
    recheckInterval: _interval,
    withoutKey: _withoutKey,
    ...bull
  } = others;
  return { ...bull, lockDuration: resolved.lockDuration, stalledInterval: resolved.stalledInterval, autorun: false };
}

function resolveKey(key: unknown): {
  readonly path: readonly string[] | undefined;
  readonly keyOf: ResolvedExclusiveOptions["keyOf"];
} {
  if (typeof key === "function") return { path: undefined, keyOf: key as (job: StoredJob<never, never>) => unknown };
  if (typeof key !== "string") throw new TypeError(`key must be a path or a function, got ${describe(key)}`);
  const path = parsePath(key);
  if (path === undefined) throw new RangeError(`key must be a path of fields such as "account.id", got "${key}"`);
  return { path, keyOf: ({ data }) => valueAt(data, path) };
}

function resolveResource(resource: unknown = ""): Pick<ResolvedExclusiveOptions, "resourceOf" | "resourcePrefix"> {
  if (typeof resource === "string") {
    const fault = resource === "" ? undefined : keyFault(resource);
    if (fault !== undefined) throw new RangeError(`resource ${fault}, got ${describe(resource)}`);
    return { resourcePrefix: resource, resourceOf: (key) => resource + key };
  }
  if (typeof resource !== "function") {
    throw new TypeError(`resource must be a string or a function, got ${describe(resource)}`);
  }
  const resourceOf = (key: string): string => {
    const name: unknown = (resource as (key: string) => unknown)(key);
    if (typeof name !== "string") throw new TypeError(`resource must return a string, got ${describe(name)}`);
    const fault = keyFault(name);
    if (fault !== undefined) throw new RangeError(`resource must return a usable name, but "${name}" ${fault}`);
    return name;
  };
  return { resourcePrefix: undefined, resourceOf };
}

function resolveRedlock(redlock: unknown, lockTtl: number): Redlock | undefined {
  if (redlock === undefined) return undefined;
  if (typeof (redlock as Redlock | null)?.acquire !== "function") {
    throw new TypeError(`redlock must be a Redlock of @x/redlock-core, got ${describe(redlock)}`);
  }
  const { maxTtl } = (redlock as Redlock).options;
  if (lockTtl > maxTtl) throw new RangeError(`lockTtl must be <= maxTtl of redlock (${maxTtl}), got ${lockTtl}`);
  return redlock as Redlock;
}

function warningsFor(options: ExclusiveWorkerOptions<never, never>, lockDuration: number): string[] {
  const warnings: string[] = [];
  if (typeof options.key === "string" && options.key.startsWith("data.")) {
    warnings.push(`key is "${options.key}": a path begins in job.data, so this is the field data of job.data`);
  }
  if (options.skipStalledCheck === true) {
    warnings.push(
      "skipStalledCheck is true: this worker brings back no jobs of killed workers, whose keys stay busy until another worker does",
    );
  }
  if (options.skipLockRenewal === true) {
    warnings.push(
      `skipLockRenewal is true: the signal of a job that runs for longer than lockDuration (${lockDuration}) aborts, and the job is run again, unless it calls job.extendLock`,
    );
  }
  if (options.maxStalledCount === 0) {
    warnings.push("maxStalledCount is 0: the job that a killed worker was running fails instead of being run again");
  }
  return warnings;
}

function integer(name: string, value: unknown, min: number): number {
  if (typeof value !== "number") throw new TypeError(`${name} must be a number, got ${describe(value)}`);
  if (!Number.isInteger(value) || value < min || value > DAY_MS) {
    throw new RangeError(`${name} must be an integer from ${min} to ${DAY_MS} (ms), got ${value}`);
  }
  return value;
}

export function describe(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value);
  if (value === null || value === undefined || typeof value === "number" || typeof value === "boolean")
    return String(value);
  return Array.isArray(value) ? "an array" : typeof value;
}
