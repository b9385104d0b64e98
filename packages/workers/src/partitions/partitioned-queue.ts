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
import { EventEmitter } from "node:events";
import { systemClock } from "@x/redlock-core";
import { integer, text } from "@x/redlock-core/kit";
import { withoutCommand } from "@x/redlock-core/protocol";
import { queueRedisOf } from "../bullmq/bullmq.ts";
import {
  type FlowJob,
  FlowProducer,
  type Job,
  type JobNode,
  type JobSchedulerTemplateOptions,
  type JobsOptions,
  type JobType,
  type Queue,
  type RepeatOptions,
} from "../bullmq/public.ts";
import type { WorkerFinding } from "../errors.ts";
import type { ExclusiveQueueEvents, ExclusiveQueueListener } from "../events.ts";
import { ExclusiveQueue, type ExclusiveQueueOptions } from "../exclusive-queue.ts";
import { LIST, REASON } from "../operators/key-operators.ts";
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
import { bullText, LABELS, prometheusText, sumCounts } from "../operators/rules/prometheus.ts";
import { type QueueOverview, sumOverviews } from "../operators/rules/worker-report.ts";
import type { WorkerSetup } from "../operators/rules/worker-setup.ts";
import { keyOptions, PATH_OR_FUNCTION } from "../options.ts";
import { rejectWithoutCommand } from "../without-command.ts";
import { Door, divisionFaultOf, LayoutRecord } from "./layout.ts";
import {
  CANCEL,
  type Division,
  divisionOf,
  LOOKUP,
  type NewJob,
  type PartitionedQueueOptions,
  readDivisionOptions,
} from "./options.ts";
import { type MoveOptions, moveQueue, repeatOf, type Scheduler } from "./repartition.ts";
import { findPartition, partitionOf, serverOf } from "./rules/partition.ts";

/** A job for `addBulk`. */
export interface BulkJob<Data, Name extends string> {
  readonly name: Name;
  readonly data: Data;
  readonly opts?: JobsOptions | undefined;
}

const JOB_ID = text({ min: 1 });
const KEY_OPTION = PATH_OR_FUNCTION.optional();
/** Events of the partitions that this queue also emits. Their `queue` is the name of the partition. */
const KEY_EVENTS: readonly (keyof ExclusiveQueueEvents)[] = ["keyPaused", "keyResumed"];
type PartitionedQueueEvent = keyof ExclusiveQueueEvents | "error";
type Listener = (...args: readonly unknown[]) => void;
const INDEX = integer({ min: 0, unit: "" });

// oxlint-disable typescript/no-explicit-any -- BullMQ's own defaults, so that untyped code compiles as before
export class PartitionedQueue<Data = any, Result = any, Name extends string = string> {
  readonly name: string;
  readonly partitions: number;
  /** The queues by partition, for calls that this class does not have. */
  readonly queues: readonly ExclusiveQueue<Data, Result, Name>[];
  readonly #division: Division;
  /** Undefined if the queue adds no jobs. */
  readonly #keyOf: ((job: NewJob<Data, Name>) => unknown) | undefined;
  readonly #doors: readonly Door[];
  readonly #record: LayoutRecord;
  readonly #events = new EventEmitter();
  #flows: FlowProducer[] | undefined;
  #divisionCheck: Promise<void> | undefined;
  #isClosed = false;
  #lastWithoutKey = 0;

