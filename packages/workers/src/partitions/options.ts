/** Pure: the options of a divided queue, for producers and for workers. */
import { boolean, type Option, Schema, text } from "@x/redlock-core/kit";
import type { ConnectionOptions, QueueOptions } from "../bullmq/public.ts";
import { readNode } from "../bullmq/rules/connection.ts";
import type { CancelOptions } from "../operators/queue-operators.ts";
import { type ExclusiveWorkerOptions, readOptions } from "../options.ts";
import { KEY } from "../rules/entity-key.ts";
import { PARTITIONS, QUEUE_NAME, queueName, serverOf } from "./rules/partition.ts";

/** Options that must be the same for all producers and workers of a divided queue. */
export interface DivisionOptions {
  /** Number of partitions, from 1 to 1024. All producers and workers of the queue must use the same number. */
  readonly partitions: number;
  /**
   * The servers of the partitions: a single server or Cluster (BullMQ's `connection`), or a list of at most as many
   * servers as partitions. Partition i is on server i modulo the number of servers.
   *
   * Pass clients instead of options to share connections. A client then serves all partitions of its server, in
   * addition to a blocking connection for each partition.
   */
  readonly connection: ConnectionOptions | readonly ConnectionOptions[];
  /** BullMQ's prefix of all keys, of 1 to 256 characters. Default "bull". */
  readonly prefix?: string | undefined;
}

/** A job before it is added, as it is passed to the key function. */
export interface NewJob<Data, Name extends string> {
  readonly name: Name;
  readonly data: Data;
}

/** Path to the key in `job.data`, or a function of the job. Must return the same keys as the worker's `key`. */
export type ProducerKey<Data, Name extends string> =
  | string
  | ((job: NewJob<Data, Name>) => string | number | readonly (string | number)[] | null | undefined);

export type PartitionedQueueOptions<Data, Name extends string> = Omit<QueueOptions, "connection" | "prefix"> &
  DivisionOptions & {
    /**
     * The entity that the job is about: the same key as the worker's option `key`. The partition of a job without a key
     * is computed from its `jobId`. Without a `jobId` the partitions are used in turn.
     *
     * A queue without `key` adds no jobs: `add` and its companions reject with a `TypeError`.
     */
    readonly key?: ProducerKey<Data, Name> | undefined;
  };

export type PartitionedWorkerOptions<Data, Name extends string> = Omit<
  ExclusiveWorkerOptions<Data, Name>,
  "connection" | "prefix"
> &
  DivisionOptions;

export interface Division {
  readonly name: string;
  readonly prefix: string;
  readonly partitions: number;
  readonly servers: readonly ConnectionOptions[];
  readonly places: readonly { readonly queue: string; readonly connection: ConnectionOptions }[];
}

/**
 * Option to look up a job. With the job's key only one partition is asked.
 * @inline
 */
export interface LookupOptions {
  readonly key?: string | undefined;
}

/**
 * Options to cancel a job, which is looked up first.
 * @inline
 */
export interface CancelInPartitionsOptions extends CancelOptions, LookupOptions {}

export const LOOKUP: Schema<{ readonly key: Option<string | undefined> }> = new Schema({ key: KEY.optional() });

export const CANCEL_IN_PARTITIONS: Schema<{
  readonly key: Option<string | undefined>;
  readonly remove: Option<boolean | undefined>;
}> = new Schema({ key: KEY.optional(), remove: boolean.optional() });

const PREFIX = text({ min: 1, max: 256 }).default("bull");

/** Reads each option once, like `readOptions`. */
export function readDivisionOptions<Options extends object>(given: Options): Options {
  return readOptions(given, ["partitions", "connection", "prefix", "key"], "partitions, connection and key");
}

/**
 * Returns the division of a queue. Throws `TypeError` or `RangeError` with messages that contain no connection data.
 */
export function divisionOf(name: string, options: DivisionOptions): Division {
  QUEUE_NAME.of("name", name);
  const { connection } = options;
  const partitions = PARTITIONS.of("partitions", options.partitions);
  const prefix = PREFIX.of("prefix", options.prefix);
  const servers: readonly ConnectionOptions[] = Array.isArray(connection) ? [...connection] : [connection];
  if (servers.length === 0 || servers.length > partitions) {
    throw new RangeError(
      `connection must have 1 to ${partitions} servers, one for each partition at most, got ${servers.length}`,
    );
  }
  for (const server of servers) readNode(server);
  const places = Array.from({ length: partitions }, (_, partition) => ({
    queue: queueName(name, partition, partitions),
    connection: serverOf(servers, partition),
  }));
  return { name, prefix, partitions, servers, places };
}
