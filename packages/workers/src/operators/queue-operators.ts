import type { WorkerFinding } from "../errors.ts";
import type { ExclusionMode, ExclusionReport } from "./rules/exclusion.ts";
import type { KeyPolicy } from "./rules/key-policy.ts";
import type {
  BusyKey,
  CancelledJobs,
  CancelledState,
  Explanation,
  JobCounts,
  KeyJobState,
  KeyJobs,
  KeyReading,
} from "./rules/key-report.ts";
import type { QueueOverview } from "./rules/queue-overview.ts";
import type { WorkerSetup } from "./rules/worker-setup.ts";

/**
 * The most entries to list. Each method describes its default and range.
 * @inline
 */
export interface ListOptions {
  readonly limit?: number | undefined;
}

/**
 * The state of the jobs to list or remove. Each method describes its default.
 * @inline
 */
export interface StateOptions {
  readonly state?: KeyJobState | "all" | undefined;
}

/**
 * Options of `jobsOf`.
 * @inline
 */
export interface JobsOfOptions extends ListOptions, StateOptions {}

/**
 * Whether to remove a job instead of failing it. See `QueueOperators.cancel`.
 * @inline
 */
export interface CancelOptions {
  readonly remove?: boolean | undefined;
}

/**
 * The most keys to list, and the keys to read. See `QueueOperators.overview`.
 * @inline
 */
export interface OverviewOptions {
  readonly keys?: number | undefined;
  readonly read?: readonly string[] | undefined;
}

/**
 * Duration of the pause in ms. See `QueueOperators.pauseKey`.
 * @inline
 */
export interface PauseOptions {
  readonly for?: number | undefined;
}

/**
 * Whether the mode changes in any case. See `QueueOperators.setExclusion`.
 * @inline
 */
export interface SetExclusionOptions {
  readonly force?: boolean | undefined;
}

/**
 * The operators' methods of a queue, which `ExclusiveQueue` and `PartitionedQueue` share.
 *
 * A queue in partitions asks the partition of a key, or all partitions. The cost of a call then applies to each
 * partition, and a call for all partitions is not atomic.
 */
export interface QueueOperators {
  /**
   * Lists the keys that are busy, paused, or have jobs in line: at most `limit` (default 1000) keys, in no particular
   * order. The cost is O(busy keys).
   *
   * The name differs from `keys`, which is a property of BullMQ's queues.
   */
  listKeys(options?: ListOptions): Promise<BusyKey[]>;

  /**
   * Returns the jobs that have a key and the jobs that wait for it: at most `limit` (default 1000) waiting jobs in each
   * state.
   *
   * `state` selects the waiting jobs. The default `"parked"` means the jobs in line, and `"waiting"` the jobs in the
   * queue itself. `"delayed"` means the jobs that wait for their time or retry, and `"all"` all three. Except for
   * `"parked"`, the cost is O(jobs of the queue in this state), in pages.
   * @throws TypeError if the state includes jobs whose keys only the option `key` can tell, and the option is missing.
   */
  jobsOf(key: string, options?: JobsOfOptions): Promise<KeyJobs>;

  /**
   * Permanently removes the jobs of a key that are not running, with their children. `state` restricts the removal to
   * one state of `jobsOf`. Default `"all"`. Resolves with the number of removed jobs.
   *
   * Running jobs are left alone, and so is the next job of a job scheduler. Jobs that are added during the call may be
   * removed as well. The cost is O(jobs of the queue in this state), in pages.
   * @throws TypeError as `jobsOf`.
   */
  removeJobs(key: string, options?: StateOptions): Promise<number>;

