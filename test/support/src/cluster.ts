import { type RedisServer, type RedisServerOptions, startRedisNodes } from "./redis.ts";
import { until } from "./until.ts";

const slotCount = 16_384;
const stepTimeoutMs = 30_000;

/** A Redis Cluster whose masters hold equal parts of the slots, optionally with a replica for each master. */
export interface RedisCluster extends AsyncDisposable {
  /** The masters at the start. */
  readonly nodes: readonly RedisServer[];
  /** The replica of each of `nodes`. Empty without replicas. */
  readonly replicas: readonly RedisServer[];
  stop(): Promise<void>;
}

/**
 * Starts a cluster of `masters` nodes (default 3, the least that Redis supports), each with a replica if `replicas` is
 * true. Resolves when every node reports that the cluster is complete.
 *
 * @throws Error if a step takes longer than 30 s.
 */
export async function startCluster(
  options: RedisServerOptions & { readonly masters?: number; readonly replicas?: boolean } = {},
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
  const all = await startRedisNodes(options.replicas === true ? 2 * masters : masters, { ...options, args });
  const nodes = all.slice(0, masters);
  const replicas = all.slice(masters);
  const stop = async (): Promise<void> => {
    await Promise.all(all.map((node) => node.stop()));
  };
  try {
    await form(nodes);
    await follow(nodes, replicas);
  } catch (error) {
    await stop();
    throw error;
  }
  return { nodes, replicas, stop, [Symbol.asyncDispose]: stop };
}

/**
 * Moves a slot with all its keys to another master, key by key, like `redis-cli --cluster reshard`. During the move the
 * slot is on both masters.
 */
export async function moveSlot(
  slot: number,
  from: RedisServer,
  to: RedisServer,
  others: readonly RedisServer[] = [],
): Promise<void> {
  const [fromId, toId] = [String(await from.call("CLUSTER", "MYID")), String(await to.call("CLUSTER", "MYID"))];
  await to.call("CLUSTER", "SETSLOT", slot, "IMPORTING", fromId);
  await from.call("CLUSTER", "SETSLOT", slot, "MIGRATING", toId);
  for (;;) {
    const keys = (await from.call("CLUSTER", "GETKEYSINSLOT", slot, 10)) as readonly string[];
    if (keys.length === 0) break;
    await from.call("MIGRATE", to.host, to.port, "", 0, 5_000, "KEYS", ...keys);
  }
  for (const node of [to, from, ...others]) await node.call("CLUSTER", "SETSLOT", slot, "NODE", toId);
}

async function follow(masters: readonly RedisServer[], replicas: readonly RedisServer[]): Promise<void> {
  for (const [index, replica] of replicas.entries()) {
    const master = masters[index];
    if (master === undefined) continue;
    await replica.call("CLUSTER", "MEET", master.host, master.port);
    const id = String(await master.call("CLUSTER", "MYID"));
    // The command is refused until the two nodes have met.
    await until(
      async () =>
        await replica.call("CLUSTER", "REPLICATE", id).then(
          () => true,
          () => false,
        ),
      stepTimeoutMs,
    );
    const isLinked = async (): Promise<boolean> =>
      String(await replica.call("INFO", "replication")).includes("master_link_status:up");
    await until(isLinked, stepTimeoutMs);
  }
  await allComplete([...masters, ...replicas]);
}

async function form(nodes: readonly RedisServer[]): Promise<void> {
  for (const [index, node] of nodes.entries()) {
    const first = Math.floor((index * slotCount) / nodes.length);
    const last = Math.floor(((index + 1) * slotCount) / nodes.length) - 1;
    await node.call("CLUSTER", "SET-CONFIG-EPOCH", index + 1);
    // ADDSLOTS instead of ADDSLOTSRANGE, which only Redis 7 has.
    await node.call("CLUSTER", "ADDSLOTS", ...Array.from({ length: last - first + 1 }, (_, slot) => first + slot));
  }
  const [first, ...others] = nodes;
  for (const node of others) await first?.call("CLUSTER", "MEET", node.host, node.port);
  await allComplete(nodes);
}

async function allComplete(nodes: readonly RedisServer[]): Promise<void> {
  for (const node of nodes) await until(() => isComplete(node, nodes.length), stepTimeoutMs);
}

async function isComplete(node: RedisServer, size: number): Promise<boolean> {
  const info = String(await node.call("CLUSTER", "INFO"));
  return (
    info.includes("cluster_state:ok") &&
    info.includes(`cluster_known_nodes:${size}`) &&
    info.includes(`cluster_slots_ok:${slotCount}`)
  );
}
