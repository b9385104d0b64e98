/**
 * Pure: the errors of this package. Each decision that a caller can make has its own class, with a stable `code` and
 * plain data.
 */
import type { Finding } from "@x/redlock-core";
import { UnrecoverableError } from "./bullmq/public.ts";
import { supportedReleases } from "./bullmq/rules/script-sets.ts";
import type { Cancellation } from "./rules/entity-key.ts";

export type ExclusiveWorkerErrorCode =
  | "UNSUPPORTED_BULLMQ"
  | "JOB_KEY"
  | "KEY_BACKLOG"
  | "SUPERSEDED"
  | "JOB_CANCELLED"
  | "JOB_LOCK_LOST"
  | "NOT_A_LOCK"
  | "LANE"
  | "WORKER_MISMATCH"
  | "DIVISION_MISMATCH"
  | "EXCLUSION_REFUSED"
  | "QUEUE_UNREACHABLE";

/**
 * Base class of all errors of this package. Exceptions: invalid options throw `TypeError` or `RangeError`,
 * `JobCancelledError` extends a class of BullMQ, and `@x/redlock-core` has its own errors.
 */
export abstract class ExclusiveWorkerError extends Error {
  abstract readonly code: ExclusiveWorkerErrorCode;

  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** Script texts of BullMQ that this package has not been tested with. */
export interface UnknownTexts {
  /** Value of the option `acceptScripts` that accepts these texts. */
  readonly fingerprint: string;
  /** Names of the scripts whose texts differ from the nearest known release. */
  readonly scripts: readonly string[];
  /** The newest release with the most similar known texts. */
  readonly nearest: string;
}

/**
 * This package does not know the scripts of the installed BullMQ, or the release is known to be broken. The constructor
 * throws this error before anything is sent.
 */
export class UnsupportedBullMQError extends ExclusiveWorkerError {
  readonly code = "UNSUPPORTED_BULLMQ" as const;
  /** The differences, for instance the names of scripts. */
  readonly differences: readonly string[];
  /** Facts of the installed scripts if only their texts are unknown. Undefined if more is missing. */
  readonly texts: UnknownTexts | undefined;

  constructor(differences: readonly string[], texts?: UnknownTexts) {
    super(
      `this BullMQ is not supported by @x/workers (${differences.join("; ")}): install BullMQ ${supportedReleases()}, ` +
        `or a newer @x/workers${texts === undefined ? "" : ', or test the installed one with "npx @x/console bullmq"'}; ` +
        "running with an unknown version could lose the order or the exclusion of jobs",
    );
    this.differences = differences;
    this.texts = texts;
  }
}

/**
 * The job's key cannot be used. The job fails before the processor is called, and is retried according to its options.
 */
export class JobKeyError extends ExclusiveWorkerError {
  readonly code = "JOB_KEY" as const;
  readonly jobId: string;

  constructor(jobId: string, fault: string) {
    super(`job ${jobId}: its key ${fault}`);
    this.jobId = jobId;
  }
}

/**
 * An `error` event: other data is stored where the lock of a job's key should be. The data never expires or has another
 * type, so it is not a lock.
 *
 * The job does not fail. The job waits until the Redis key with this data is gone. Use names that only locks have
 * (`resource`).
 */
export class NotALockError extends ExclusiveWorkerError {
  readonly code = "NOT_A_LOCK" as const;
  readonly jobId: string;

  constructor(
    jobId: string,
    resources: readonly string[],
    { node, error }: { readonly node: string; readonly error?: string | undefined },
  ) {
    const what =
      error === undefined ? "a key of this name never expires" : `a key of this lock has another type (${error})`;
    super(
      `job ${jobId} waits for the lock ${resources.map((name) => JSON.stringify(name)).join(", ")}, but on ${node} ${what}: ` +
        "this is not a lock. Give the locks of keys their own names with the option resource",
    );
    this.jobId = jobId;
  }
}

/**
 * An `error` event: the queue's Redis rejected a command of the lane, for instance because of missing rights. No job
 * fails because of this.
 *
 * A job that could not be judged waits for `recheckInterval`. A key that could not be passed on is passed on when a
 * script next looks at the key.
 */
export class LaneError extends ExclusiveWorkerError {
  readonly code = "LANE" as const;

