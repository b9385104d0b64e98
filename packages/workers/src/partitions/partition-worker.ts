/**
 * The worker of one partition: an `ExclusiveWorker` that takes a slot for each job, and runs no job of another
 * partition.
 */
import type { Clock } from "@x/redlock-core";
import { wakeWorker } from "../bullmq/bullmq.ts";
import type { Job } from "../bullmq/public.ts";
import { JobKeyError } from "../errors.ts";
import type { ExclusiveWorkerListener } from "../events.ts";
import { ExclusiveWorker } from "../exclusive-worker.ts";
import type { StoredJob } from "../lane/lane.ts";
import { type ExclusiveWorkerOptions, keyOptions } from "../options.ts";
import type { ExclusiveProcessorFunction } from "../runner/runner.ts";
import { whereIs } from "./rules/partition.ts";
import { Slot, type Slots } from "./slots.ts";

interface PartitionFacts {
  readonly partition: number;
  readonly partitions: number;
  readonly slots: Slots;
  readonly clock: Clock;
  /** Is called with every event. Returns whether it was an error that somebody listens to. */
  readonly tell: (event: string, args: readonly unknown[]) => boolean;
}

type Fetched<Data, Result, Name extends string> = Awaited<
  ReturnType<ExclusiveWorker<Data, Result, Name>["moveToActive"]>
>;

/** What BullMQ takes for "there is no job". */
const NO_JOB = undefined as never;

export class PartitionWorker<Data, Result, Name extends string> extends ExclusiveWorker<Data, Result, Name> {
  readonly #facts: PartitionFacts;
  readonly #keyOf: (job: StoredJob<Data, Name>) => unknown;
  /** The slots of the jobs that were fetched and have not ended, by BullMQ's tokens. */
  readonly #held = new Map<string, Slot>();
  /** How many of these jobs BullMQ has not started yet. */
  #unstarted = 0;
  #isOver = false;
  /** Jobs that are fetched by hand take no slot: nobody here would see their end. */
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

  // BullMQ's and ExclusiveWorker's constructors emit before there are facts.
  override emit<Event extends keyof ExclusiveWorkerListener<Data, Result, Name>>(
    event: Event,
    ...args: Parameters<ExclusiveWorkerListener<Data, Result, Name>[Event]>
  ): boolean {
    const isTold = #facts in this && this.#facts.tell(event, args);
    // BullMQ prints an error that nobody listens to here.
    return (isTold && this.listenerCount(event) === 0) || super.emit(event, ...args);
  }

  protected override async moveToActive(
    ...args: Parameters<ExclusiveWorker<Data, Result, Name>["moveToActive"]>
  ): ReturnType<ExclusiveWorker<Data, Result, Name>["moveToActive"]> {
    // A job that was moved away fetches the next one in its slot. BullMQ 5 has the client before the token.
    if (this.#isByHand || args.some((each) => this.#held.has(each as string))) return await super.moveToActive(...args);
    const { slots, clock } = this.#facts;
    // BullMQ fetches one job after the other, and starts them only when such a fetch has ended without one. So nothing
    // is waited for in front of a job that has a slot.
    if (this.#isOver || !slots.isFree) await this.#passWakeUpOn();
    if (this.#isOver || (this.#unstarted > 0 && !slots.isFree) || !(await slots.take(this))) return NO_JOB;
    const slot = new Slot(slots, clock);
    slot.lend();
    let job: Fetched<Data, Result, Name> | undefined;
    try {
      if (!this.#isOver) job = await super.moveToActive(...args);
    } finally {
      if ((job ?? undefined) === undefined) slot.give();
      else slot.takeBack();
    }
    if ((job ?? undefined) === undefined) return NO_JOB;
    this.#unstarted += 1;
    this.#held.set(String(job?.token), slot);
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
      const slot = this.#held.get(token);
      if ((next ?? undefined) === undefined) {
        this.#held.delete(token);
        slot?.give();
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
      const where = whereIs(this.#keysOf(job), partitions);
      const there = "fault" in where ? partition : (where.partition ?? partition);
      if (there !== partition) {
        throw new JobKeyError(String(job.id), `is of partition ${there}, and the job was added to ${partition}`);
      }
      return await super.callProcessJob(...args);
    } finally {
      this.#held.get(token)?.lend();
    }
  }

  override getNextJob(
    ...args: Parameters<ExclusiveWorker<Data, Result, Name>["getNextJob"]>
  ): ReturnType<ExclusiveWorker<Data, Result, Name>["getNextJob"]> {
    this.#isByHand = true;
    return super.getNextJob(...args);
  }

  override async pause(doNotWaitActive?: boolean): Promise<void> {
    this.#isOver = true;
    this.#facts.slots.cancel(this);
    await super.pause(doNotWaitActive);
  }

  override resume(): ReturnType<ExclusiveWorker<Data, Result, Name>["resume"]> {
    this.#isOver = false;
    return super.resume();
  }

  override async close(force = false): Promise<void> {
    this.#isOver = true;
    this.#facts.slots.cancel(this);
    await super.close(force);
  }

  /**
   * Passes on the message that a job is there. One worker gets it, which may have been this one, and this one has no
   * slot.
   */
  async #passWakeUpOn(): Promise<void> {
    try {
      await wakeWorker(this);
    } catch {
      // Who waits for it looks by itself after a while.
    }
  }

  /** Returns what the key option makes of the job; the lane has judged whether it is a key. */
  #keysOf({ id, name, data, timestamp, priority, parentKey }: Job<Data, Result, Name>): unknown {
    try {
      return this.#keyOf({ id: String(id), name, data, timestamp, priority: priority ?? 0, parentKey });
    } catch {
      return undefined;
    }
  }
}
