/**
 * The locks of keys, which exclude other queues and plain code. There are two strategies: `RedlockLocks` asks the nodes
 * of a `Redlock`, and `ScriptLocks` lets the lane's scripts take and release a lock with its job.
 *
 * A run does not know which of them it has (see run-locks.ts), nor does the lane, which knows `LaneLocks`.
 */
import type { Lock } from "@x/redlock-core";
import type { Run } from "../job-run/run.ts";
import type { EarlyStart } from "../lane/early-start.ts";
import type { LaneLocks } from "../lane/lane.ts";
import type { TakenJob } from "../lane/taken-job.ts";

export interface KeyLocks extends LaneLocks {
  /** Returns the lock that a script has taken with the job, once. It is undefined if none did, or its lease is over. */
  claim(taken: TakenJob): Lock | undefined;
  /** Acquires the locks of the run's keys by requests, or rejects as `acquire` of a `Redlock`. */
  acquire(run: Run, signal: AbortSignal | undefined): Promise<Lock>;
  /** Returns the run's place in line for its locks. It is asked for anew each time. */
  orderOf(run: Run): number;
  /**
   * Releases the lock of a run that has succeeded, when BullMQ is about to be told that its job has ended. Resolves as
   * `lock.release()` does.
   */
  releaseWithEnd(run: Run, lock: Lock, taken: TakenJob): Promise<boolean>;
  /** Begins the next run of the key when BullMQ is told that this job has completed, or declines that at once. */
  startWithEnd(taken: TakenJob, next: EarlyStart): void;
  /** Notes a fencing token that a script reserved, and that is used now. */
  reserved(fencingToken: number): void;
  /**
   * Lets no script take a lock from now on: jobs are fetched by hand, so nobody would claim it, or the worker is
   * closed.
   */
  stop(): void;
}