  /**
   * Cancels a job, from any process. The job can only fail from now on, without a retry, with a `JobCancelledError`.
   * Resolves with the state in which the job was found. `reason` (default "cancelled by an operator") has at most 10000
   * characters.
   *
   * If the job runs, the `signal` of its processor aborts, and the job fails when the processor settles, even if the
   * processor resolves. A worker that misses the message learns of the cancellation when it next renews BullMQ's lock,
   * and at the latest when the job ends. A job that does not run fails immediately, so the parent job and
   * `QueueEvents` are notified. With `remove`, this job is removed instead, with its children, unless a worker takes
   * the job during the call. The next job of a job scheduler fails at its time.
   *
   * With `whenBusy: "merge"`, cancelling the job that runs aborts the whole processor call. If the call rejects, its
   * other jobs stay in line. Cancelling one of these other jobs does not abort the call.
   * @throws RangeError if several partitions have a job with this ID: `PartitionedQueue` then needs the option `key`.
   */
  cancel(jobId: string, reason?: string, options?: CancelOptions): Promise<CancelledState>;

  /**
   * Cancels all jobs of a key as `cancel` does, the jobs that wait before those that run. Resolves with the number of
   * cancelled jobs by state.
   *
   * Jobs that wait for their children are not found. Jobs that are added during the call may be cancelled as well. The
   * cost is O(jobs of the queue that wait or are delayed), in pages.
   * @throws TypeError as `jobsOf` with the state `"all"`.
   */
  cancelKey(key: string, reason?: string, options?: CancelOptions): Promise<CancelledJobs>;

  /**
   * Explains why a job waits, behind which jobs and until when. Resolves with undefined if the job does not exist.
   * @throws RangeError if several partitions have a job with this ID: `PartitionedQueue` then needs the option `key`.
   */
  explain(jobId: string): Promise<Explanation | undefined>;

  /**
   * Reads a key at one moment: the jobs that have it, the first `limit` jobs in line (0 to 100, default 25), the
   * policy, the pause and the limits. Each job is explained as by `explain`. Costs one request.
   */
  readKey(key: string, options?: ListOptions): Promise<KeyReading>;

  /**
   * Reads the queue as a whole at one moment: how many jobs run and can run, which jobs have stalled, and what the
   * workers report. Costs one request, for any number of keys and jobs.
   *
   * With `keys`, the overview also lists at most this many keys (default 0) as `listKeys` does. The first 500 are part
   * of the request, and each further 500 cost another one. With `read`, the request also reads these keys, 5 at most,
   * as `readKey` does.
   *
   * In a queue in partitions, each partition is read at a moment of its own. `atMs` is the latest of these moments, and
   * `isPaused` reports whether all partitions are paused.
   */
  overview(options?: OverviewOptions): Promise<QueueOverview>;

  /**
   * Pauses a key. No process starts a job of the key until `resumeKey` is called. With `for`, the pause also ends after
   * that many ms (1 to 31622400000, which is 366 days) by the clock of the queue's Redis. A running job continues.
   * `reason` (default "paused by an operator") has at most 10000 characters.
   *
   * Resolves with false if the key was already paused. The pause that ends later then remains, with its reason.
   *
   * A job may have the key without running: it was chosen, waits for its retry or lock, or has stalled. This job goes
   * first after the pause. Plain code is not kept out. To exclude plain code, acquire the lock of the key's resource.
   */
  pauseKey(key: string, reason?: string, options?: PauseOptions): Promise<boolean>;

  /**
   * Ends a pause, the halt after a failed job, or both. Before the call, `paused.jobId` of `listKeys()` names the
   * failed job. Resolves with false if the key was not paused.
   *
   * To run the failed job again before the others, retry the job first (`job.retry()`).
   */
  resumeKey(key: string): Promise<boolean>;

  /**
   * Replaces the workers' `perKey` for one key, until the policy is replaced or removed. All workers of the queue
   * follow the policy from their next decision on. An earlier policy of the key is dropped completely.
   *
   * If more jobs run than the policy allows, all of these jobs continue, and the next job starts when enough jobs have
   * ended. A lower `maxWaiting` applies to the next job that arrives. A `rate` includes the starts that were counted
   * for the previous rate.
   * @throws RangeError for a policy that would have no effect in a running worker of the queue.
   */
  setKeyPolicy(key: string, policy: KeyPolicy): Promise<void>;

