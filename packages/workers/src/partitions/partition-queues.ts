/**
 * The queues of a divided queue's partitions, asked as one.
 *
 * Guaranteed: no rejection and no emitted error contains the client's failed command, whose arguments may contain a
 * password. Errors without a listener are printed, as by BullMQ.
 */
import { EventEmitter } from "node:events";
import { withoutCommand } from "@x/redlock-core/protocol";
import { queueRedisOf } from "../bullmq/bullmq.ts";
import type { ExclusiveQueueEvents } from "../events.ts";
import { ExclusiveQueue, type ExclusiveQueueOptions } from "../exclusive-queue.ts";
import { rejectWithoutCommand } from "../without-command.ts";
import { LayoutRecord } from "./layout.ts";
import { type Division, LOOKUP, type LookupOptions } from "./options.ts";
import { partitionOf } from "./rules/partition.ts";

/** Partition events that the divided queue emits. The `queue` of an event is the name of the partition. */
const KEY_EVENTS: readonly (keyof ExclusiveQueueEvents)[] = ["keyPaused", "keyResumed"];

type ErrorSource = Pick<EventEmitter, "listenerCount"> & {
  on(event: "error", listener: (error: Error) => void): unknown;
};

export class PartitionQueues<Data, Result, Name extends string> {
  /** Emits the partitions' errors, and the events in `KEY_EVENTS`. */
  readonly events: EventEmitter = new EventEmitter();
  readonly division: Division;
  readonly all: readonly ExclusiveQueue<Data, Result, Name>[];
  /** The record of the queue's division, on the server of the first partition. */
  readonly record: LayoutRecord;

  /** Creates the queues, which connect immediately. */
  constructor(division: Division, options: Omit<ExclusiveQueueOptions<Data, Name>, "connection">) {
    this.division = division;
    this.all = division.places.map(({ queue, connection }) =>
      this.forwardErrors(new ExclusiveQueue<Data, Result, Name>(queue, { ...options, connection })),
    );
    for (const queue of this.all) {
      for (const event of KEY_EVENTS) queue.on(event, (message: unknown) => void this.events.emit(event, message));
    }
    this.record = new LayoutRecord(division, queueRedisOf(this.at(0)));
  }

  at(partition: number): ExclusiveQueue<Data, Result, Name> {
    return this.all[partition] as ExclusiveQueue<Data, Result, Name>;
  }

  async askOne<Value>(
    partition: number,
    ask: (queue: ExclusiveQueue<Data, Result, Name>) => Promise<Value>,
  ): Promise<Value> {
    return await rejectWithoutCommand(async () => await ask(this.at(partition)));
  }

  /** Asks all partitions. Resolves with their answers in the order of the partitions. */
  async askAll<Value>(ask: (queue: ExclusiveQueue<Data, Result, Name>) => Promise<Value>): Promise<Value[]> {
    return await rejectWithoutCommand(async () => await Promise.all(this.all.map(ask)));
  }

  /** Asks the partition of the job's `key`, or all partitions. Rejects if several partitions have the job. */
  async findJob<Found>(
    id: string,
    options: LookupOptions,
    ask: (queue: ExclusiveQueue<Data, Result, Name>) => Promise<Found | undefined>,
  ): Promise<Found | undefined> {
    const { key } = LOOKUP.resolve(options);
    const asked =
      key === undefined ? await this.askAll(ask) : [await this.askOne(partitionOf(key, this.all.length), ask)];
    const found = asked.filter((each) => (each ?? undefined) !== undefined);
    if (found.length > 1) throw new RangeError(`${found.length} partitions have a job ${id}: give its key`);
    return found[0];
  }

  /** Forwards the connection errors of one of BullMQ's classes. */
  forwardErrors<Source extends ErrorSource>(source: Source): Source {
    source.on("error", (error) => this.reportError(error, source.listenerCount("error") > 1));
    return source;
  }

  /** `isHeard`: whether the user listens to BullMQ's own object. */
  reportError(error: Error, isHeard = false): void {
    const plain = withoutCommand(error);
    if (this.events.listenerCount("error") > 0) this.events.emit("error", plain);
    // oxlint-disable-next-line eslint/no-console -- as BullMQ does, where nobody listens
    else if (!isHeard) console.error(plain);
  }
}
