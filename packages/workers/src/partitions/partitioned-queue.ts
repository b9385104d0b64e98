/**
 * The producers' and operators' side of a divided queue. Each partition is an `ExclusiveQueue`, and a job's key selects
 * the partition.
 *
 * Guaranteed: all jobs of a key are in the same partition, so a partition can guarantee everything that a queue
 * guarantees for a key. No job is added to a closed partition, according to an answer of its server that is at most a
 * second old.
 *
 * Not guaranteed: any order between partitions, and that calls for several partitions are atomic.
 */
import { integer, text } from "@x/redlock-core/kit";
import type {
  FlowJob,
  Job,
  JobNode,
  JobSchedulerTemplateOptions,
  JobsOptions,
  JobType,
  Queue,
  RepeatOptions,
} from "../bullmq/public.ts";
import { ExclusionRefusedError, type WorkerFinding } from "../errors.ts";
import type { ExclusiveQueueEvents, ExclusiveQueueListener } from "../events.ts";
import type { ExclusiveQueue, ExclusiveQueueOptions } from "../exclusive-queue.ts";
import { LIST, OVERVIEW, REASON } from "../operators/key-operators.ts";
import { CHANGE, MODE, REPORT } from "../operators/queue-exclusion.ts";
import { type ExclusionMode, type ExclusionReport, sumExclusions } from "../operators/rules/exclusion.ts";
import type { KeyPolicy } from "../operators/rules/key-policy.ts";
import type {
  BusyKey,
  CancelledJobs,
  CancelledState,
  Explanation,
  JobCounts,
  KeyJobState,
  KeyJobs,
  KeyReading,
} from "../operators/rules/key-report.ts";
import { LABELS, sumCounts } from "../operators/rules/prometheus.ts";
import { type QueueOverview, sumOverviews } from "../operators/rules/queue-overview.ts";
import type { WorkerSetup } from "../operators/rules/worker-setup.ts";
import { keyOptions, PATH_OR_FUNCTION } from "../options.ts";
import { readMetrics } from "./metrics.ts";
import { CANCEL, divisionOf, type NewJob, type PartitionedQueueOptions, readDivisionOptions } from "./options.ts";
import { PartitionQueues } from "./partition-queues.ts";
import { type BulkJob, PartitionedProducer } from "./producer.ts";
import type { MoveOptions } from "./repartition.ts";
import { distinct, mergePages } from "./rules/merge.ts";
import { partitionOf } from "./rules/partition.ts";

const JOB_ID = text({ min: 1 });
const KEY_OPTION = PATH_OR_FUNCTION.optional();
type PartitionedQueueEvent = keyof ExclusiveQueueEvents | "error";
type Listener = (...args: readonly unknown[]) => void;
const INDEX = integer({ min: 0, unit: "" });

// oxlint-disable typescript/no-explicit-any -- BullMQ's own defaults, so that untyped code compiles as before
export class PartitionedQueue<Data = any, Result = any, Name extends string = string> {
  readonly name: string;
  readonly partitions: number;
  /** The queues by partition, for calls that this class does not have. */
  readonly queues: readonly ExclusiveQueue<Data, Result, Name>[];
  readonly #queues: PartitionQueues<Data, Result, Name>;
  readonly #producer: PartitionedProducer<Data, Result, Name>;

  /**
   * Creates the queues of all partitions, which connect immediately. BullMQ's `QueueOptions` apply to each of them.
   * @throws TypeError, RangeError for invalid options, before anything is sent.
   */
  constructor(name: string, given: PartitionedQueueOptions<Data, Name>) {
    const options = readDivisionOptions(given);
    const division = divisionOf(name, options);
    const { key, partitions: _partitions, connection: _connection, ...bull } = options;
    const checked = KEY_OPTION.of("key", key) as ExclusiveQueueOptions<Data, Name>["key"];
    const keyOf =
      checked === undefined ? undefined : (keyOptions(checked).keyOf as (job: NewJob<Data, Name>) => unknown);
    this.name = name;
    this.partitions = division.partitions;
    this.#queues = new PartitionQueues(division, { ...bull, prefix: division.prefix, key: checked });
    this.queues = this.#queues.all;
    this.#producer = new PartitionedProducer(division, this.#queues, keyOf);
  }

  /**
   * Adds a listener for connection errors of all partitions (`error`), or for an event of `ExclusiveQueueEvents`.
   * Without a listener, errors are printed as by BullMQ. The errors do not contain the failed command, because its
   * arguments may contain a password.
   */
  on<Event extends PartitionedQueueEvent>(event: Event, listener: ExclusiveQueueListener[Event]): this {
    this.#queues.events.on(event, listener as Listener);
    return this;
  }

  /** Adds a listener for the next event only. */
  once<Event extends PartitionedQueueEvent>(event: Event, listener: ExclusiveQueueListener[Event]): this {
    this.#queues.events.once(event, listener as Listener);
    return this;
  }

