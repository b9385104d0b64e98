import type { Batch } from "./rules/batch.ts";

/**
 * What a processor is given as its fourth argument: the locks of its job's keys.
 *
 * Guaranteed: `isHeld()`, `remaining()` and `assertHeld()` read the clocks when asked. They look at both leases: that
 * of the keys' lock and that of BullMQ's lock of the job. Not guaranteed: that code which does not check stops in time.
 * Give `fencingToken` to whatever the job writes to, and let that refuse smaller ones.
 */
// oxlint-disable-next-line typescript/no-explicit-any -- BullMQ's own defaults
export interface JobLock<Data = any, Result = any, Name extends string = string> {
  /** The job's keys; empty if it has none. */
  readonly keys: readonly string[];
  /** The names of their locks, in the order of `keys`. */
  readonly resources: readonly string[];
  /**
   * The number is strictly greater than that of every earlier holder of each of the keys' locks. It is 0 if the job has
   * no key, so that a fenced store refuses it.
   */
  readonly fencingToken: number;
  /** The processor's `signal`: aborts when the job is cancelled, or a lock is lost. */
  readonly signal: AbortSignal;
  /**
   * Milliseconds for which both the keys' lock and BullMQ's lock of the job may be trusted. It is Infinity for a job
   * without a key that is still ours.
   */
  remaining(): number;
  isHeld(): boolean;
  /** Throws `LockLostError` or `JobLockLostError` unless both are held for `minRemaining` ms (default 0) more. */
  assertHeld(minRemaining?: number): void;
  /**
   * Leaves the job's keys alone for `ms` (1 to 86400000): the other side has said "not now", for instance with a 429.
   * It throws BullMQ's `DelayedError`, which the processor must let through.
   *
   * When the processor has rejected, the job goes back to the head of its keys' lines, and no attempt is counted. No
   * job of these keys starts before `ms` have passed, in any process; `resumeKey` ends that earlier. A job without a
   * key only waits. If the processor resolves nevertheless, the job is completed, and nothing waits.
   */
  backOff(ms: number): never;
  /** The jobs that this call is for: with `whenBusy: "merge"` all that waited, otherwise the processor's job alone. */
  readonly batch: Batch<Data, Result, Name>;
}