  /** Returns the policy of a key. Undefined if the key has none. */
  getKeyPolicy(key: string): Promise<KeyPolicy | undefined>;

  /**
   * Removes the policy of a key, so that the workers' `perKey` applies again. Resolves with false if the key had none.
   */
  removeKeyPolicy(key: string): Promise<boolean>;

  /**
   * Returns the policies by key: at most `limit` (default 1000), in no particular order. The cost is O(busy keys and
   * keys with a policy).
   */
  listKeyPolicies(options?: ListOptions): Promise<Map<string, KeyPolicy>>;

  /**
   * Changes whether jobs of a key exclude each other, for all workers of the queue. Default of a queue: `"on"`.
   * Resolves with false if the queue was in this mode already.
   *
   * `"watch"`: no job waits because its key is busy. Workers can then run next to plain workers of BullMQ, and
   * `exclusion()` reports what exclusion would have prevented. Each job still acquires its lock and fencing token, and
   * pauses and rates still apply. Jobs that wait in line start immediately. Redis stores the mode: if the mode is lost,
   * the queue is exclusive.
   *
   * `"on"`: a job whose key is busy waits. No script that runs after this call starts a job of a key that has as many
   * jobs as the key allows. Jobs that overlap already run to their end: `overlappingKeys` of `exclusion()` counts their
   * keys.
   *
   * A queue in partitions first asks all partitions, and changes none if one refuses. Otherwise each partition is
   * changed by its own command. If the call fails at this point, some partitions may have changed. Resolves with true
   * if a partition has changed.
   * @throws ExclusionRefusedError if a worker of the queue would not follow the change: a plain worker is connected or
   * runs a job (`"on"`), or a worker has `whenBusy: "merge"` (`"watch"`) or an older version. With `force` (default
   * false) the mode changes in any case. An idle plain worker is not found if Redis refuses `CLIENT LIST`.
   * @throws TypeError, RangeError for invalid arguments.
   */
  setExclusion(mode: ExclusionMode, options?: SetExclusionOptions): Promise<boolean>;

  /**
   * Reports whether the queue is exclusive, and what exclusion would have prevented since the queue was last watched.
   * Lists at most `limit` keys (0 to 100, default 10). The figures count starts in `ExclusiveWorker`s, and stay until
   * the queue is watched again. The cost is O(workers, clients of Redis, keys with a policy or overlapping jobs), in
   * pages.
   *
   * A queue in partitions counts as watched if any of its partitions is watched.
   */
  exclusion(options?: ListOptions): Promise<ExclusionReport>;

  /**
   * Counts the jobs that a free slot would take now (`runnable`), the running jobs (`active`), and the jobs that wait
   * for their key (`parked`). BullMQ includes parked jobs in `delayed`.
   *
   * The cost is O(busy keys). A parked job that was removed by hand is counted until its turn.
   */
  counts(): Promise<JobCounts>;

  /**
   * Resolves with BullMQ's metrics, and with gauges of the queue's keys, in the text format of Prometheus. `labels` are
   * added to every sample. This call costs as much as `counts()`.
   * @throws TypeError, RangeError for labels that Prometheus would reject.
   */
  exportPrometheusMetrics(labels?: Record<string, string>): Promise<string>;

  /**
   * Looks for everything that weakens a promise: workers of this queue with different options, options that weaken a
   * promise, and jobs that run without their key. A queue in partitions also compares its division with the stored one.
   *
   * Each running worker also compares itself with the others when it starts and every minute. The worker reports each
   * finding once, as an `error` event with a `WorkerMismatchError`. Plain workers that are idle cannot be found.
   */
  check(): Promise<readonly WorkerFinding[]>;

  /**
   * Returns the options of this queue's running workers. A worker that was killed is listed for another 30 s. A queue
   * in partitions lists the workers of a process with the same options once.
   */
  setups(): Promise<readonly WorkerSetup[]>;
}
