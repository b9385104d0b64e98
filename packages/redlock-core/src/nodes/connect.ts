/** What may be passed as a node, and which adapter it gets. */
import type { LockNode } from "../node.ts";
import { type IoredisClient, type IoredisConnectOptions, IoredisNode } from "./ioredis.ts";
import { type NodeRedisClient, NodeRedisNode } from "./node-redis.ts";

/** A client of ioredis 5 or 6 (`Redis`, `Cluster`) or node-redis 5 or later, a `redis://` URL, ioredis options, or a `LockNode`. */
export type NodeSource = IoredisClient | NodeRedisClient | string | IoredisConnectOptions | LockNode;

export interface NodeSettings {
  readonly nodeTimeoutMs: number;
}

/** One node per source. Throws `TypeError` for what is not one, and leaves no connection open then. */
export function toNodes(sources: readonly NodeSource[], settings: NodeSettings): readonly LockNode[] {
  const nodes: LockNode[] = [];
  try {
    for (const source of sources) nodes.push(toNode(source, settings));
  } catch (error) {
    for (const node of nodes) void node.close();
    throw error;
  }
  return nodes;
}

export function toNode(source: NodeSource, settings: NodeSettings): LockNode {
  if (typeof source === "string") {
    if (!/^(rediss?|unix):\/\/|^\//.test(source)) {
      throw new TypeError(`node must be a redis://, rediss:// or unix:// URL, got ${JSON.stringify(source)}`);
    }
    return IoredisNode.connect(source, settings);
  }
  if (typeof source !== "object" || source === null) {
    throw new TypeError(`node must be a Redis client, a URL, ioredis options or a LockNode, got ${String(source)}`);
  }
  if (isLockNode(source)) return source;
  if (isIoredis(source)) return IoredisNode.of(source, settings);
  if (isNodeRedis(source)) return NodeRedisNode.of(source);
  if (isConnectOptions(source)) return IoredisNode.connect(source, settings);
  throw new TypeError(
    "node must be a client of ioredis or node-redis, a URL, ioredis options or a LockNode, got another object",
  );
}

function isLockNode(source: object): source is LockNode {
  return "eval" in source && "onStateChange" in source && "state" in source;
}

function isIoredis(source: object): source is IoredisClient {
  return "duplicate" in source && "status" in source;
}

function isNodeRedis(source: object): source is NodeRedisClient {
  return "duplicate" in source && ("isOpen" in source || "masters" in source);
}

function isConnectOptions(source: object): source is IoredisConnectOptions {
  return ["host", "port", "path", "sentinels"].some((name) => name in source);
}
