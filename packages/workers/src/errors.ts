/**
 * Pure: what can go wrong. There is one class per decision that a caller can make, with a stable `code` and plain data.
 */
import type { Finding } from "@x/redlock-core";
import { plainError } from "@x/redlock-core/protocol";

export type ExclusiveWorkerErrorCode =
  | "UNSUPPORTED_BULLMQ"
  | "JOB_KEY"
  | "KEY_BACKLOG"
  | "SUPERSEDED"
  | "JOB_LOCK_LOST"
  | "NOT_A_LOCK"
  | "LANE"
  | "WORKER_MISMATCH"
  | "DIVISION_MISMATCH";

/**
 * The base of every error of this package, except `TypeError` and `RangeError` for options, and the errors of
 * `@x/redlock-core`.
 */
export abstract class ExclusiveWorkerError extends Error {
  abstract readonly code: ExclusiveWorkerErrorCode;

  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/**
 * The installed BullMQ is not one whose scripts this package knows. The constructor throws this before anything is
 * sent.
 */
export class UnsupportedBullMQError extends ExclusiveWorkerError {
  readonly code = "UNSUPPORTED_BULLMQ" as const;
  /** What differs, for instance the names of scripts. */
  readonly differences: readonly string[];

  constructor(differences: readonly string[]) {
    super(
      `this BullMQ is unknown to @x/workers (${differences.join("; ")}): install BullMQ 5.81 or 6.0 to 6.7, ` +
        "or a newer @x/workers; running with an unknown one could lose the order or the exclusion of jobs",
    );
    this.differences = differences;
  }
}

/** The job's key cannot be used. The job fails before the processor is called, and is retried as its options say. */
export class JobKeyError extends ExclusiveWorkerError {
  readonly code = "JOB_KEY" as const;
  readonly jobId: string;

  constructor(jobId: string, fault: string) {
    super(`job ${jobId}: its key ${fault}`);
    this.jobId = jobId;
  }
}

/**
 * An `error` event says that something stands where the lock of a job's key should be, and is no lock. It never
 * expires, or is of another type.
 *
 * The job does not fail: it waits until that key is gone. Give the locks names of their own (`resource`).
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
      error === undefined
        ? "a key of that name never expires"
        : `that key or one beside it is of another type (${error})`;
    super(
      `job ${jobId} waits for the lock ${resources.map((name) => JSON.stringify(name)).join(", ")}, but on ${node} ${what}: ` +
        "it is no lock. Give the locks of keys names of their own with the option resource",
    );
    this.jobId = jobId;
  }
}

/**
 * An `error` event says that the queue's Redis refused a command of the lane, for instance for want of rights. No job
 * fails by that.
 *
 * A job that could not be judged waits for `recheckInterval`. A key that could not be passed on is passed on when it is
 * next asked for.
 */
export class LaneError extends ExclusiveWorkerError {
  readonly code = "LANE" as const;

  constructor(queue: string, fault: string) {
    super(`queue ${queue}: a job could not be judged, or its key not passed on, and is again later: ${fault}`);
  }
}

/** What `ExclusiveWorker.check` may find. */
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

/**
 * An `error` event says that the workers of the queue do not agree, so that jobs of one key may run side by side. It
 * comes once; see `ExclusiveWorker.check`.
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
 * The queue is divided in another way than this process says, or is being moved to another division. The message says
 * what to do.
 *
 * `add` and `moveFrom` of a `PartitionedQueue` reject with it, and nothing was added or moved. A `PartitionedWorker`
 * runs nothing, and emits it as an `error` event.
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
 * More jobs wait for the key than `perKey.maxWaiting` lets. The job fails before the processor is called, and is
 * retried as its options say.
 */
export class KeyBacklogError extends ExclusiveWorkerError {
  readonly code = "KEY_BACKLOG" as const;
  readonly jobId: string;
  readonly key: string;

  constructor(jobId: string, key: string) {
    super(`job ${jobId}: as many jobs wait for key ${JSON.stringify(key)} as perKey.maxWaiting lets`);
    this.jobId = jobId;
    this.key = key;
  }
}

/**
 * A newer job of the same keys waits, and `whenBusy` is `"interrupt"`: the reason of the processor's `signal`.
 *
 * The job is not run again. It completes as superseded if its processor rejects, and as usual if that resolves.
 */
export class SupersededError extends ExclusiveWorkerError {
  readonly code = "SUPERSEDED" as const;
  readonly jobId: string;
  readonly key: string;
  /** The newer job. */
  readonly by: string;

  constructor(jobId: string, key: string, by: string) {
    super(`job ${jobId}: job ${by} is newer, and waits for key ${JSON.stringify(key)}`);
    this.jobId = jobId;
    this.key = key;
    this.by = by;
  }
}

/**
 * BullMQ's lock of this job ended or was taken, so the job will run, or runs, elsewhere. What the processor returns
 * afterwards is not recorded.
 *
 * It is the reason of the processor's `signal`. `assertHeld(minRemaining)` throws it, too, if the lock is held for
 * less.
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

/** Clients hang the command that failed on an error by these names, with its arguments: the password of an AUTH. */
const CLIENT_FACTS = ["command", "lastNodeError"] as const;

/**
 * Returns what may be told of an error that BullMQ passes on as its client made it. Every other error is returned as it
 * is.
 */
export function withoutCommand(error: unknown): unknown {
  return error instanceof Error && CLIENT_FACTS.some((name) => name in error) ? plainError(error) : error;
}
