import { setTimeout as delay } from "node:timers/promises";
import { type RedisServer, type RedisServerOptions, startRedisNodes } from "./redis.ts";

const slotCount = 16_384;
const formTimeoutMs = 30_000;

/** A Redis Cluster of masters without replicas; each holds an equal part of the slots. */
export interface RedisCluster extends AsyncDisposable {
  readonly nodes: readonly RedisServer[];
  stop(): Promise<void>;
}

/**
 * Starts a cluster of `masters` nodes (default 3, the least that Redis supports) and resolves when every node says it is complete.
 * @throws Error when it does not form within 30 s.
 */
export async function startCluster(
  options: RedisServerOptions & { readonly masters?: number } = {},
): Promise<RedisCluster> {
  const masters = options.masters ?? 3;
  const args = [
    "--cluster-enabled",
    "yes",
    "--cluster-node-timeout",
    "2000",
    "--cluster-announce-ip",
    "127.0.0.1",
    ...(options.args ?? []),
  ];
  const nodes = await startRedisNodes(masters, { ...options, args });
  const stop = async (): Promise<void> => {
    await Promise.all(nodes.map((node) => node.stop()));
  };
  try {
    await form(nodes);
  } catch (error) {
    await stop();
    throw error;
  }
  return { nodes, stop, [Symbol.asyncDispose]: stop };
}

async function form(nodes: readonly RedisServer[]): Promise<void> {
  for (const [index, node] of nodes.entries()) {
    const first = Math.floor((index * slotCount) / nodes.length);
    const last = Math.floor(((index + 1) * slotCount) / nodes.length) - 1;
    await node.call("CLUSTER", "SET-CONFIG-EPOCH", index + 1);
    // ADDSLOTS rather than ADDSLOTSRANGE, which only Redis 7 has.
    await node.call("CLUSTER", "ADDSLOTS", ...Array.from({ length: last - first + 1 }, (_, slot) => first + slot));
  }
  const [first, ...others] = nodes;
  for (const node of others) await first?.call("CLUSTER", "MEET", node.host, node.port);
  const deadlineMs = performance.now() + formTimeoutMs;
  for (const node of nodes) {
    while (!(await isComplete(node, nodes.length))) {
      if (performance.now() > deadlineMs) throw new Error(`the cluster did not form within ${formTimeoutMs} ms`);
      await delay(20);
    }
  }
}

async function isComplete(node: RedisServer, size: number): Promise<boolean> {
  const info = String(await node.call("CLUSTER", "INFO"));
  return (
    info.includes("cluster_state:ok") &&
    info.includes(`cluster_known_nodes:${size}`) &&
    info.includes(`cluster_slots_ok:${slotCount}`)
  );
}