  /**
   * Creates the queues of all partitions, which connect immediately. BullMQ's `QueueOptions` apply to each of them.
   * @throws TypeError, RangeError for invalid options, before anything is sent.
   */
  constructor(name: string, given: PartitionedQueueOptions<Data, Name>) {
    const options = readDivisionOptions(given);
    this.#division = divisionOf(name, options);
    const { partitions, places, prefix } = this.#division;
    const { key, partitions: _partitions, connection: _connection, ...bull } = options;
    const checked = KEY_OPTION.of("key", key);
    this.#keyOf =
      checked === undefined ? undefined : (keyOptions(checked).keyOf as (job: NewJob<Data, Name>) => unknown);
    const own = { ...bull, prefix, key: checked as ExclusiveQueueOptions<Data, Name>["key"] };
    this.name = name;
    this.partitions = partitions;
    this.queues = places.map(({ queue, connection }) =>
      this.#listenTo(new ExclusiveQueue<Data, Result, Name>(queue, { ...own, connection })),
    );
    for (const queue of this.queues) {
      for (const event of KEY_EVENTS) queue.on(event, (message: unknown) => void this.#events.emit(event, message));
    }
    this.#doors = this.queues.map((queue) => new Door(queueRedisOf(queue), systemClock));
    this.#record = new LayoutRecord(this.#division, queueRedisOf(this.#queueOf(0)));
  }

  /**
   * Adds a listener for connection errors of all partitions (`error`), or for an event of `ExclusiveQueueEvents`.
   * Without a listener, errors are printed as by BullMQ. The errors do not contain the failed command, because its
   * arguments may contain a password.
   */
  on<Event extends PartitionedQueueEvent>(event: Event, listener: ExclusiveQueueListener[Event]): this {
    this.#events.on(event, listener as Listener);
    return this;
  }

  /** Adds a listener for the next event only. */
  once<Event extends PartitionedQueueEvent>(event: Event, listener: ExclusiveQueueListener[Event]): this {
    this.#events.once(event, listener as Listener);
    return this;
  }

  off<Event extends PartitionedQueueEvent>(event: Event, listener: ExclusiveQueueListener[Event]): this {
    this.#events.off(event, listener as Listener);
    return this;
  }

  /** Returns the partition of a key. */
  partitionOf(key: string): number {
    return partitionOf(key, this.partitions);
  }

  /** Returns the queue that contains the jobs of a key, for calls about one key. */
  queueOf(key: string): ExclusiveQueue<Data, Result, Name> {
    return this.#queueOf(this.partitionOf(key));
  }

  /**
   * Adds a job, like BullMQ's `add`.
   *
   * Job IDs that BullMQ generates are unique only within their partition. Deduplication also works within a partition.
   * @throws RangeError if the key cannot be used, or if several keys belong to different partitions.
   * @throws DivisionMismatchError if the queue is divided in another way, or is being moved to another division.
   */
  async add(name: Name, data: Data, opts?: JobsOptions): Promise<Job<Data, Result, Name>> {
    const partition = this.#partitionFor({ name, data }, opts?.jobId);
    await this.#checkOpen([partition]);
    const added = this.#onPartition(partition, async (queue) => await queue.add(name as never, data as never, opts));
    return (await added) as Job<Data, Result, Name>;
  }

  /**
   * Adds jobs and returns them in the same order. The jobs of one partition are added atomically. If the call rejects,
   * the jobs of other partitions may have been added.
   * @throws RangeError, DivisionMismatchError as `add`. In this case no job was added.
   */
  async addBulk(jobs: readonly BulkJob<Data, Name>[]): Promise<Job<Data, Result, Name>[]> {
    const groups = new Map<number, number[]>();
    for (const [index, { name, data, opts }] of jobs.entries()) {
      const partition = this.#partitionFor({ name, data }, opts?.jobId);
      const group = groups.get(partition);
      if (group === undefined) groups.set(partition, [index]);
      else group.push(index);
    }
    await this.#checkOpen([...groups.keys()]);
    const added: Job<Data, Result, Name>[] = [];
    await Promise.all(
      [...groups].map(async ([partition, indexes]) => {
        const those = indexes.map((index) => jobs[index]);
        const group = await this.#onPartition(partition, async (queue) => await queue.addBulk(those as never));
        for (const [nth, index] of indexes.entries()) added[index] = group[nth] as Job<Data, Result, Name>;
      }),
    );
    return added;
  }

  /**
   * Adds a flow. All its jobs of this queue must belong to one partition. Such jobs have the queue's name as
   * `queueName`, or none. Jobs without a key are added to the partition of the others.
   * @throws RangeError if the jobs belong to different partitions.
   */
  async addFlow(flow: Omit<FlowJob, "queueName"> & { readonly queueName?: string }): Promise<JobNode> {
    const found = new Set<number>();
    const visit = (job: FlowJob): void => {
      if (this.#isOurs(job)) {
        const where = this.#partitionOfJob({ name: job.name as Name, data: job.data as Data });
        if (where !== undefined) found.add(where);
      }
      for (const child of job.children ?? []) visit(child);
    };
    visit(flow as FlowJob);
    if (found.size > 1) {
      const list = [...found].sort((a, b) => a - b).join(", ");
      throw new RangeError(
        `the jobs of a flow must belong to one partition, got ${list}: give their keys a common part in braces`,
      );
    }
    const partition = found.values().next().value ?? this.#nextWithoutKey();
    await this.#checkOpen([partition]);
    const own = this.#queueOf(partition).name;
    const placed = (job: FlowJob): FlowJob => ({
      ...job,
      ...(this.#isOurs(job) ? { queueName: own } : {}),
      ...(job.children === undefined ? {} : { children: job.children.map(placed) }),
    });
    const flows = this.#flowsOf(partition);
    return await rejectWithoutCommand(async () => await flows.add(placed(flow as FlowJob)));
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
    const { name, data } = template;
    const partition = this.#partitionFor({ name, data }, id);
    await this.#checkOpen([partition]);
    await this.#onPartition(partition, async (queue) => {
      await queue.upsertJobScheduler(id as never, repeat, template as never);
      const others = this.queues.filter((_, other) => other !== partition);
      await Promise.all(others.map(async (each) => await each.removeJobScheduler(id)));
    });
  }