  off<Event extends PartitionedQueueEvent>(event: Event, listener: ExclusiveQueueListener[Event]): this {
    this.#queues.events.off(event, listener as Listener);
    return this;
  }

  /** Returns the partition of a key. */
  partitionOf(key: string): number {
    return partitionOf(key, this.partitions);
  }

  /** Returns the queue that contains the jobs of a key, for calls about one key. */
  queueOf(key: string): ExclusiveQueue<Data, Result, Name> {
    return this.#queues.at(this.partitionOf(key));
  }

  /**
   * Adds a job, like BullMQ's `add`.
   *
   * Job IDs that BullMQ generates are unique only within their partition. Deduplication also works within a partition.
   * @throws RangeError if the key cannot be used, or if several keys belong to different partitions.
   * @throws DivisionMismatchError if the queue is divided in another way, or is being moved to another division.
   */
  async add(name: Name, data: Data, opts?: JobsOptions): Promise<Job<Data, Result, Name>> {
    return await this.#producer.add(name, data, opts);
  }

  /**
   * Adds jobs and returns them in the same order. The jobs of one partition are added atomically. If the call rejects,
   * the jobs of other partitions may have been added.
   * @throws RangeError, DivisionMismatchError as `add`. In this case no job was added.
   */
  async addBulk(jobs: readonly BulkJob<Data, Name>[]): Promise<Job<Data, Result, Name>[]> {
    return await this.#producer.addBulk(jobs);
  }

  /**
   * Adds a flow. All its jobs of this queue must belong to one partition. Such jobs have the queue's name as
   * `queueName`, or none. Jobs without a key are added to the partition of the others.
   * @throws RangeError if the jobs belong to different partitions.
   */
  async addFlow(flow: Omit<FlowJob, "queueName"> & { readonly queueName?: string }): Promise<JobNode> {
    return await this.#producer.addFlow(flow as FlowJob);
  }

  /**
   * Adds or changes a job scheduler. The key of its template selects the partition. The scheduler is removed from all
   * others.
   */
  async upsertJobScheduler(
    id: string,
    repeat: Omit<RepeatOptions, "key">,
    template: { readonly name: Name; readonly data: Data; readonly opts?: JobSchedulerTemplateOptions | undefined },
  ): Promise<void> {
    JOB_ID.of("id", id);
    await this.#producer.upsertJobScheduler(id, repeat, template);
  }

