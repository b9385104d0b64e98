/** Workers that only read and change a queue, or all partitions of a queue, and run no jobs. */
import { ExclusiveWorker } from "@x/workers";
import { PartitionedWorker, partitionOf, queueName, serverOf } from "@x/workers/partitions";
import type { Cluster, Redis } from "ioredis";
import type { Command } from "./command.ts";
import type { Connections } from "./connections.ts";
import { ConsoleFailure } from "./failure.ts";

export interface QueueOptions {
  readonly queue: string;
  /** BullMQ's prefix. */
  readonly prefix: string;
}

/** A worker that runs no jobs, for one queue or for all partitions of a queue. */
export type Operator = ExclusiveWorker | PartitionedWorker;

/** The partitions of a queue, and their servers. */
interface Layout {
  readonly partitions: number;
  readonly servers: readonly (Redis | Cluster)[];
}

const ASKS = { autorun: false, key: (): undefined => undefined };

/** Opens an operator for a queue, with or without partitions. Throws `ConsoleFailure` if the queue does not exist. */
export async function operatorOf({ connections }: Command, options: QueueOptions): Promise<Operator> {
  const client = await connections.queueRedis();
  const layout = await layoutOf(connections, client, options);
  if (layout === undefined) await mustBe(client, options);
  return openOperator(connections, { ...options, client, layout });
}

/**
 * Opens a worker for the queue of a key, which may be a partition. Throws `ConsoleFailure` if the queue does not exist.
 */
export async function operatorOfKey(
  { connections }: Command,
  options: QueueOptions & { readonly key: string },
): Promise<ExclusiveWorker> {
  const { queue, prefix, key } = options;
  const client = await connections.queueRedis();
  const layout = await layoutOf(connections, client, options);
  if (layout === undefined) {
    await mustBe(client, options);
    return openWorker(connections, { queue, prefix, client });
  }
  const { partitions, servers } = layout;
  const partition = partitionOf(key, partitions);
  const of = { queue: queueName(queue, partition, partitions), prefix, client: serverOf(servers, partition) };
  return openWorker(connections, of);
}

/** Opens an operator for a queue. The queue may not exist yet. */
export function openOperator(
  connections: Connections,
  parts: QueueOptions & { readonly client: Redis | Cluster; readonly layout: Layout | undefined },
): Operator {
  const { queue, prefix, layout } = parts;
  if (layout === undefined) return openWorker(connections, parts);
  const { partitions, servers } = layout;
  const worker = new PartitionedWorker(queue, null, { ...ASKS, partitions, connection: servers, prefix });
  worker.on("error", () => undefined);
  connections.defer(() => worker.close());
  return worker;
}

/** Returns the partitions of a queue and their servers. Undefined if the queue has no partitions. */
export async function layoutOf(
  connections: Connections,
  client: Redis | Cluster,
  { queue, prefix }: QueueOptions,
): Promise<Layout | undefined> {
  const [partitions, servers] = await client.hmget(`${prefix}:{${queue}}:layout`, "partitions", "servers");
  if ((partitions ?? null) === null) return undefined;
  return { partitions: Number(partitions), servers: await connections.queueServers(Number(servers ?? 1)) };
}

function openWorker(
  connections: Connections,
  { queue, prefix, client }: QueueOptions & { readonly client: Redis | Cluster },
): ExclusiveWorker {
  const worker = new ExclusiveWorker(queue, null, { ...ASKS, connection: client, prefix });
  worker.on("error", () => undefined);
  connections.defer(() => worker.close());
  return worker;
}

async function mustBe(client: Redis | Cluster, { queue, prefix }: QueueOptions): Promise<void> {
  if ((await client.exists(`${prefix}:${queue}:meta`)) === 1) return;
  throw new ConsoleFailure(
    `there is no queue ${JSON.stringify(queue)} with the prefix ${JSON.stringify(prefix)}`,
    "Name BullMQ's prefix with --prefix, and the queue's Redis with --redis.",
  );
}
