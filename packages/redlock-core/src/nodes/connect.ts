/** What may be passed as a node, and which adapter it gets. */
import type { LockNode } from "../node.ts";
import type { NodeSettings } from "./connection.ts";
import { type IoredisClient, type IoredisConnectOptions, IoredisNode } from "./ioredis.ts";
import { type NodeRedisClient, NodeRedisNode } from "./node-redis.ts";

/** A client of ioredis 5 or 6 (`Redis`, `Cluster`) or node-redis 5 or later, a `redis://` URL, ioredis options, or a `LockNode`. */
export type NodeSource = IoredisClient | NodeRedisClient | string | IoredisConnectOptions | LockNode;

/** One of them tells ioredis options from other objects. */
const CONNECT_OPTIONS = ["host", "port", "path", "sentinels"] as const;

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
  if (typeof source === "string") return IoredisNode.connect(source, settings);
  if (typeof source !== "object" || source === null) throw refusal(String(source));
  if (isLockNode(source)) return source;
  if (isIoredis(source)) return IoredisNode.of(source, settings);
  if (isNodeRedis(source)) return NodeRedisNode.of(source, settings);
  if (isConnectOptions(source)) return IoredisNode.connect(source, settings);
  throw refusal(describe(source));
}

function refusal(got: string): TypeError {
  const options = `ioredis options (${CONNECT_OPTIONS.slice(0, -1).join(", ")} or ${CONNECT_OPTIONS.at(-1)})`;
  return new TypeError(
    `node must be a client of ioredis or node-redis, a URL string, ${options} or a LockNode, got ${got}`,
  );
}

/** Names only: values may be secrets. */
function describe(source: object): string {
  if (Array.isArray(source)) return "an array";
  const { name } = source.constructor ?? Object;
  if (name !== "Object") return `an instance of ${name}`;
  const members = Object.keys(source).join(", ") || "nothing in it";
  return `an object with ${members}${"url" in source ? ": pass the URL itself, as a string" : ""}`;
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
  return CONNECT_OPTIONS.some((name) => name in source);
}
