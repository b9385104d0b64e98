import type { Batch } from "./rules/batch.ts";

/**
 * The fourth argument of a processor: the locks of its job's keys.
 *
 * Guaranteed: `isHeld()`, `remaining()` and `assertHeld()` read the clocks in each call. The methods consider the lease
 * of the keys' lock and the lease of BullMQ's lock of the job. Not guaranteed: that code without these checks stops in
 * time. Pass `fencingToken` to every store that the job writes to, and let the store reject smaller numbers.
 */
// oxlint-disable-next-line typescript/no-explicit-any -- BullMQ's own defaults
export interface JobLock<Data = any, Result = any, Name extends string = string> {
  /** The job's keys. Empty if the job has none. */
  readonly keys: readonly string[];
  /** Names of the keys' locks, in the order of `keys`. */
  readonly resources: readonly string[];
  /**
   * A number that is strictly greater than the fencing token of every earlier holder of any of the keys' locks. A job
   * without a key has 0, which a fenced store rejects.
   */
  readonly fencingToken: number;
  /**
   * Aborts when the job is cancelled, when a newer job interrupts it, or when a lock is lost. Also passed to the
   * processor as its third argument.
   */
  readonly signal: AbortSignal;
  /**
   * Returns the number of milliseconds for which both the keys' lock and BullMQ's lock of the job can be trusted.
   * Returns Infinity for a job without a key as long as the job belongs to this worker.
   */
  remaining(): number;
  isHeld(): boolean;
  /**
   * Throws `LockLostError` or `JobLockLostError` unless both locks are held for at least `minRemaining` ms (default 0)
   * more.
   */
  assertHeld(minRemaining?: number): void;
  /**
   * Postpones all jobs of this job's keys by `ms` (1 to 86400000), for instance because a service has answered with
   * status 429. Throws BullMQ's `DelayedError`, which the processor must not catch.
   *
   * Once the processor has rejected, the job returns to the head of its keys' lines, and no attempt is counted. Until
   * `ms` have passed, no process starts a job with one of these keys, unless `resumeKey` ends the wait. A job without a
   * key only waits itself. If the processor resolves anyway, the job is completed and nothing is postponed.
   */
  backOff(ms: number): never;
  /**
   * The jobs that this call handles. With `whenBusy: "merge"`, these are the processor's own job and the jobs in line,
   * up to `perKey.batch.size` jobs. Otherwise only the processor's own job.
   */
  readonly batch: Batch<Data, Result, Name>;
}
