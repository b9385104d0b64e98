/**
 * The worker of one partition. This `ExclusiveWorker` takes one of the shared slots for each job, and fails jobs whose
 * key belongs to another partition.
 */
import type { Clock } from "@x/redlock-core";
import { wakeWorker } from "../bullmq/bullmq.ts";
import type { Job } from "../bullmq/public.ts";
import { JobKeyError } from "../errors.ts";
import type { ExclusiveWorkerListener } from "../events.ts";
import { ExclusiveWorker } from "../exclusive-worker.ts";
import { type ExclusiveWorkerOptions, keyOptions } from "../options.ts";
import type { StoredJob } from "../rules/stored-job.ts";
import type { ExclusiveProcessorFunction } from "../runner/runner.ts";
import { findPartition } from "./rules/partition.ts";
import { Slot, type Slots } from "./slots.ts";

interface PartitionFacts {
  readonly partition: number;
  readonly partitions: number;
  readonly slots: Slots;
  readonly clock: Clock;
  /** Called with every event. Returns whether the event is an error and has a listener. */
  readonly onEvent: (event: string, args: readonly unknown[]) => boolean;
}

type Fetched<Data, Result, Name extends string> = Awaited<
  ReturnType<ExclusiveWorker<Data, Result, Name>["moveToActive"]>
>;

/** BullMQ's result of a fetch that found no job. */
const NO_JOB = undefined as never;

export class PartitionWorker<Data, Result, Name extends string> extends ExclusiveWorker<Data, Result, Name> {
  protected static override readonly sharesSlots: boolean = true;
  readonly #facts: PartitionFacts;
  readonly #keyOf: (job: StoredJob<Data, Name>) => unknown;
  /** Slots of the jobs that were fetched and have not ended, by BullMQ's token. */
  readonly #slotsByToken = new Map<string, Slot>();
  /** Number of these jobs that BullMQ has not started yet. */
  #unstarted = 0;
  #isStopped = false;
  /** Whether jobs are fetched by hand. Such jobs take no slot, because this class would not notice their end. */
  #isByHand = false;

  constructor(
    name: string,
    processor: string | URL | null | undefined | ExclusiveProcessorFunction<Data, Result, Name>,
    options: ExclusiveWorkerOptions<Data, Name>,
    facts: PartitionFacts,
  ) {
    super(name, processor, { ...options, autorun: false });
    this.#facts = facts;
    this.#keyOf = keyOptions(options.key).keyOf as (job: StoredJob<Data, Name>) => unknown;
  }

  // The constructors of the superclasses emit events before `#facts` exists.
  override emit<Event extends keyof ExclusiveWorkerListener<Data, Result, Name>>(
    event: Event,
    ...args: Parameters<ExclusiveWorkerListener<Data, Result, Name>[Event]>
  ): boolean {
    const isReported = #facts in this && this.#facts.onEvent(event, args);
    // Without a listener of its own, this worker must not emit a reported error, because BullMQ would print it.
    return (isReported && this.listenerCount(event) === 0) || super.emit(event, ...args);
  }

  protected override async moveToActive(
    ...args: Parameters<ExclusiveWorker<Data, Result, Name>["moveToActive"]>
  ): ReturnType<ExclusiveWorker<Data, Result, Name>["moveToActive"]> {
    // After a job was moved, the next job is fetched in the same slot. BullMQ 5 passes the client before the token.
    if (this.#isByHand || args.some((each) => this.#slotsByToken.has(each as string)))
      return await super.moveToActive(...args);
    const { slots, clock } = this.#facts;
    // BullMQ fetches jobs one by one, and starts them only after a fetch has found no job. While a fetched job has not
    // been started, a fetch must not wait for a slot.
    if (this.#isStopped || !slots.isFree) await this.#passWakeUpOn();
    if (this.#isStopped || (this.#unstarted > 0 && !slots.isFree) || !(await slots.take(this))) return NO_JOB;
    const slot = new Slot(slots, clock);
    slot.lend();
    let job: Fetched<Data, Result, Name> | undefined;
    try {
      if (!this.#isStopped) job = await super.moveToActive(...args);
    } finally {
      if ((job ?? undefined) === undefined) slot.release();
      else slot.takeBack();
    }
    if ((job ?? undefined) === undefined) return NO_JOB;
    this.#unstarted += 1;
    this.#slotsByToken.set(String(job?.token), slot);
    return job as Fetched<Data, Result, Name>;
  }

  override async processJob(
    job: Job<Data, Result, Name>,
    token: string,
    fetchNext: () => boolean = () => true,
  ): ReturnType<ExclusiveWorker<Data, Result, Name>["processJob"]> {
    const { slots } = this.#facts;
    this.#unstarted -= 1;
    let next: Awaited<ReturnType<typeof this.processJob>> | undefined;
    try {
      next = await super.processJob(job, token, () => slots.mayKeep(this) && fetchNext());
    } finally {
      const slot = this.#slotsByToken.get(token);
      if ((next ?? undefined) === undefined) {
        this.#slotsByToken.delete(token);
        slot?.release();
      } else {
        slot?.takeBack();
        this.#unstarted += 1;
        slots.cancel(this);
      }
    }
    return next;
  }

  protected override async callProcessJob(
    ...args: Parameters<ExclusiveWorker<Data, Result, Name>["callProcessJob"]>
  ): Promise<Result> {
    const [job, token] = args;
    try {
      const { partition, partitions } = this.#facts;
      const where = findPartition(this.#keysOf(job), partitions);
      const there = "fault" in where ? partition : (where.partition ?? partition);
      if (there !== partition) {
        throw new JobKeyError(
          String(job.id),
          `belongs to partition ${there}, but the job was added to partition ${partition}`,
        );
      }
      return await super.callProcessJob(...args);
    } finally {
      this.#slotsByToken.get(token)?.lend();
    }
  }

  override getNextJob(
    ...args: Parameters<ExclusiveWorker<Data, Result, Name>["getNextJob"]>
  ): ReturnType<ExclusiveWorker<Data, Result, Name>["getNextJob"]> {
    this.#isByHand = true;
    return super.getNextJob(...args);
  }

  override async pause(doNotWaitActive?: boolean): Promise<void> {
    this.#isStopped = true;
    this.#facts.slots.cancel(this);
    await super.pause(doNotWaitActive);
  }

  override resume(): ReturnType<ExclusiveWorker<Data, Result, Name>["resume"]> {
    this.#isStopped = false;
    return super.resume();
  }

  override async close(force = false): Promise<void> {
    this.#isStopped = true;
    this.#facts.slots.cancel(this);
    await super.close(force);
  }

  /**
   * Passes a wake-up on to another worker, because this worker has no slot. Only one worker receives the message that a
   * job was added.
   */
  async #passWakeUpOn(): Promise<void> {
    try {
      await wakeWorker(this);
    } catch {
      // A waiting worker looks for jobs by itself after a while.
    }
  }

  /** Returns the value of the option `key` for a job. The lane has already checked whether the value is a key. */
  #keysOf({ id, name, data, timestamp, priority, parentKey }: Job<Data, Result, Name>): unknown {
    try {
      return this.#keyOf({ id: String(id), name, data, timestamp, priority: priority ?? 0, parentKey });
    } catch {
      return undefined;
    }
  }
}
