/**
 * BullMQ's `Queue` with the keys of its jobs: for everything that concerns a queue of `ExclusiveWorker`s and is not
 * processing. Adding jobs needs no key, so any producer may continue to use BullMQ's own `Queue`.
 *
 * Guaranteed: every call follows the options of the queue's workers, which store them in Redis. A call that changes a
 * key is atomic, unless its description says that it works in pages.
 *
 * Not guaranteed: that a list or a count of many keys shows one moment, because it is read in pages.
 */
import { systemClock } from "@x/redlock-core";
import { withoutCommand } from "@x/redlock-core/protocol";
import { checkScripts, installedScripts, queueTargetOf } from "./bullmq/bullmq.ts";
import { leaveReplicas } from "./bullmq/connections.ts";
import { Queue, type QueueOptions } from "./bullmq/public.ts";
import { readNode, withSocketTimeout } from "./bullmq/rules/connection.ts";
import type { WorkerFinding } from "./errors.ts";
import { type ExclusiveQueueListener, eventEmitterOf } from "./events.ts";
import { KeyOperators } from "./operators/key-operators.ts";
import { KeyPolicies } from "./operators/key-policies.ts";
import { OperatorLane } from "./operators/operator-lane.ts";
import { QueueExclusion } from "./operators/queue-exclusion.ts";
import type { ExclusionMode, ExclusionReport } from "./operators/rules/exclusion.ts";
import type { KeyPolicy } from "./operators/rules/key-policy.ts";
import type {
  BusyKey,
  CancelledJobs,
  CancelledState,
  Explanation,
  JobCounts,
  KeyJobState,
  KeyJobs,
  KeyReading,
} from "./operators/rules/key-report.ts";
import { LABELS, prometheusText } from "./operators/rules/prometheus.ts";
import type { QueueOverview } from "./operators/rules/queue-overview.ts";
import { findingsOf, type WorkerSetup } from "./operators/rules/worker-setup.ts";
import { readRegistry } from "./operators/worker-registry.ts";
import {
  type ExclusiveOptions,
  FINGERPRINT,
  type KeyOption,
  keyOptions,
  PATH_OR_FUNCTION,
  QUEUE_NAME,
  readOptions,
} from "./options.ts";

/** BullMQ's options of a `Queue`, and the workers' options `key` and `acceptScripts`. */
export type ExclusiveQueueOptions<Data = unknown, Name extends string = string> = QueueOptions & {
  /**
   * The option `key` of the workers. Default: the path that the workers have stored in Redis.
   *
   * Needed only to find the jobs of a key that no worker has looked at (`waiting` and `delayed`), and only if the
   * workers' `key` is a function or no worker has run yet.
   */
  readonly key?: KeyOption<Data, Name> | undefined;
} & Pick<ExclusiveOptions, "acceptScripts">;

/** Name of a BullMQ event without arguments. BullMQ's typed methods accept the names of our events as this name. */
type BullEvent = "paused";

const OWN = ["key", "acceptScripts", "connection", "prefix"];
const KEY_OPTION = PATH_OR_FUNCTION.optional();

// oxlint-disable typescript/no-explicit-any -- BullMQ's own defaults, so that untyped code compiles as before
export class ExclusiveQueue<Data = any, Result = any, Name extends string = string> extends Queue<Data, Result, Name> {
  // oxlint-enable typescript/no-explicit-any
  readonly #lane: OperatorLane;
  readonly #operators: KeyOperators;
  readonly #policies: KeyPolicies;
  readonly #exclusion: QueueExclusion;

