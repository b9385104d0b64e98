/** Pure: the options of a divided queue, for those who add jobs and those who run them. */
import { type Option, Schema, text } from "@x/redlock-core/kit";
import type { ConnectionOptions, QueueOptions } from "../bullmq/public.ts";
import { readNode } from "../bullmq/rules/connection.ts";
import { type ExclusiveWorkerOptions, readOptions } from "../options.ts";
import { KEY } from "../rules/entity-key.ts";
import { PARTITIONS, QUEUE_NAME, queueName, serverOf } from "./rules/partition.ts";

/** What producers and workers of a divided queue must agree on. */
export interface DivisionOptions {
  /** The number of partitions, 1 to 1024. All producers and workers of the queue must have the same. */
  readonly partitions: number;
  /**
   * The servers of the partitions: one server or one Cluster (BullMQ's `connection`), or a list of servers. Partition i
   * is on server i modulo their number.
   *
   * Give clients, not options, to share them: a client serves all partitions, beside a blocking one for each.
   */
  readonly connection: ConnectionOptions | readonly ConnectionOptions[];
  /** BullMQ's prefix of all keys. Default "bull". */
  readonly prefix?: string | undefined;
}

/** What a job says of itself before it is added. */
export interface NewJob<Data, Name extends string> {
  readonly name: Name;
  readonly data: Data;
}

/** The path of the key in `job.data`, or a function of the job; as of the worker. */
export type ProducerKey<Data, Name extends string> =
  | string
  | ((job: NewJob<Data, Name>) => string | number | readonly (string | number)[] | null | undefined);

export type PartitionedQueueOptions<Data, Name extends string> = Omit<QueueOptions, "connection" | "prefix"> &
  DivisionOptions & {
    /**
     * What the job is about: the same as the worker's `key`. A job without a key goes to a partition of its `jobId`, or
     * to one after the other.
     */
    readonly key: ProducerKey<Data, Name>;
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
  /** The name and the connection of each partition's queue. */
  readonly places: readonly { readonly queue: string; readonly connection: ConnectionOptions }[];
}

/** Whoever knows the key of a job need not ask all partitions. */
export const LOOKUP: Schema<{ readonly key: Option<string | undefined> }> = new Schema({ key: KEY.optional() });

const PREFIX = text({ min: 1, max: 256 }).default("bull");

/** Reads each option once, as `readOptions` does. */
export function readDivided<Options extends object>(given: Options): Options {
  return readOptions(given, ["partitions", "connection", "prefix", "key"], "partitions, connection and key");
}

/** Returns how the queue is divided. Throws `TypeError` and `RangeError`, and shows no connection. */
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
