/**
 * The producers' side of a queue that is divided into partitions, each a queue of BullMQ's. A job's key says which.
 *
 * Guaranteed: jobs of one key are all in one partition, so that what one queue promises for a key holds. No job is
 * added to a partition that is closed, as the server knew at most a second ago.
 *
 * Not guaranteed: any order between partitions, or that what concerns several of them happens at once.
 */
import { EventEmitter } from "node:events";
import { systemClock } from "@x/redlock-core";
import { integer, text } from "@x/redlock-core/kit";
import { queueRedisOf } from "../bullmq/bullmq.ts";
import {
  type FlowJob,
  FlowProducer,
  type Job,
  type JobNode,
  type JobSchedulerTemplateOptions,
  type JobsOptions,
  type JobType,
  Queue,
  type RepeatOptions,
} from "../bullmq/public.ts";
import { withoutCommand } from "../errors.ts";
import { sumPrometheusTexts } from "../operators/rules/prometheus.ts";
import { keyOptions, PATH_OR_FUNCTION } from "../options.ts";
import { rejectWithoutCommand } from "../without-command.ts";
import { Door, faultOf, LayoutRecord } from "./layout.ts";
import {
  type Division,
  divisionOf,
  LOOKUP,
  type NewJob,
  type PartitionedQueueOptions,
  readDivided,
} from "./options.ts";
import { type MoveOptions, moveQueue, repeatOf, type Scheduler } from "./repartition.ts";
import { partitionOf, serverOf, sumsOf, whereIs } from "./rules/partition.ts";

/** A job for `addBulk`. */
export interface BulkJob<Data, Name extends string> {
  readonly name: Name;
  readonly data: Data;
  readonly opts?: JobsOptions | undefined;
}

const JOB_ID = text({ min: 1 });
const INDEX = integer({ min: 0, unit: "" });

// oxlint-disable typescript/no-explicit-any -- BullMQ's own defaults, so that untyped code compiles as before
export class PartitionedQueue<Data = any, Result = any, Name extends string = string> {
  // oxlint-enable typescript/no-explicit-any
  readonly name: string;
  readonly partitions: number;
  /** BullMQ's queues, by partition, for what this class has no method for. */
  readonly queues: readonly Queue<Data, Result, Name>[];
  readonly #division: Division;
  readonly #keyOf: (job: NewJob<Data, Name>) => unknown;
  readonly #doors: readonly Door[];
  readonly #record: LayoutRecord;
  readonly #events = new EventEmitter();
  #flows: FlowProducer[] | undefined;
  #isKnown: Promise<void> | undefined;
  #isClosed = false;
  #lastWithoutKey = 0;

  /**
   * Makes the queues of all partitions, which connect now. BullMQ's `QueueOptions` hold for each.
   * @throws TypeError, RangeError for bad options, before anything is sent.
   */
  constructor(name: string, given: PartitionedQueueOptions<Data, Name>) {
    const options = readDivided(given);
    this.#division = divisionOf(name, options);
    const { partitions, places, prefix } = this.#division;
    const { key, partitions: _partitions, connection: _connection, ...bull } = options;
    this.#keyOf = keyOptions(PATH_OR_FUNCTION.of("key", key)).keyOf as (job: NewJob<Data, Name>) => unknown;
    this.name = name;
    this.partitions = partitions;
    this.queues = places.map(({ queue, connection }) =>
      this.#listenTo(new Queue(queue, { ...bull, prefix, connection })),
    );
    this.#doors = this.queues.map((queue) => new Door(queueRedisOf(queue), systemClock));
    this.#record = new LayoutRecord(this.#division, queueRedisOf(this.#queueOf(0)));
  }

  /**
   * Adds a listener for errors of the connections of all partitions. Without one, an error is printed as BullMQ does.
   * No error contains the command that failed, because its arguments may be a password.
   */
  on(event: "error", listener: (error: Error) => void): this {
    this.#events.on(event, listener);
    return this;
  }

  /** Adds a listener for the next error. */
  once(event: "error", listener: (error: Error) => void): this {
    this.#events.once(event, listener);
    return this;
  }

