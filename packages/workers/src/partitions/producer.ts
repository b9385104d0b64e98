/**
 * Adds jobs, flows and job schedulers to the partitions of a divided queue, and moves the queue to another division.
 *
 * Guaranteed: no job is added to a closed partition, according to an answer of its server that is at most a second old.
 * Before the first job, the division is compared with the stored layout.
 */
import { systemClock } from "@x/redlock-core";
import { queueRedisOf } from "../bullmq/bullmq.ts";
import {
  type FlowJob,
  FlowProducer,
  type Job,
  type JobNode,
  type JobSchedulerTemplateOptions,
  type JobsOptions,
  type RepeatOptions,
} from "../bullmq/public.ts";
import { rejectWithoutCommand } from "../without-command.ts";
import { JobPlacement } from "./job-placement.ts";
import { Door } from "./layout.ts";
import type { NewJob } from "./options.ts";
import type { PartitionQueues } from "./partition-queues.ts";
import { type MoveOptions, moveQueue, repeatOf, type Scheduler } from "./repartition.ts";
import { serverOf } from "./rules/partition.ts";

/** A job for `addBulk`. */
export interface BulkJob<Data, Name extends string> {
  readonly name: Name;
  readonly data: Data;
  readonly opts?: JobsOptions | undefined;
}

/** The methods are described at the methods of `PartitionedQueue` with the same names. */
export class PartitionedProducer<Data, Result, Name extends string> {
  readonly #queues: PartitionQueues<Data, Result, Name>;
  readonly #placement: JobPlacement<Data, Name>;
  readonly #doors: readonly Door[];
  #flows: FlowProducer[] | undefined;
  #divisionCheck: Promise<void> | undefined;
  #isClosed = false;

  /** `keyOf` is undefined if the queue adds no jobs. */
  constructor(queues: PartitionQueues<Data, Result, Name>, keyOf: ((job: NewJob<Data, Name>) => unknown) | undefined) {
    this.#queues = queues;
    this.#placement = new JobPlacement(queues.division, keyOf);
    this.#doors = queues.all.map((queue) => new Door(queueRedisOf(queue), systemClock));
  }

  async add(name: Name, data: Data, opts?: JobsOptions): Promise<Job<Data, Result, Name>> {
    const partition = this.#placement.partitionFor({ name, data }, opts?.jobId);
    await this.#checkOpen([partition]);
    const add = this.#queues.askOne(partition, async (queue) => await queue.add(name as never, data as never, opts));
    return (await add) as Job<Data, Result, Name>;
  }

  async addBulk(jobs: readonly BulkJob<Data, Name>[]): Promise<Job<Data, Result, Name>[]> {
    const groups = new Map<number, number[]>();
    for (const [index, { name, data, opts }] of jobs.entries()) {
      const partition = this.#placement.partitionFor({ name, data }, opts?.jobId);
      const group = groups.get(partition);
      if (group === undefined) groups.set(partition, [index]);
      else group.push(index);
    }
    await this.#checkOpen([...groups.keys()]);
    const added: Job<Data, Result, Name>[] = [];
    await Promise.all(
      [...groups].map(async ([partition, indexes]) => {
        const ofPartition = indexes.map((index) => jobs[index]);
        const group = await this.#queues.askOne(partition, async (queue) => await queue.addBulk(ofPartition as never));
        for (const [nth, index] of indexes.entries()) added[index] = group[nth] as Job<Data, Result, Name>;
      }),
    );
    return added;
  }

  async addFlow(flow: FlowJob): Promise<JobNode> {
    const partition = this.#placement.partitionForFlow(flow);
    await this.#checkOpen([partition]);
    const flows = this.#flowsOf(partition);
    const placed = this.#placement.placeFlow(flow, this.#queues.at(partition).name);
    return await rejectWithoutCommand(async () => await flows.add(placed));
  }

  async upsertJobScheduler(
    id: string,
    repeat: Omit<RepeatOptions, "key">,
    template: { readonly name: Name; readonly data: Data; readonly opts?: JobSchedulerTemplateOptions | undefined },
  ): Promise<void> {
    const { name, data } = template;
    const partition = this.#placement.partitionFor({ name, data }, id);
    await this.#checkOpen([partition]);
    await this.#queues.askOne(partition, async (queue) => {
      await queue.upsertJobScheduler(id as never, repeat, template as never);
      const others = this.#queues.all.filter((other) => other !== queue);
      await Promise.all(others.map(async (each) => await each.removeJobScheduler(id)));
    });
  }

  async moveFrom(from: number, options: MoveOptions): Promise<number> {
    const addScheduler = async (scheduler: Scheduler): Promise<void> => {
      // Producers of this division may have changed the scheduler since the announcement, and the newer version
      // remains.
      const known = await this.#queues.askAll(async (queue) => await queue.getJobScheduler(scheduler.key));
      if (known.some((each) => (each ?? undefined) !== undefined)) return;
      const { data, opts } = scheduler.template ?? {};
      const template = { name: scheduler.name as Name, data: data as Data, opts };
      const repeat = repeatOf(scheduler);
      if (repeat !== undefined) await this.upsertJobScheduler(scheduler.key, repeat, template);
    };
    const onError = (error: Error): void => this.#queues.reportError(error);
    const parts = { clock: systemClock, record: this.#queues.record, doors: this.#doors, addScheduler, onError };
    return await rejectWithoutCommand(async () => await moveQueue(this.#queues.division, from, parts, options));
  }

  /** Closes the connections for flows. No further flow is added. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all((this.#flows ?? []).map(async (each) => await each.close()));
  }

  #flowsOf(partition: number): FlowProducer {
    const { name, servers, prefix } = this.#queues.division;
    // Connections opened after the close would never be closed.
    if (this.#isClosed) throw new Error(`queue "${name}" is closed`);
    this.#flows ??= servers.map((connection) => this.#queues.forwardErrors(new FlowProducer({ connection, prefix })));
    return serverOf(this.#flows, partition);
  }

  /** Rejects unless jobs may be added to these partitions. */
  async #checkOpen(partitions: readonly number[]): Promise<void> {
    this.#divisionCheck ??= this.#registerDivision().catch((error: unknown) => {
      this.#divisionCheck = undefined;
      throw error;
    });
    await this.#divisionCheck;
    const { name, partitions: count } = this.#queues.division;
    await Promise.all(partitions.map(async (partition) => await this.#doors[partition]?.assertOpen(name, count)));
  }

  /** Stores this division unless a layout is stored. Rejects if the stored layout is different. */
  async #registerDivision(): Promise<void> {
    const { fault } = await this.#queues.record.compare("register");
    if (fault !== undefined) throw fault;
  }
}