  constructor(queue: string, fault: string) {
    super(
      `queue ${queue}: a job could not be judged or its key could not be passed on, which is repeated later: ${fault}`,
    );
  }
}

/** Code of a finding of `ExclusiveWorker.check`. */
export type WorkerFindingCode =
  /**
   * The subjects run without their key, because a plain worker has taken them. The subjects are job IDs, at most 100.
   */
  | "PLAIN_WORKER"
  /** The subjects have another `key`. The subjects are other workers of the queue, as `host:pid`. */
  | "OTHER_KEY"
  /** The subjects, other workers, use other names for the locks, or another number of lock nodes. */
  | "OTHER_LOCKS"
  /** The subjects, other workers, have another `onFailure`. */
  | "OTHER_ON_FAILURE"
  /** The subjects, other workers, have another `perKey`, `between` or `whenBusy`. */
  | "OTHER_PER_KEY"
  /** The subject, a queue, is only watched: its jobs may overlap (`setExclusion`). */
  | "WATCHED"
  /** The subject, a queue, is divided into other partitions than this process expects. */
  | "OTHER_PARTITIONS"
  /** The option `key` looks like a path that begins in the job. In fact every path begins in `job.data`. */
  | "KEY_PATH"
  /** The option `skipStalledCheck` weakens a promise. The message names the promise. */
  | "NO_STALLED_CHECK"
  /** The option `skipLockRenewal` weakens a promise. The message names the promise. */
  | "NO_LOCK_RENEWAL"
  /** The option `maxStalledCount: 0` weakens a promise. The message names the promise. */
  | "NO_SECOND_RUN"
  /** The option `acceptScripts` accepts the texts of the subjects, scripts of BullMQ that are not known. */
  | "UNTESTED_BULLMQ";

export type WorkerFinding = Finding<WorkerFindingCode>;

/**
 * An `error` event: workers of the queue have different options, so jobs of one key may run at the same time. Emitted
 * once for each finding of `ExclusiveWorker.check`.
 */
export class WorkerMismatchError extends ExclusiveWorkerError {
  readonly code = "WORKER_MISMATCH" as const;
  readonly finding: WorkerFinding;

  constructor(queue: string, finding: WorkerFinding) {
    super(`queue ${queue}: ${finding.message}`);
    this.finding = finding;
  }
}

/**
 * The queue is divided in another way than this process expects, or is being moved to another division. The message
 * says what to do.
 *
 * `add` and `moveFrom` of a `PartitionedQueue` reject with this error and have added or moved nothing. A
 * `PartitionedWorker` runs no job, and emits this error as an `error` event.
 */
export class DivisionMismatchError extends ExclusiveWorkerError {
  readonly code = "DIVISION_MISMATCH" as const;
  readonly finding: WorkerFinding;

  constructor(queue: string, message: string) {
    super(`queue ${queue}: ${message}`);
    this.finding = { code: "OTHER_PARTITIONS", severity: "error", subjects: [queue], message };
  }
}

/**
 * `setExclusion` has changed nothing, because a worker of the queue would not follow the change. Repeat the call when
 * the `obstacles` are gone, or pass `force`.
 */
export class ExclusionRefusedError extends ExclusiveWorkerError {
  readonly code = "EXCLUSION_REFUSED" as const;
  /** The reasons, one sentence each. */
  readonly obstacles: readonly string[];

  constructor(queue: string, mode: "on" | "watch", obstacles: readonly string[]) {
    super(`queue ${queue}: its exclusion was not changed to "${mode}": ${obstacles.join("; ")}`);
    this.obstacles = obstacles;
  }
}

/**
 * The queue's Redis has not answered for 30 s.
 *
 * The operators' methods of an `ExclusiveQueue`, such as `check`, reject with this error. The call may still take
 * effect. `close()` of a worker emits this error and resolves without Redis. The running jobs are then run again by
 * another worker.
 */
export class QueueUnreachableError extends ExclusiveWorkerError {
  readonly code = "QUEUE_UNREACHABLE" as const;