  off(event: "error", listener: (error: Error) => void): this {
    this.#events.off(event, listener);
    return this;
  }

  /** Returns the partition of a key. */
  partitionOf(key: string): number {
    return partitionOf(key, this.partitions);
  }

  /** Returns the queue of a key, for what concerns one key. */
  queueOf(key: string): Queue<Data, Result, Name> {
    return this.#queueOf(this.partitionOf(key));
  }

  /**
   * Adds a job, as BullMQ's `add` does.
   *
   * Ids that BullMQ gives out are unique in their partition only; so is a deduplication.
   * @throws RangeError if the key cannot be used, or several keys are of different partitions.
   * @throws DivisionMismatchError if the queue is divided in another way, or is being moved to one.
   */
  async add(name: Name, data: Data, opts?: JobsOptions): Promise<Job<Data, Result, Name>> {
    const partition = this.#whereIs({ name, data }, opts?.jobId);
    await this.#enter([partition]);
    const added = this.#ask(partition, async (queue) => await queue.add(name as never, data as never, opts));
    return (await added) as Job<Data, Result, Name>;
  }

  /** Adds jobs and returns them in the same order. Those of one partition are added at once, or none of them. */
  async addBulk(jobs: readonly BulkJob<Data, Name>[]): Promise<Job<Data, Result, Name>[]> {
    const groups = new Map<number, number[]>();
    for (const [index, { name, data, opts }] of jobs.entries()) {
      const partition = this.#whereIs({ name, data }, opts?.jobId);
      const group = groups.get(partition);
      if (group === undefined) groups.set(partition, [index]);
      else group.push(index);
    }
    await this.#enter([...groups.keys()]);
    const added: Job<Data, Result, Name>[] = [];
    await Promise.all(
      [...groups].map(async ([partition, indexes]) => {
        const those = indexes.map((index) => jobs[index]);
        const group = await this.#ask(partition, async (queue) => await queue.addBulk(those as never));
        for (const [nth, index] of indexes.entries()) added[index] = group[nth] as Job<Data, Result, Name>;
      }),
    );
    return added;
  }

