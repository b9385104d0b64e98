/**
 * A divided queue: BullMQ's methods for producers, in addition to the operators' methods (partitioned-operators.ts).
 * Each partition is an `ExclusiveQueue`, and a job's key selects the partition.
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
import type { ExclusiveQueueEvents, ExclusiveQueueListener } from "../events.ts";
import type { ExclusiveQueueOptions } from "../exclusive-queue.ts";
import { JOB_ID } from "../operators/rules/operator-arguments.ts";
import { sumCounts } from "../operators/rules/prometheus.ts";
import { keyOptions, PATH_OR_FUNCTION } from "../options.ts";
import {
  divisionOf,
  type LookupOptions,
  type NewJob,
  type PartitionedQueueOptions,
  readDivisionOptions,
} from "./options.ts";
import { PartitionQueues } from "./partition-queues.ts";
import { PartitionedOperators } from "./partitioned-operators.ts";
import { type BulkJob, PartitionedProducer } from "./producer.ts";
import type { MoveOptions } from "./repartition.ts";
import { mergePages } from "./rules/merge.ts";

const KEY_OPTION = PATH_OR_FUNCTION.optional();
type PartitionedQueueEvent = keyof ExclusiveQueueEvents | "error";
const INDEX = integer({ min: 0, unit: "" });
const SCHEDULER_ID = text({ min: 1 });

// oxlint-disable typescript/no-explicit-any -- BullMQ's own defaults, so that untyped code compiles as before
export class PartitionedQueue<Data = any, Result = any, Name extends string = string> extends PartitionedOperators<
  Data,
  Result,
  Name
> {
  readonly #partitionQueues: PartitionQueues<Data, Result, Name>;
  readonly #producer: PartitionedProducer<Data, Result, Name>;

  /**
   * Creates the queues of all partitions, which connect immediately. BullMQ's `QueueOptions` apply to each queue.
   * @throws TypeError, RangeError for invalid options, before anything is sent.
   */
  constructor(name: string, given: PartitionedQueueOptions<Data, Name>) {
    const options = readDivisionOptions(given);
    const division = divisionOf(name, options);
    const { key, partitions: _partitions, connection: _connection, ...bull } = options;
    const checked = KEY_OPTION.of("key", key) as ExclusiveQueueOptions<Data, Name>["key"];
    const keyOf =
      checked === undefined ? undefined : (keyOptions(checked).keyOf as (job: NewJob<Data, Name>) => unknown);
    const queues = new PartitionQueues<Data, Result, Name>(division, {
      ...bull,
      prefix: division.prefix,
      key: checked,
    });
    super(queues);
    this.#partitionQueues = queues;
    this.#producer = new PartitionedProducer(queues, keyOf);
  }

  /**
   * Adds a listener for connection errors of all partitions (`error`), or for an event of `ExclusiveQueueEvents`.
   * Without a listener, errors are printed as by BullMQ. The errors do not contain the failed command, because its
   * arguments may contain a password.
   */
  on<Event extends PartitionedQueueEvent>(event: Event, listener: ExclusiveQueueListener[Event]): this {
    this.#partitionQueues.events.on(event, listener as () => void);
    return this;
  }

  /** Adds a listener for the next event only. */
  once<Event extends PartitionedQueueEvent>(event: Event, listener: ExclusiveQueueListener[Event]): this {
    this.#partitionQueues.events.once(event, listener as () => void);
    return this;
  }

  off<Event extends PartitionedQueueEvent>(event: Event, listener: ExclusiveQueueListener[Event]): this {
    this.#partitionQueues.events.off(event, listener as () => void);
    return this;
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
   * Adds a flow. All its jobs of this queue must belong to one partition. The `queueName` of such a job is the queue's
   * name, or is left out. Jobs without a key are added to the partition of the others.
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
    SCHEDULER_ID.of("id", id);
    await this.#producer.upsertJobScheduler(id, repeat, template);
  }

  /** Removes a job scheduler. Resolves with false if it does not exist. */
  async removeJobScheduler(id: string): Promise<boolean> {
    SCHEDULER_ID.of("id", id);
    return (await this.#partitionQueues.askAll(async (queue) => await queue.removeJobScheduler(id))).includes(true);
  }

  /** Lists the job schedulers of all partitions, ordered by their next time. */
  async getJobSchedulers(): ReturnType<Queue<Data, Result, Name>["getJobSchedulers"]> {
    const found = (await this.#partitionQueues.askAll(async (queue) => await queue.getJobSchedulers())).flat();
    return found.sort((a, b) => (a.next ?? 0) - (b.next ?? 0));
  }

  /**
   * Counts jobs by state, over all partitions. `types` are the states to count, as for BullMQ's method. Default: all
   * states.
   */
  async getJobCounts(...types: JobType[]): Promise<Record<string, number>> {
    return sumCounts(await this.#partitionQueues.askAll(async (queue) => await queue.getJobCounts(...types)));
  }

  /**
   * Returns a page of the jobs in these states, over all partitions: the jobs from `start` (default 0) to `end`
   * (default 99, included), the newest first. With `asc`, the oldest job is first. The cost is O(partitions × end).
   * @throws TypeError, RangeError if `start` or `end` is negative.
   */
  async getJobs(types: JobType | JobType[], start = 0, end = 99, asc = false): Promise<Job<Data, Result, Name>[]> {
    INDEX.of("start", start);
    INDEX.of("end", end);
    const pages = await this.#partitionQueues.askAll(async (queue) => await queue.getJobs(types, 0, end, asc));
    return mergePages(pages as Job<Data, Result, Name>[][], { start, end, asc });
  }

  /**
   * Returns the job with this ID. Without the job's `key`, all partitions are asked.
   * @throws RangeError if several partitions have a job with this ID. In this case pass the `key`.
   */
  async getJob(id: string, options: LookupOptions = {}): Promise<Job<Data, Result, Name> | undefined> {
    JOB_ID.of("id", id);
    return await this.#partitionQueues.findJob(
      id,
      options,
      async (queue) => (await queue.getJob(id)) as Job<Data, Result, Name>,
    );
  }

  /** Counts the waiting jobs of all partitions. */
  async count(): Promise<number> {
    return (await this.#partitionQueues.askAll(async (queue) => await queue.count())).reduce(
      (sum, count) => sum + count,
      0,
    );
  }

  /** Pauses all partitions, in no particular order. */
  async pause(): Promise<void> {
    await this.#partitionQueues.askAll(async (queue) => await queue.pause());
  }

  async resume(): Promise<void> {
    await this.#partitionQueues.askAll(async (queue) => await queue.resume());
  }

  /** Resolves with true if every partition is paused. */
  async isPaused(): Promise<boolean> {
    return !(await this.#partitionQueues.askAll(async (queue) => await queue.isPaused())).includes(false);
  }

  /** Removes the waiting jobs. With `delayed`, delayed and parked jobs are removed as well. */
  async drain(delayed?: boolean): Promise<void> {
    await this.#partitionQueues.askAll(async (queue) => await queue.drain(delayed));
  }

  /** Removes all data of all partitions, like BullMQ's `obliterate`. Only the record of the division remains. */
  async obliterate(options?: { readonly force?: boolean; readonly count?: number }): Promise<void> {
    await this.#partitionQueues.askAll(async (queue) => await queue.obliterate(options));
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
    await this.#partitionQueues.askAll(async (queue) => await queue.waitUntilReady());
  }

  async close(): Promise<void> {
    await Promise.all([...this.queues, this.#producer].map(async (each) => await each.close()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