  /**
   * Creates a queue as BullMQ's constructor does. `backendFactory`, which BullMQ 6 accepts, must create BullMQ's own
   * Redis backend.
   * @throws TypeError for invalid options, and `UnsupportedBullMQError` for an unknown BullMQ, before anything is sent.
   */
  constructor(name: string, given: ExclusiveQueueOptions<Data, Name>, backendFactory?: object) {
    QUEUE_NAME.of("name", name);
    const { key, acceptScripts, ...options } = readOptions(given, OWN, "connection");
    const path = KEY_OPTION.of("key", key);
    readNode(options.connection);
    const { scripts } = checkScripts(installedScripts(), FINGERPRINT.optional().of("acceptScripts", acceptScripts));
    const bullOptions = { ...options, connection: withSocketTimeout(options.connection) };
    super(name, bullOptions, ...((backendFactory === undefined ? [] : [backendFactory]) as unknown as []));
    const target = queueTargetOf(this);
    leaveReplicas(this, options.connection, systemClock);
    const parts = {
      queue: name,
      target,
      scripts,
      clock: systemClock,
      key: path === undefined ? undefined : keyOptions(path),
    };
    this.#lane = new OperatorLane(parts);
    this.#operators = new KeyOperators({ ...parts, lane: this.#lane, emitEvent: eventEmitterOf(this) });
    const countWorkers = async (): Promise<number> => await this.getWorkersCount();
    this.#exclusion = new QueueExclusion({ queue: name, lane: this.#lane, countWorkers });
    this.#policies = new KeyPolicies({ lane: this.#lane, onError: (error) => void this.emit("error", error) });
  }

  /**
   * Lists the keys that are busy, paused, or have jobs in line: at most `limit` (default 1000) keys, in no particular
   * order. The cost is O(busy keys).
   *
   * The name differs from `keys`, which is a property of BullMQ's queues.
   */
  async listKeys(options: { readonly limit?: number | undefined } = {}): Promise<BusyKey[]> {
    return await this.#operators.list(options);
  }

  /**
   * Returns the jobs that have a key and the jobs that wait for it: at most `limit` (default 1000) waiting jobs in each
   * state.
   *
   * `state` selects the waiting jobs. The default `"parked"` means the jobs in line, and `"waiting"` the jobs in the
   * queue itself. `"delayed"` means the jobs that wait for their time or retry, and `"all"` all three. Except for
   * `"parked"`, the cost is O(jobs of the queue in this state), in pages.
   * @throws TypeError if the state includes jobs whose keys only the option `key` can tell, and the option is missing.
   */
  async jobsOf(
    key: string,
    options: { readonly limit?: number | undefined; readonly state?: KeyJobState | "all" | undefined } = {},
  ): Promise<KeyJobs> {
    return await this.#operators.jobsOf(key, options);
  }

  /**
   * Permanently removes the jobs of a key that are not running, with their children. `state` restricts the removal to
   * one state of `jobsOf`. Default `"all"`. Resolves with the number of removed jobs.
   *
   * Running jobs are left alone, and so is the next job of a job scheduler. Jobs that are added during the call may be
   * removed as well. The cost is O(jobs of the queue in this state), in pages.
   * @throws TypeError as `jobsOf`.
   */
  async removeJobs(key: string, options: { readonly state?: KeyJobState | "all" | undefined } = {}): Promise<number> {
    return await this.#operators.remove(key, options);
  }

  /**
   * Cancels a job, from any process. The job can only fail from now on, without a retry, with a `JobCancelledError`.
   * Resolves with the state in which the job was found. `reason` has at most 10000 characters.
   *
   * If the job runs, the `signal` of its processor aborts, and the job fails when the processor settles, even if the
   * processor resolves. A worker that misses the message learns of the cancellation when it next renews BullMQ's lock,
   * and at the latest when the job ends. A job that does not run fails immediately, so the parent job and
   * `QueueEvents` are notified. With `remove`, this job is removed instead, with its children, unless a worker takes
   * the job during the call. The next job of a job scheduler fails at its time.
   *
   * With `whenBusy: "merge"`, cancelling the job that runs aborts the whole processor call. If the call rejects, its
   * other jobs stay in line. Cancelling one of these other jobs does not abort the call.
   */
  async cancel(
    jobId: string,
    reason = "cancelled by an operator",
    options: { readonly remove?: boolean | undefined } = {},
  ): Promise<CancelledState> {
    return await this.#operators.cancel(jobId, reason, options);
  }

  /**
   * Cancels all jobs of a key as `cancel` does, the jobs that wait before those that run. Resolves with the number of
   * cancelled jobs by state.
   *
   * Jobs that wait for their children are not found. Jobs that are added during the call may be cancelled as well. The
   * cost is O(jobs of the queue that wait or are delayed), in pages.
   * @throws TypeError as `jobsOf` with the state `"all"`.
   */
  async cancelKey(
    key: string,
    reason = "cancelled by an operator",
    options: { readonly remove?: boolean | undefined } = {},
  ): Promise<CancelledJobs> {
    return await this.#operators.cancelKey(key, reason, options);
  }