  /**
   * Adds a flow whose jobs of this queue are all of one partition. Their `queueName` is the queue's name, or is left
   * out. A job without a key goes where the others are.
   * @throws RangeError if they are of different partitions.
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
        `the jobs of a flow must be of one partition, got ${list}: give their keys a common part in braces`,
      );
    }
    const partition = found.values().next().value ?? this.#nextWithoutKey();
    await this.#enter([partition]);
    const own = this.#queueOf(partition).name;
    const placed = (job: FlowJob): FlowJob => ({
      ...job,
      ...(this.#isOurs(job) ? { queueName: own } : {}),
      ...(job.children === undefined ? {} : { children: job.children.map(placed) }),
    });
    const flows = this.#flowsOf(partition);
    return await rejectWithoutCommand(async () => await flows.add(placed(flow as FlowJob)));
  }

  /** Adds or changes a job scheduler. Its template's key says in which partition; it is removed from all others. */
  async upsertJobScheduler(
    id: string,
    repeat: Omit<RepeatOptions, "key">,
    template: { readonly name: Name; readonly data: Data; readonly opts?: JobSchedulerTemplateOptions | undefined },
  ): Promise<void> {
    JOB_ID.of("id", id);
    const { name, data } = template;
    const partition = this.#whereIs({ name, data }, id);
    await this.#enter([partition]);
    await this.#ask(partition, async (queue) => {
      await queue.upsertJobScheduler(id as never, repeat, template as never);
      const others = this.queues.filter((_, other) => other !== partition);
      await Promise.all(others.map(async (each) => await each.removeJobScheduler(id)));
    });
  }

  /** Removes a job scheduler. Resolves false if there was none. */
  async removeJobScheduler(id: string): Promise<boolean> {
    JOB_ID.of("id", id);
    return (await this.#all(async (queue) => await queue.removeJobScheduler(id))).includes(true);
  }

  /** Lists the job schedulers of all partitions, by their next time. */
  async getJobSchedulers(): ReturnType<Queue<Data, Result, Name>["getJobSchedulers"]> {
    const found = (await this.#all(async (queue) => await queue.getJobSchedulers())).flat();
    return found.sort((a, b) => (a.next ?? 0) - (b.next ?? 0));
  }

  /** Counts jobs by their states, over all partitions. As BullMQ's, it takes the states to count; default: all. */
  async getJobCounts(...types: JobType[]): Promise<Record<string, number>> {
    return sumsOf(await this.#all(async (queue) => await queue.getJobCounts(...types)));
  }

  /**
   * Returns a page of the jobs in these states, over all partitions. They are the `start`-th to the `end`-th by the
   * time at which they were added. It costs O(partitions x end).
   */
  async getJobs(types: JobType | JobType[], start = 0, end = 99, asc = false): Promise<Job<Data, Result, Name>[]> {
    INDEX.of("start", start);
    INDEX.of("end", end);
    const pages = await this.#all(async (queue) => await queue.getJobs(types, 0, end, asc));
    const sign = asc ? 1 : -1;
    const merged = pages.flat().filter((job) => (job ?? undefined) !== undefined);
    merged.sort((a, b) => sign * (a.timestamp - b.timestamp));
    return merged.slice(start, end + 1) as Job<Data, Result, Name>[];
  }

  /**
   * Returns the job of this id. Without its `key` all partitions are asked.
   * @throws RangeError if several partitions have a job of that id: then give the `key`.
   */
  async getJob(
    id: string,
    options: { readonly key?: string | undefined } = {},
  ): Promise<Job<Data, Result, Name> | undefined> {
    JOB_ID.of("id", id);
    const { key } = LOOKUP.resolve(options);
    const asked =
      key === undefined
        ? await this.#all(async (queue) => await queue.getJob(id))
        : [await this.#ask(this.partitionOf(key), async (queue) => await queue.getJob(id))];
    const found = asked.filter((job) => (job ?? undefined) !== undefined);
    if (found.length > 1) throw new RangeError(`${found.length} partitions have a job ${id}: give its key`);
    return found[0] as Job<Data, Result, Name> | undefined;
  }

  /** Counts the jobs that wait, in all partitions. */
  async count(): Promise<number> {
    return (await this.#all(async (queue) => await queue.count())).reduce((sum, count) => sum + count, 0);
  }

  /** Resolves with BullMQ's metrics of all partitions together, in the text format of Prometheus. */
  async exportPrometheusMetrics(globalVariables?: Record<string, string>): Promise<string> {
    return sumPrometheusTexts(
      this.name,
      await this.#all(async (queue) => await queue.exportPrometheusMetrics(globalVariables)),
    );
  }

  /** Pauses all partitions, one after the other in no order. */
  async pause(): Promise<void> {
    await this.#all(async (queue) => await queue.pause());
  }

  async resume(): Promise<void> {
    await this.#all(async (queue) => await queue.resume());
  }

  /** Resolves true if every partition is paused. */
  async isPaused(): Promise<boolean> {
    return !(await this.#all(async (queue) => await queue.isPaused())).includes(false);
  }

  /** Removes the jobs that wait, and with `delayed` those that are delayed or parked, too. */
  async drain(delayed?: boolean): Promise<void> {
    await this.#all(async (queue) => await queue.drain(delayed));
  }

  /** Removes everything of all partitions, as BullMQ's `obliterate` does. The division stays written down. */
  async obliterate(options?: { readonly force?: boolean; readonly count?: number }): Promise<void> {
    await this.#all(async (queue) => await queue.obliterate(options));
  }

  /**
   * Moves the queue from another number of partitions to this one. It announces that, moves the job schedulers, waits
   * until no job is left there, and has this division's workers begin. Resolves with 0, or with the number of jobs that
   * came there after an earlier move.
   *
   * Keep the workers of the old division running, and have those of the new one started. Delayed jobs are waited for.
   * @throws DivisionMismatchError if the queue has another division than `from`, or is being moved elsewhere.
   */
  async moveFrom(from: number, options: MoveOptions = {}): Promise<number> {
    const addScheduler = async (scheduler: Scheduler): Promise<void> => {
      // Producers of this division may have changed it since the move was announced: what they say is newer.
      const known = await this.#all(async (queue) => await queue.getJobScheduler(scheduler.key));
      if (known.some((each) => (each ?? undefined) !== undefined)) return;
      const { data, opts } = scheduler.template ?? {};
      const template = { name: scheduler.name as Name, data: data as Data, opts };
      const repeat = repeatOf(scheduler);
      if (repeat !== undefined) await this.upsertJobScheduler(scheduler.key, repeat, template);
    };
    const onError = (error: Error): void => this.#tellError(error);
    const parts = { clock: systemClock, record: this.#record, doors: this.#doors, addScheduler, onError };
    return await rejectWithoutCommand(async () => await moveQueue(this.#division, from, parts, options));
  }

  /** Resolves when all partitions are connected. */
  async waitUntilReady(): Promise<void> {
    await this.#all(async (queue) => await queue.waitUntilReady());
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all([...this.queues, ...(this.#flows ?? [])].map(async (each) => await each.close()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #queueOf(partition: number): Queue<Data, Result, Name> {
    return this.queues[partition] as Queue<Data, Result, Name>;
  }

  #flowsOf(partition: number): FlowProducer {
    // Nobody would close its connections.
    if (this.#isClosed) throw new Error(`queue "${this.name}" is closed`);
    const { servers, prefix } = this.#division;
    this.#flows ??= servers.map((connection) => this.#listenTo(new FlowProducer({ connection, prefix })));
    return serverOf(this.#flows, partition);
  }

  #isOurs({ queueName: of }: FlowJob): boolean {
    return (of ?? this.name) === this.name;
  }

  /** Throws for keys that are none, or of several partitions. */
  #partitionOfJob(job: NewJob<Data, Name>): number | undefined {
    const where = whereIs(this.#keyOf(job), this.partitions);
    if ("fault" in where) throw new RangeError(`the job's key ${where.fault}`);
    return where.partition;
  }

  #whereIs(job: NewJob<Data, Name>, id: string | undefined): number {
    return this.#partitionOfJob(job) ?? (id === undefined ? this.#nextWithoutKey() : partitionOf(id, this.partitions));
  }

  /** Returns the partition of the next job without a key and an id. */
  #nextWithoutKey(): number {
    this.#lastWithoutKey = (this.#lastWithoutKey + 1) % this.partitions;
    return this.#lastWithoutKey;
  }

  async #ask<Value>(partition: number, ask: (queue: Queue<Data, Result, Name>) => Promise<Value>): Promise<Value> {
    return await rejectWithoutCommand(async () => await ask(this.#queueOf(partition)));
  }

  async #all<Value>(ask: (queue: Queue<Data, Result, Name>) => Promise<Value>): Promise<Value[]> {
    return await rejectWithoutCommand(async () => await Promise.all(this.queues.map(ask)));
  }

  /** Notifies this queue's listeners of the errors of BullMQ's. */
  #listenTo<
    Source extends Pick<EventEmitter, "listenerCount"> & {
      on(event: "error", listener: (error: Error) => void): unknown;
    },
  >(source: Source): Source {
    source.on("error", (error) => this.#tellError(error, source.listenerCount("error") > 1));
    return source;
  }

  /** `isHeard`: whether the user listens to BullMQ's own queue. */
  #tellError(error: Error, isHeard = false): void {
    const plain = withoutCommand(error);
    if (this.#events.listenerCount("error") > 0) this.#events.emit("error", plain);
    // oxlint-disable-next-line eslint/no-console -- as BullMQ does, where nobody listens
    else if (!isHeard) console.error(plain);
  }

  /** Rejects unless jobs may be added to these partitions. */
  async #enter(partitions: readonly number[]): Promise<void> {
    this.#isKnown ??= this.#compare().catch((error: unknown) => {
      this.#isKnown = undefined;
      throw error;
    });
    await this.#isKnown;
    await Promise.all(
      partitions.map(async (partition) => await this.#doors[partition]?.pass(this.name, this.partitions)),
    );
  }

  async #compare(): Promise<void> {
    const fault = faultOf(this.#division, await this.#record.ask("look"));
    if (fault !== undefined) throw fault;
  }
}
