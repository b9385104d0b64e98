/** Queues to look at and to operate: a queue, or all partitions of a queue. */
import { ExclusiveQueue } from "@x/workers";
import { PartitionedQueue, partitionOf, queueName, serverOf } from "@x/workers/partitions";
import type { Cluster, Redis } from "ioredis";
import type { CommandContext } from "./command.ts";
import type { Connections } from "./connections.ts";
import { ConsoleFailure } from "./failure.ts";

export interface QueueOptions {
  readonly queue: string;
  /** BullMQ's prefix. */
  readonly prefix: string;
}

/** A queue, or all partitions of a queue. */
export type OperatedQueue = ExclusiveQueue | PartitionedQueue;

/** The partitions of a queue, and their servers. */
interface PartitionServers {
  readonly partitions: number;
  readonly servers: readonly (Redis | Cluster)[];
}

/** A look at a queue neither creates the queue nor changes BullMQ's settings of it. */
const READ = { skipMetasUpdate: true };

/** Opens a queue, with or without partitions. Throws `ConsoleFailure` if the queue does not exist. */
export async function operatorOf({ connections }: CommandContext, options: QueueOptions): Promise<OperatedQueue> {
  const client = await connections.queueRedis();
  const layout = await layoutOf(connections, client, options);
  if (layout === undefined) await mustBe(client, options);
  return openOperator(connections, { ...options, client, layout });
}

/** Opens the queue of a key, which may be a partition. Throws `ConsoleFailure` if the queue does not exist. */
export async function operatorOfKey(
  { connections }: CommandContext,
  options: QueueOptions & { readonly key: string },
): Promise<ExclusiveQueue> {
  const { queue, prefix, key } = options;
  const client = await connections.queueRedis();
  const layout = await layoutOf(connections, client, options);
  if (layout === undefined) {
    await mustBe(client, options);
    return openQueue(connections, { queue, prefix, client });
  }
  const { partitions, servers } = layout;
  const partition = partitionOf(key, partitions);
  const of = { queue: queueName(queue, partition, partitions), prefix, client: serverOf(servers, partition) };
  return openQueue(connections, of);
}

/** Opens a queue, which may not exist yet. */
export function openOperator(
  connections: Connections,
  parts: QueueOptions & { readonly client: Redis | Cluster; readonly layout: PartitionServers | undefined },
): OperatedQueue {
  const { queue: name, prefix, layout } = parts;
  if (layout === undefined) return openQueue(connections, parts);
  const { partitions, servers } = layout;
  const queue = new PartitionedQueue(name, { partitions, connection: servers, prefix, ...READ });
  queue.on("error", () => undefined);
  connections.defer(() => queue.close());
  return queue;
}

/** Returns the partitions of a queue and their servers. Undefined if the queue has no partitions. */
export async function layoutOf(
  connections: Connections,
  client: Redis | Cluster,
  { queue, prefix }: QueueOptions,
): Promise<PartitionServers | undefined> {
  const [partitions, servers] = await client.hmget(`${prefix}:{${queue}}:layout`, "partitions", "servers");
  if ((partitions ?? null) === null) return undefined;
  return { partitions: Number(partitions), servers: await connections.queueServers(Number(servers ?? 1)) };
}

function openQueue(
  connections: Connections,
  { queue: name, prefix, client }: QueueOptions & { readonly client: Redis | Cluster },
): ExclusiveQueue {
  const queue = new ExclusiveQueue(name, { connection: client, prefix, ...READ });
  queue.on("error", () => undefined);
  connections.defer(() => queue.close());
  return queue;
}

async function mustBe(client: Redis | Cluster, { queue, prefix }: QueueOptions): Promise<void> {
  if ((await client.exists(`${prefix}:${queue}:meta`)) === 1) return;
  throw new ConsoleFailure(
    `there is no queue ${JSON.stringify(queue)} with the prefix ${JSON.stringify(prefix)}`,
    "Name BullMQ's prefix with --prefix, and the queue's Redis with --redis.",
  );
}