  constructor(queue: string, consequence: string) {
    super(`queue ${queue}: its Redis has not answered for ${UNREACHABLE_MS / 1_000} s, ${consequence}`);
  }
}

/** How long the queue's Redis may leave a call of an operator or the close of a worker without an answer, in ms. */
export const UNREACHABLE_MS = 30_000;

/**
 * The line of the job's key is full (`perKey.maxWaiting`). The job fails before the processor is called, and is retried
 * according to its options.
 */
export class KeyBacklogError extends ExclusiveWorkerError {
  readonly code = "KEY_BACKLOG" as const;
  readonly jobId: string;
  readonly key: string;

  constructor(jobId: string, key: string) {
    super(`job ${jobId}: the line of key ${JSON.stringify(key)} is full (perKey.maxWaiting)`);
    this.jobId = jobId;
    this.key = key;
  }
}

/**
 * A newer job with one of the same keys is waiting, and `whenBusy` is `"interrupt"`. This error is the reason with
 * which the processor's `signal` aborts.
 *
 * The job does not run again. If its processor rejects, the job completes as interrupted. If the processor resolves,
 * the job completes as usual.
 */
export class SupersededError extends ExclusiveWorkerError {
  readonly code = "SUPERSEDED" as const;
  readonly jobId: string;
  readonly key: string;
  /** ID of the newer job. */
  readonly by: string;

  constructor(jobId: string, key: string, by: string) {
    super(`job ${jobId}: the newer job ${by} waits for key ${JSON.stringify(key)}`);
    this.jobId = jobId;
    this.key = key;
    this.by = by;
  }
}

/**
 * The job was cancelled with `cancel` or `cancelKey` of an `ExclusiveQueue`. This error is the reason with which the
 * processor's `signal` aborts, and the reason of the job's failure.
 *
 * The job is not retried. If the processor rejects after the signal has aborted, `cause` is the processor's error. If
 * the processor resolves, its return value is not recorded. For a job that was fetched by hand, the methods that
 * complete or move the job reject with this error.
 */
export class JobCancelledError extends UnrecoverableError implements Cancellation {
  readonly code = "JOB_CANCELLED" as const;
  readonly jobId: string;
  readonly reason: string;
  readonly by: string;
  readonly atMs: number;

  constructor(jobId: string, { reason, by, atMs }: Cancellation, cause?: unknown) {
    // BullMQ repeats a refused completion without a limit if the error's message has this word.
    super(`job ${jobId} was cancelled by ${by}: ${reason.replaceAll("ECONNREFUSED", "ECONN-REFUSED")}`);
    this.jobId = jobId;
    this.reason = reason;
    this.by = by;
    this.atMs = atMs;
    if (cause !== undefined) this.cause = cause;
  }
}

/**
 * BullMQ's lock of this job has expired or was taken over, so the job runs elsewhere or will do so. The return value of
 * the processor is not recorded.
 *
 * This error is the reason with which the processor's `signal` aborts. `assertHeld(minRemaining)` also throws it if the
 * lock is held for less than `minRemaining` ms.
 */
export class JobLockLostError extends ExclusiveWorkerError {
  readonly code = "JOB_LOCK_LOST" as const;
  readonly jobId: string;

  constructor(
    jobId: string,
    facts: {
      readonly sinceRenewalMs: number;
      readonly lockDurationMs: number;
      readonly leftMs: number;
      readonly neededMs: number;
    },
  ) {
    const { sinceRenewalMs, lockDurationMs, leftMs, neededMs } = facts;
    const what = leftMs > 0 && neededMs > leftMs ? `has ${Math.round(leftMs)} ms left, ${neededMs} needed` : "is lost";
    super(
      `job ${jobId}: BullMQ's lock ${what}, last renewed ${Math.round(sinceRenewalMs)} ms ago, lockDuration ${lockDurationMs}`,
    );
    this.jobId = jobId;
  }
}