  /** Explains why a job waits, behind which jobs and until when. Resolves with undefined if the job does not exist. */
  async explain(jobId: string): Promise<Explanation | undefined> {
    return await this.#operators.explain(jobId);
  }

  /**
   * Reads a key at one moment: the jobs that have it, the first `limit` jobs in line (0 to 100, default 25), the
   * policy, the pause and the limits. Each job is explained as by `explain`. Costs one request.
   */
  async readKey(key: string, options: { readonly limit?: number | undefined } = {}): Promise<KeyReading> {
    return await this.#operators.read(key, options);
  }

  /**
   * Reads the queue as a whole at one moment: how many jobs run and can run, which jobs have stalled, and what the
   * workers report. Costs one request, for any number of keys and jobs.
   *
   * With `keys`, the overview also lists at most this many keys (default 0) as `listKeys` does. The first 500 are part
   * of the request, and each further 500 cost another one. With `read`, the request also reads these keys, 5 at most,
   * as `readKey` does.
   */
  async overview(
    options: { readonly keys?: number | undefined; readonly read?: readonly string[] | undefined } = {},
  ): Promise<QueueOverview> {
    return await this.#operators.overview(options);
  }

  /**
   * Pauses a key. No process starts a job of the key until `resumeKey` is called. With `for`, the pause also ends after
   * that many ms (1 to 31622400000, which is 366 days) by the clock of the queue's Redis. A running job continues.
   * `reason` has at most 10000 characters.
   *
   * Resolves with false if the key was already paused. The pause that ends later then remains, with its reason.
   *
   * A job may have the key without running: it was chosen, waits for its retry or lock, or has stalled. This job goes
   * first after the pause. Plain code is not kept out. To exclude plain code, acquire the lock of the key's resource.
   */
  async pauseKey(
    key: string,
    reason = "paused by an operator",
    options: { readonly for?: number | undefined } = {},
  ): Promise<boolean> {
    return await this.#operators.pause(key, reason, options);
  }

  /**
   * Ends a pause, the halt after a failed job, or both. Before the call, `paused.jobId` of `listKeys()` names the
   * failed job. Resolves with false if the key was not paused.
   *
   * To run the failed job again before the others, retry the job first (`job.retry()`).
   */
  async resumeKey(key: string): Promise<boolean> {
    return await this.#operators.resume(key);
  }

  /**
   * Replaces the workers' `perKey` for one key, until the policy is replaced or removed. All workers of the queue
   * follow the policy from their next decision on. An earlier policy of the key is dropped completely.
   *
   * If more jobs run than the policy allows, all of these jobs continue, and the next job starts when enough jobs have
   * ended. A lower `maxWaiting` applies to the next job that arrives. A `rate` includes the starts that were counted
   * for the previous rate.
   * @throws RangeError for a policy that would have no effect in a running worker of the queue.
   */
  async setKeyPolicy(key: string, policy: KeyPolicy): Promise<void> {
    await this.#policies.set(key, policy);
  }

  /** Returns the policy of a key. Undefined if the key has none. */
  async getKeyPolicy(key: string): Promise<KeyPolicy | undefined> {
    return await this.#policies.get(key);
  }

  /**
   * Removes the policy of a key, so that the workers' `perKey` applies again. Resolves with false if the key had none.
   */
  async removeKeyPolicy(key: string): Promise<boolean> {
    return await this.#policies.remove(key);
  }

  /**
   * Returns the policies by key: at most `limit` (default 1000), in no particular order. The cost is O(busy keys and
   * keys with a policy).
   */
  async listKeyPolicies(options: { readonly limit?: number | undefined } = {}): Promise<Map<string, KeyPolicy>> {
    return await this.#policies.list(options);
  }

  /**
   * Changes whether jobs of a key exclude each other, for all workers of the queue and with one command. Default of a
   * queue: `"on"`. Resolves with false if the queue was in this mode already.
   *
   * `"watch"`: no job waits because its key is busy. Workers can then run next to plain workers of BullMQ, and
   * `exclusion()` reports what exclusion would have prevented. Each job still acquires its lock and fencing token, and
   * pauses and rates still apply. Jobs that wait in line start immediately. Redis stores the mode: if the mode is lost,
   * the queue is exclusive.
   *
   * `"on"`: a job whose key is busy waits. No script that runs after this call starts a job of a key that has as many
   * jobs as the key allows. Jobs that overlap already run to their end: `overlappingKeys` of `exclusion()` counts their
   * keys.
   * @throws ExclusionRefusedError if a worker of the queue would not follow the change: a plain worker is connected or
   * runs a job (`"on"`), or a worker has `whenBusy: "merge"` (`"watch"`) or an older version. With `force` (default
   * false) the mode changes in any case. An idle plain worker is not found if Redis refuses `CLIENT LIST`.
   * @throws TypeError, RangeError for invalid arguments.
   */
  async setExclusion(mode: ExclusionMode, options: { readonly force?: boolean | undefined } = {}): Promise<boolean> {
    return await this.#exclusion.set(mode, options);
  }

