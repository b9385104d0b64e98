/** Pure: what `ExclusiveWorker.check` may find. */
import type { Finding } from "@x/redlock-core";

export type WorkerFindingCode =
  /** The subjects, at most 100 jobs by their ids, run without having their key: somebody took them who knows no keys. */
  | "PLAIN_WORKER"
  /** The subjects, other workers of the queue as `host:pid`, have another `key`. */
  | "OTHER_KEY"
  /** The same, with other names of locks, or another number of nodes for them. */
  | "OTHER_LOCKS"
  /** The same, with another `onFailure`. */
  | "OTHER_ON_FAILURE"
  /** The option `key` looks as if it were meant to begin in the job: it begins in `job.data`. */
  | "KEY_PATH"
  /** The option `skipStalledCheck` weakens a promise, as the message says. */
  | "NO_STALLED_CHECK"
  /** The option `skipLockRenewal` does. */
  | "NO_LOCK_RENEWAL"
  /** The option `maxStalledCount: 0` does. */
  | "NO_SECOND_RUN";

export type WorkerFinding = Finding<WorkerFindingCode>;
