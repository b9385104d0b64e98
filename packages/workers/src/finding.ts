/** Pure: what `ExclusiveWorker.check` may find. */
import type { Finding } from "@x/redlock-core";

export type WorkerFindingCode =
  /**
   * The subjects run without having their key: somebody took them who knows no keys. They are jobs by their ids, at
   * most 100.
   */
  | "PLAIN_WORKER"
  /** The subjects have another `key`. They are other workers of the queue, as `host:pid`. */
  | "OTHER_KEY"
  /** The subjects, other workers, have other names of locks, or another number of nodes for them. */
  | "OTHER_LOCKS"
  /** The subjects, other workers, have another `onFailure`. */
  | "OTHER_ON_FAILURE"
  /** The subjects, other workers, have another `perKey`, `between` or `whenBusy`. */
  | "OTHER_PER_KEY"
  /** The queue, the subject, is divided into other partitions than this process has. */
  | "OTHER_PARTITIONS"
  /** The option `key` looks as if its path was meant to begin in the job; it begins in `job.data`. */
  | "KEY_PATH"
  /** The option `skipStalledCheck` weakens a promise, as the message says. */
  | "NO_STALLED_CHECK"
  /** The option `skipLockRenewal` weakens a promise, as the message says. */
  | "NO_LOCK_RENEWAL"
  /** The option `maxStalledCount: 0` weakens a promise, as the message says. */
  | "NO_SECOND_RUN";

export type WorkerFinding = Finding<WorkerFindingCode>;