  /**
   * Reports whether the queue is exclusive, and what exclusion would have prevented since the queue was last watched.
   * Lists at most `limit` keys (0 to 100, default 10). The figures count starts in `ExclusiveWorker`s, and stay until
   * the queue is watched again. The cost is O(workers, clients of Redis, keys with a policy or overlapping jobs), in
   * pages.
   */
  async exclusion(options: { readonly limit?: number | undefined } = {}): Promise<ExclusionReport> {
    return await this.#exclusion.report(options);
  }

  /**
   * Counts the jobs that a free slot would take now (`runnable`), the running jobs (`active`), and the jobs that wait
   * for their key (`parked`). BullMQ includes parked jobs in `delayed`.
   *
   * The cost is O(busy keys). A parked job that was removed by hand is counted until its turn.
   */
  async counts(): Promise<JobCounts> {
    return await this.#operators.counts();
  }

  /**
   * Resolves with BullMQ's metrics, and with gauges of the queue's keys, in the text format of Prometheus. `labels` are
   * added to every sample. This call costs as much as `counts()`.
   * @throws TypeError, RangeError for labels that Prometheus would reject.
   */
  override async exportPrometheusMetrics(labels: Record<string, string> = {}): Promise<string> {
    LABELS.of("labels", labels);
    const [bull, counts, { exclusion }] = await Promise.all([
      super.exportPrometheusMetrics(labels),
      this.counts(),
      this.overview(),
    ]);
    return [bull, prometheusText(this.name, { counts, exclusion }, labels)].join("\n");
  }

  /**
   * Looks for everything that weakens a promise: workers of this queue with different options, options that weaken a
   * promise, and jobs that run without their key.
   *
   * Each running worker also compares itself with the others when it starts and every minute. The worker reports each
   * finding once, as an `error` event with a `WorkerMismatchError`. Plain workers that are idle cannot be found.
   */
  async check(): Promise<readonly WorkerFinding[]> {
    const { setups, jobs, isWatched } = await readRegistry(this.#lane);
    return findingsOf(setups, (await this.#lane.isKeyed()) ? jobs : [], isWatched ? this.name : undefined);
  }

  /** Returns the options of this queue's running workers. A worker that was killed is listed for another 30 s. */
  async setups(): Promise<readonly WorkerSetup[]> {
    return (await readRegistry(this.#lane)).setups;
  }

  /** Adds a listener for an event of BullMQ or of `ExclusiveQueueEvents`. */
  override on<Event extends keyof ExclusiveQueueListener>(event: Event, listener: ExclusiveQueueListener[Event]): this {
    return super.on(event as BullEvent, listener as () => void);
  }

  /** Adds a listener for the next event only. */
  override once<Event extends keyof ExclusiveQueueListener>(
    event: Event,
    listener: ExclusiveQueueListener[Event],
  ): this {
    return super.once(event as BullEvent, listener as () => void);
  }

  /** Removes a listener that `on` or `once` added. */
  override off<Event extends keyof ExclusiveQueueListener>(
    event: Event,
    listener: ExclusiveQueueListener[Event],
  ): this {
    return super.off(event as BullEvent, listener as () => void);
  }

  /**
   * Emits an event, as BullMQ's `emit` does. The client's failed command is removed from an `error`, because its
   * arguments may contain a password.
   */
  override emit<Event extends keyof ExclusiveQueueListener>(
    event: Event,
    ...args: Parameters<ExclusiveQueueListener[Event]>
  ): boolean {
    const cleaned = event === "error" ? args.map(withoutCommand) : args;
    return super.emit(event as BullEvent, ...(cleaned as []));
  }

  /** Closes the queue at the end of the scope of `await using queue = …`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
