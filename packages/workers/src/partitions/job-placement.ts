/** Selects the partition of a new job: by key, by ID, or in turn. */
import type { FlowJob } from "../bullmq/public.ts";
import type { Division, NewJob } from "./options.ts";
import { findPartition, partitionOf } from "./rules/partition.ts";

export class JobPlacement<Data, Name extends string> {
  readonly #division: Division;
  /** Undefined if the queue adds no jobs. */
  readonly #keyOf: ((job: NewJob<Data, Name>) => unknown) | undefined;
  #lastWithoutKey = 0;

  constructor(division: Division, keyOf: ((job: NewJob<Data, Name>) => unknown) | undefined) {
    this.#division = division;
    this.#keyOf = keyOf;
  }

  /**
   * Returns the partition of a new job. `id` is undefined if BullMQ generates the ID.
   * @throws TypeError if the queue adds no jobs; RangeError for invalid keys, and for keys of different partitions
   */
  partitionFor(job: NewJob<Data, Name>, id: string | undefined): number {
    const { partitions } = this.#division;
    return this.#partitionOfKey(job) ?? (id === undefined ? this.#nextWithoutKey() : partitionOf(id, partitions));
  }

  /** Returns the partition of a flow. @throws TypeError, RangeError as `partitionFor`, for all jobs of this queue */
  partitionForFlow(flow: FlowJob): number {
    const found = new Set<number>();
    const visit = (job: FlowJob): void => {
      if (this.#isOurs(job)) {
        const partition = this.#partitionOfKey({ name: job.name as Name, data: job.data as Data });
        if (partition !== undefined) found.add(partition);
      }
      for (const child of job.children ?? []) visit(child);
    };
    visit(flow);
    if (found.size > 1) {
      const list = [...found].sort((a, b) => a - b).join(", ");
      throw new RangeError(
        `the jobs of a flow must belong to one partition, got ${list}: give their keys a common part in braces`,
      );
    }
    return found.values().next().value ?? this.#nextWithoutKey();
  }

  /** Returns the flow with its jobs of this queue in `queue`, the queue of the flow's partition. */
  placeFlow(flow: FlowJob, queue: string): FlowJob {
    return {
      ...flow,
      ...(this.#isOurs(flow) ? { queueName: queue } : {}),
      ...(flow.children === undefined ? {} : { children: flow.children.map((child) => this.placeFlow(child, queue)) }),
    };
  }

  #isOurs({ queueName: of }: FlowJob): boolean {
    return (of ?? this.#division.name) === this.#division.name;
  }

  #partitionOfKey(job: NewJob<Data, Name>): number | undefined {
    const { name, partitions } = this.#division;
    if (this.#keyOf === undefined) throw new TypeError(`key must be given to add jobs to the queue "${name}"`);
    const where = findPartition(this.#keyOf(job), partitions);
    if ("fault" in where) throw new RangeError(`the job's key ${where.fault}`);
    return where.partition;
  }

  /** Returns the partition of the next job that has neither a key nor an ID. */
  #nextWithoutKey(): number {
    this.#lastWithoutKey = (this.#lastWithoutKey + 1) % this.#division.partitions;
    return this.#lastWithoutKey;
  }
}