  /** Removes a job scheduler. Resolves with false if it does not exist. */
  async removeJobScheduler(id: string): Promise<boolean> {
    JOB_ID.of("id", id);
    return (await this.#queues.askAll(async (queue) => await queue.removeJobScheduler(id))).includes(true);
  }

  /** Lists the job schedulers of all partitions, ordered by their next time. */
  async getJobSchedulers(): ReturnType<Queue<Data, Result, Name>["getJobSchedulers"]> {
    const found = (await this.#queues.askAll(async (queue) => await queue.getJobSchedulers())).flat();
    return found.sort((a, b) => (a.next ?? 0) - (b.next ?? 0));
  }

  /**
   * Counts jobs by state, over all partitions. `types` are the states to count, as for BullMQ's method. Default: all
   * states.
   */
  async getJobCounts(...types: JobType[]): Promise<Record<string, number>> {
    return sumCounts(await this.#queues.askAll(async (queue) => await queue.getJobCounts(...types)));
  }

  /**
   * Returns a page of the jobs in these states, over all partitions: the jobs from `start` (default 0) to `end`
   * (default 99, included), the newest first. With `asc`, the oldest job is first. The cost is O(partitions × end).
   * @throws TypeError, RangeError if `start` or `end` is negative.
   */
  async getJobs(types: JobType | JobType[], start = 0, end = 99, asc = false): Promise<Job<Data, Result, Name>[]> {
    INDEX.of("start", start);
    INDEX.of("end", end);
    const pages = await this.#queues.askAll(async (queue) => await queue.getJobs(types, 0, end, asc));
    return mergePages(pages as Job<Data, Result, Name>[][], { start, end, asc });
  }

  /**
   * Returns the job with this ID. Without the job's `key`, all partitions are asked.
   * @throws RangeError if several partitions have a job with this ID. In this case pass the `key`.
   */
  async getJob(
    id: string,
    options: { readonly key?: string | undefined } = {},
  ): Promise<Job<Data, Result, Name> | undefined> {
    JOB_ID.of("id", id);
    return await this.#queues.findJob(
      id,
      options,
      async (queue) => (await queue.getJob(id)) as Job<Data, Result, Name>,
    );
  }

  /** Counts the waiting jobs of all partitions. */
  async count(): Promise<number> {
    return (await this.#queues.askAll(async (queue) => await queue.count())).reduce((sum, count) => sum + count, 0);
  }

  /** Lists the keys of all partitions. See `ExclusiveQueue.listKeys`. */
  async listKeys(options: { readonly limit?: number | undefined } = {}): Promise<BusyKey[]> {
    const { limit } = LIST.resolve(options);
    return (await this.#queues.askAll(async (queue) => await queue.listKeys({ limit }))).flat().slice(0, limit);
  }

  /** Returns the jobs that have a key and the jobs that wait for it. See `ExclusiveQueue.jobsOf`. */
  async jobsOf(
    key: string,
    options: { readonly limit?: number | undefined; readonly state?: KeyJobState | "all" | undefined } = {},
  ): Promise<KeyJobs> {
    return await this.queueOf(key).jobsOf(key, options);
  }

  /** Removes the jobs of a key that are not running. See `ExclusiveQueue.removeJobs`. */
  async removeJobs(key: string, options: { readonly state?: KeyJobState | "all" | undefined } = {}): Promise<number> {
    return await this.queueOf(key).removeJobs(key, options);
  }

  /**
   * Cancels a job. Without the job's `key`, all partitions are asked. See `ExclusiveQueue.cancel`.
   * @throws RangeError if several partitions have a job with this ID. In this case pass the `key`.
   */
  async cancel(
    jobId: string,
    reason?: string,
    options: { readonly key?: string | undefined; readonly remove?: boolean | undefined } = {},
  ): Promise<CancelledState> {
    JOB_ID.of("jobId", jobId);
    REASON.optional().of("reason", reason);
    const { key, remove } = CANCEL.resolve(options);
    const found = await this.#queues.findJob(jobId, { key }, async (queue) =>
      (await queue.explain(jobId)) === undefined ? undefined : queue,
    );
    return (await found?.cancel(jobId, reason, { remove })) ?? "unknown";
  }

  /** Cancels all jobs of a key. See `ExclusiveQueue.cancelKey`. */
  async cancelKey(
    key: string,
    reason?: string,
    options: { readonly remove?: boolean | undefined } = {},
  ): Promise<CancelledJobs> {
    return await this.queueOf(key).cancelKey(key, reason, options);
  }

  /**
   * Explains why a job waits. Without the job's `key`, all partitions are asked. Resolves with undefined if the job
   * does not exist.
   * @throws RangeError if several partitions have a job with this ID. In this case pass the `key`.
   */
  async explain(jobId: string, options: { readonly key?: string | undefined } = {}): Promise<Explanation | undefined> {
    return await this.#queues.findJob(jobId, options, async (queue) => await queue.explain(jobId));
  }

  /** Reads a key and its jobs at one moment. See `ExclusiveQueue.readKey`. */
  async readKey(key: string, options: { readonly limit?: number | undefined } = {}): Promise<KeyReading> {
    return await this.queueOf(key).readKey(key, options);
  }

  /**
   * Reads all partitions, each at one moment. `atMs` is the latest of these moments, and `isPaused` reports whether all
   * partitions are paused. See `ExclusiveQueue.overview`.
   */
  async overview(
    options: { readonly keys?: number | undefined; readonly read?: readonly string[] | undefined } = {},
  ): Promise<QueueOverview> {
    const { keys, read } = OVERVIEW.resolve(options);
    const parts = await this.#queues.askAll(
      async (queue) => await queue.overview({ keys, read: read.filter((key) => this.queueOf(key) === queue) }),
    );
    return sumOverviews(parts, { keys, read });
  }

  /** Pauses a key. See `ExclusiveQueue.pauseKey`. */
  async pauseKey(key: string, reason?: string, options: { readonly for?: number | undefined } = {}): Promise<boolean> {
    return await this.queueOf(key).pauseKey(key, reason, options);
  }

  /** Ends a pause of a key. See `ExclusiveQueue.resumeKey`. */
  async resumeKey(key: string): Promise<boolean> {
    return await this.queueOf(key).resumeKey(key);
  }

  /** Replaces the workers' `perKey` for a key. See `ExclusiveQueue.setKeyPolicy`. */
  async setKeyPolicy(key: string, policy: KeyPolicy): Promise<void> {
    await this.queueOf(key).setKeyPolicy(key, policy);
  }

  /** Returns the policy of a key. See `ExclusiveQueue.getKeyPolicy`. */
  async getKeyPolicy(key: string): Promise<KeyPolicy | undefined> {
    return await this.queueOf(key).getKeyPolicy(key);
  }

  /** Removes the policy of a key. See `ExclusiveQueue.removeKeyPolicy`. */
  async removeKeyPolicy(key: string): Promise<boolean> {
    return await this.queueOf(key).removeKeyPolicy(key);
  }

  /** Returns the policies by key, over all partitions. See `ExclusiveQueue.listKeyPolicies`. */
  async listKeyPolicies(options: { readonly limit?: number | undefined } = {}): Promise<Map<string, KeyPolicy>> {
    const { limit } = LIST.resolve(options);
    const found = await this.#queues.askAll(async (queue) => await queue.listKeyPolicies({ limit }));
    return new Map(found.flatMap((each) => [...each]).slice(0, limit));
  }

  /**
   * Changes whether jobs of a key exclude each other, partition by partition. Resolves with true if a partition has
   * changed. If any partition refuses, none is changed. See `ExclusiveQueue.setExclusion`.
   */
  async setExclusion(mode: ExclusionMode, options: { readonly force?: boolean | undefined } = {}): Promise<boolean> {
    MODE.of("mode", mode);
    const { force } = CHANGE.resolve(options);
    if (!force) {
      const reports = await this.#queues.askAll(async (queue) => await queue.exclusion({ limit: 0 }));
      const changing = reports.filter((report) => report.mode !== mode);
      const obstacles = [...new Set(changing.flatMap((report) => report.obstacles))];
      if (obstacles.length > 0) throw new ExclusionRefusedError(this.name, mode, obstacles);
    }
    return (await this.#queues.askAll(async (queue) => await queue.setExclusion(mode, { force: true }))).includes(true);
  }

  /**
   * Reports over all partitions what exclusion would have prevented. The queue counts as watched if a partition is. See
   * `ExclusiveQueue.exclusion`.
   */
  async exclusion(options: { readonly limit?: number | undefined } = {}): Promise<ExclusionReport> {
    const { limit } = REPORT.resolve(options);
    return sumExclusions(await this.#queues.askAll(async (queue) => await queue.exclusion({ limit })), limit);
  }

  /** Counts jobs and keys over all partitions. See `ExclusiveQueue.counts`. */
  async counts(): Promise<JobCounts> {
    return sumCounts(await this.#queues.askAll(async (queue) => await queue.counts()));
  }

  /** Resolves with the metrics of all partitions together. See `ExclusiveQueue.exportPrometheusMetrics`. */
  async exportPrometheusMetrics(labels: Record<string, string> = {}): Promise<string> {
    LABELS.of("labels", labels);
    return await readMetrics(this.name, this.#queues, labels);
  }

  /**
   * Returns the options of this queue's running workers. Workers of a process with the same options are listed once.
   * See `ExclusiveQueue.setups`.
   */
  async setups(): Promise<readonly WorkerSetup[]> {
    const found = (await this.#queues.askAll(async (queue) => await queue.setups())).flat();
    return distinct(found);
  }

  /**
   * Looks for everything that weakens a promise in any partition, and for a difference between this and the queue's
   * division.
   */
  async check(): Promise<readonly WorkerFinding[]> {
    const findings = (await this.#queues.askAll(async (queue) => await queue.check())).flat();
    const fault = await this.#producer.findDivisionFault();
    return fault === undefined ? distinct(findings) : [fault.finding, ...distinct(findings)];
  }

  /** Pauses all partitions, in no particular order. */
  async pause(): Promise<void> {
    await this.#queues.askAll(async (queue) => await queue.pause());
  }

  async resume(): Promise<void> {
    await this.#queues.askAll(async (queue) => await queue.resume());
  }

  /** Resolves with true if every partition is paused. */
  async isPaused(): Promise<boolean> {
    return !(await this.#queues.askAll(async (queue) => await queue.isPaused())).includes(false);
  }

  /** Removes the waiting jobs. With `delayed`, delayed and parked jobs are removed as well. */
  async drain(delayed?: boolean): Promise<void> {
    await this.#queues.askAll(async (queue) => await queue.drain(delayed));
  }

  /** Removes all data of all partitions, like BullMQ's `obliterate`. Only the record of the division remains. */
  async obliterate(options?: { readonly force?: boolean; readonly count?: number }): Promise<void> {
    await this.#queues.askAll(async (queue) => await queue.obliterate(options));
  }

  /**
   * Moves the queue from `from` partitions to this division. The call announces the move, moves the job schedulers, and
   * waits until no job is left in the old division. This division's workers then start. Resolves with 0, or with the
   * number of jobs that were added to the old division after an earlier move.
   *
   * Keep the workers of the old division running, and start the workers of the new one. The call also waits for delayed
   * jobs.
   * @throws DivisionMismatchError if the queue does not have `from` partitions, or is being moved elsewhere.
   */
  async moveFrom(from: number, options: MoveOptions = {}): Promise<number> {
    return await this.#producer.moveFrom(from, options);
  }

  /** Resolves when all partitions are connected. */
  async waitUntilReady(): Promise<void> {
    await this.#queues.askAll(async (queue) => await queue.waitUntilReady());
  }

  async close(): Promise<void> {
    await Promise.all([...this.queues, this.#producer].map(async (each) => await each.close()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