  /** Removes a job scheduler. Resolves with false if it does not exist. */
  async removeJobScheduler(id: string): Promise<boolean> {
    JOB_ID.of("id", id);
    return (await this.#onAll(async (queue) => await queue.removeJobScheduler(id))).includes(true);
  }

  /** Lists the job schedulers of all partitions, ordered by their next time. */
  async getJobSchedulers(): ReturnType<Queue<Data, Result, Name>["getJobSchedulers"]> {
    const found = (await this.#onAll(async (queue) => await queue.getJobSchedulers())).flat();
    return found.sort((a, b) => (a.next ?? 0) - (b.next ?? 0));
  }

  /**
   * Counts jobs by state, over all partitions. `types` are the states to count, as for BullMQ's method. Default: all
   * states.
   */
  async getJobCounts(...types: JobType[]): Promise<Record<string, number>> {
    return sumCounts(await this.#onAll(async (queue) => await queue.getJobCounts(...types)));
  }

  /**
   * Returns a page of the jobs in these states, over all partitions: the jobs from `start` (default 0) to `end`
   * (default 99, included), the newest first. With `asc`, the oldest job is first. The cost is O(partitions × end).
   * @throws TypeError, RangeError if `start` or `end` is negative.
   */
  async getJobs(types: JobType | JobType[], start = 0, end = 99, asc = false): Promise<Job<Data, Result, Name>[]> {
    INDEX.of("start", start);
    INDEX.of("end", end);
    const pages = await this.#onAll(async (queue) => await queue.getJobs(types, 0, end, asc));
    const sign = asc ? 1 : -1;
    const merged = pages.flat().filter((job) => (job ?? undefined) !== undefined);
    merged.sort((a, b) => sign * (a.timestamp - b.timestamp));
    return merged.slice(start, end + 1) as Job<Data, Result, Name>[];
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
    return await this.#findOne(id, options, async (queue) => (await queue.getJob(id)) as Job<Data, Result, Name>);
  }

  /** Counts the waiting jobs of all partitions. */
  async count(): Promise<number> {
    return (await this.#onAll(async (queue) => await queue.count())).reduce(add, 0);
  }

  /** Lists the keys of all partitions. See `ExclusiveQueue.listKeys`. */
  async listKeys(options: { readonly limit?: number | undefined } = {}): Promise<BusyKey[]> {
    const { limit } = LIST.resolve(options);
    return (await this.#onAll(async (queue) => await queue.listKeys({ limit }))).flat().slice(0, limit);
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
    const found = await this.#findOne(jobId, { key }, async (queue) =>
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
    return await this.#findOne(jobId, options, async (queue) => await queue.explain(jobId));
  }

  /** Reads a key and its jobs at one moment. See `ExclusiveQueue.readKey`. */
  async readKey(key: string, options: { readonly limit?: number | undefined } = {}): Promise<KeyReading> {
    return await this.queueOf(key).readKey(key, options);
  }

  /**
   * Reads all partitions, each at one moment. `atMs` is the latest of these moments, and `isPaused` reports whether all
   * partitions are paused. See `ExclusiveQueue.overview`.
   */
  async overview(): Promise<QueueOverview> {
    return sumOverviews(await this.#onAll(async (queue) => await queue.overview()));
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
    const found = await this.#onAll(async (queue) => await queue.listKeyPolicies({ limit }));
    return new Map(found.flatMap((each) => [...each]).slice(0, limit));
  }

  /** Counts jobs and keys over all partitions. See `ExclusiveQueue.counts`. */
  async counts(): Promise<JobCounts> {
    return sumCounts(await this.#onAll(async (queue) => await queue.counts()));
  }

  /** Resolves with the metrics of all partitions together. See `ExclusiveQueue.exportPrometheusMetrics`. */
  async exportPrometheusMetrics(labels: Record<string, string> = {}): Promise<string> {
    LABELS.of("labels", labels);
    const ended = async (state: "completed" | "failed"): Promise<number> =>
      (await this.#onAll(async (queue) => (await queue.getMetrics(state)).meta.count)).reduce(add, 0);
    const [jobs, completed, failed, counts] = await Promise.all([
      this.getJobCounts(),
      ended("completed"),
      ended("failed"),
      this.counts(),
    ]);
    return [bullText(this.name, { jobs, completed, failed }, labels), prometheusText(this.name, counts, labels)].join(
      "\n",
    );
  }

  /**
   * Returns the options of this queue's running workers. Workers of a process with the same options are listed once.
   * See `ExclusiveQueue.setups`.
   */
  async setups(): Promise<readonly WorkerSetup[]> {
    const found = (await this.#onAll(async (queue) => await queue.setups())).flat();
    return [...new Map(found.map((setup) => [JSON.stringify(setup), setup])).values()];
  }

  /**
   * Looks for everything that weakens a promise in any partition, and for a difference between this and the queue's
   * division.
   */
  async check(): Promise<readonly WorkerFinding[]> {
    const findings = (await this.#onAll(async (queue) => await queue.check())).flat();
    const layout = await this.#record.run("read");
    const fault = layout.partitions === 0 ? undefined : divisionFaultOf(this.#division, layout);
    const unique = [...new Map(findings.map((finding) => [JSON.stringify(finding), finding])).values()];
    return fault === undefined ? unique : [fault.finding, ...unique];
  }

  /** Pauses all partitions, in no particular order. */
  async pause(): Promise<void> {
    await this.#onAll(async (queue) => await queue.pause());
  }

  async resume(): Promise<void> {
    await this.#onAll(async (queue) => await queue.resume());
  }

  /** Resolves with true if every partition is paused. */
  async isPaused(): Promise<boolean> {
    return !(await this.#onAll(async (queue) => await queue.isPaused())).includes(false);
  }

  /** Removes the waiting jobs. With `delayed`, delayed and parked jobs are removed as well. */
  async drain(delayed?: boolean): Promise<void> {
    await this.#onAll(async (queue) => await queue.drain(delayed));
  }

  /** Removes all data of all partitions, like BullMQ's `obliterate`. Only the record of the division remains. */
  async obliterate(options?: { readonly force?: boolean; readonly count?: number }): Promise<void> {
    await this.#onAll(async (queue) => await queue.obliterate(options));
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
    const addScheduler = async (scheduler: Scheduler): Promise<void> => {
      // Producers of this division may have changed the scheduler since the announcement, and the newer version
      // remains.
      const known = await this.#onAll(async (queue) => await queue.getJobScheduler(scheduler.key));
      if (known.some((each) => (each ?? undefined) !== undefined)) return;
      const { data, opts } = scheduler.template ?? {};
      const template = { name: scheduler.name as Name, data: data as Data, opts };
      const repeat = repeatOf(scheduler);
      if (repeat !== undefined) await this.upsertJobScheduler(scheduler.key, repeat, template);
    };
    const onError = (error: Error): void => this.#reportError(error);
    const parts = { clock: systemClock, record: this.#record, doors: this.#doors, addScheduler, onError };
    return await rejectWithoutCommand(async () => await moveQueue(this.#division, from, parts, options));
  }

  /** Resolves when all partitions are connected. */
  async waitUntilReady(): Promise<void> {
    await this.#onAll(async (queue) => await queue.waitUntilReady());
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all([...this.queues, ...(this.#flows ?? [])].map(async (each) => await each.close()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #queueOf(partition: number): ExclusiveQueue<Data, Result, Name> {
    return this.queues[partition] as ExclusiveQueue<Data, Result, Name>;
  }

  #flowsOf(partition: number): FlowProducer {
    // Connections opened after the close would never be closed.
    if (this.#isClosed) throw new Error(`queue "${this.name}" is closed`);
    const { servers, prefix } = this.#division;
    this.#flows ??= servers.map((connection) => this.#listenTo(new FlowProducer({ connection, prefix })));
    return serverOf(this.#flows, partition);
  }

  #isOurs({ queueName: of }: FlowJob): boolean {
    return (of ?? this.name) === this.name;
  }

  /** Throws `RangeError` for invalid keys, and for keys of different partitions. */
  #partitionOfJob(job: NewJob<Data, Name>): number | undefined {
    if (this.#keyOf === undefined) throw new TypeError(`key must be given to add jobs to the queue "${this.name}"`);
    const where = findPartition(this.#keyOf(job), this.partitions);
    if ("fault" in where) throw new RangeError(`the job's key ${where.fault}`);
    return where.partition;
  }

  #partitionFor(job: NewJob<Data, Name>, id: string | undefined): number {
    return this.#partitionOfJob(job) ?? (id === undefined ? this.#nextWithoutKey() : partitionOf(id, this.partitions));
  }

  /** Asks the partition of the key, or all partitions, for a job. Rejects if several partitions have the job. */
  async #findOne<Found>(
    id: string,
    options: { readonly key?: string | undefined },
    ask: (queue: ExclusiveQueue<Data, Result, Name>) => Promise<Found | undefined>,
  ): Promise<Found | undefined> {
    const { key } = LOOKUP.resolve(options);
    const asked = key === undefined ? await this.#onAll(ask) : [await this.#onPartition(this.partitionOf(key), ask)];
    const found = asked.filter((each) => (each ?? undefined) !== undefined);
    if (found.length > 1) throw new RangeError(`${found.length} partitions have a job ${id}: give its key`);
    return found[0];
  }

  /** Returns the partition of the next job that has neither a key nor an ID. */
  #nextWithoutKey(): number {
    this.#lastWithoutKey = (this.#lastWithoutKey + 1) % this.partitions;
    return this.#lastWithoutKey;
  }

  async #onPartition<Value>(
    partition: number,
    ask: (queue: ExclusiveQueue<Data, Result, Name>) => Promise<Value>,
  ): Promise<Value> {
    return await rejectWithoutCommand(async () => await ask(this.#queueOf(partition)));
  }

  async #onAll<Value>(ask: (queue: ExclusiveQueue<Data, Result, Name>) => Promise<Value>): Promise<Value[]> {
    return await rejectWithoutCommand(async () => await Promise.all(this.queues.map(ask)));
  }

  /** Forwards errors of BullMQ's queue to the listeners of this queue. */
  #listenTo<
    Source extends Pick<EventEmitter, "listenerCount"> & {
      on(event: "error", listener: (error: Error) => void): unknown;
    },
  >(source: Source): Source {
    source.on("error", (error) => this.#reportError(error, source.listenerCount("error") > 1));
    return source;
  }

  /** `isHeard`: whether the user listens to BullMQ's own queue. */
  #reportError(error: Error, isHeard = false): void {
    const plain = withoutCommand(error);
    if (this.#events.listenerCount("error") > 0) this.#events.emit("error", plain);
    // oxlint-disable-next-line eslint/no-console -- as BullMQ does, where nobody listens
    else if (!isHeard) console.error(plain);
  }

  /** Rejects unless jobs may be added to these partitions. */
  async #checkOpen(partitions: readonly number[]): Promise<void> {
    this.#divisionCheck ??= this.#compare().catch((error: unknown) => {
      this.#divisionCheck = undefined;
      throw error;
    });
    await this.#divisionCheck;
    await Promise.all(
      partitions.map(async (partition) => await this.#doors[partition]?.assertOpen(this.name, this.partitions)),
    );
  }

  async #compare(): Promise<void> {
    const fault = divisionFaultOf(this.#division, await this.#record.run("register"));
    if (fault !== undefined) throw fault;
  }
}

function add(sum: number, count: number): number {
  return sum + count;
}
