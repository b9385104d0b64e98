/** Checks the sources of nodes and chooses the adapter for each source. */

import { shaped } from "../kit/schema/check.ts";
import { kindOf } from "../kit/schema/show.ts";
import type { NodeSettings } from "./connection.ts";
import { type IoredisClient, IoredisNode } from "./ioredis.ts";
import type { LockNode } from "./node.ts";
import { type NodeRedisClient, NodeRedisNode } from "./node-redis.ts";
import type { IoredisConnectOptions } from "./rules/url.ts";

/**
 * A source of a node is one of these:
 * - A client of ioredis 5 or 6 (`Redis`, `Cluster`), or of node-redis 5 or later.
 * - A `redis://` URL, as text or `URL`.
 * - Options of ioredis.
 * - A `LockNode`.
 */
export type NodeSource = IoredisClient | NodeRedisClient | string | URL | IoredisConnectOptions | LockNode;

/** An object with at least one of these names counts as ioredis options. */
const CONNECT_OPTIONS = ["host", "port", "path", "sentinels"] as const;

/** Returns a copy of the list. A single source becomes a list of length 1. */
export function sourcesOf(given: NodeSource | readonly NodeSource[]): readonly NodeSource[] {
  try {
    return Array.isArray(given) ? Array.from(given as readonly NodeSource[]) : [given as NodeSource];
  } catch (cause) {
    throw new TypeError("nodes must be readable, got a list that throws when it is read", { cause });
  }
}

/** Creates one node per source. If a source is invalid, throws `TypeError` and closes the nodes created so far. */
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

function toNode(source: NodeSource, settings: NodeSettings): LockNode {
  if (typeof source === "string") return IoredisNode.connect(source, settings);
  switch (kindOfSource(source)) {
    case "url":
      return IoredisNode.connect((source as URL).href, settings);
    case "lock-node":
      return LOCK_NODE.of("node", source);
    case "ioredis":
      return IoredisNode.of(source as IoredisClient, settings);
    case "node-redis":
      return NodeRedisNode.of(source as NodeRedisClient, settings);
    case "options":
      return IoredisNode.connect(copyOf(source as IoredisConnectOptions), settings);
    default:
      throw refusal(source);
  }
}

/** Copies the options, so that the checked values are the ones in use even if the caller changes the object. */
function copyOf(options: IoredisConnectOptions): IoredisConnectOptions {
  try {
    return { ...options };
  } catch (cause) {
    throw new TypeError("node must be readable, got an object that throws when it is read", { cause });
  }
}

/** Reports whether a source is a Redis Cluster. Accepts any value. */
export function isClusterSource(source: unknown): boolean {
  try {
    return (source as { readonly isCluster?: unknown } | null | undefined)?.isCluster === true;
  } catch {
    return false;
  }
}

/** The rule of this check is shown in the error message if an object looks like a `LockNode` but is incomplete. */
const LOCK_NODE = shaped<LockNode>(
  "a LockNode with name, state, eval, onStateChange and close",
  ({ name, state, eval: run, onStateChange, close }) =>
    [name, state].every((each) => typeof each === "string") &&
    [run, onStateChange, close].every((each) => typeof each === "function"),
);

/** Returns the kind of a source. Undefined if the value is not a node, or throws when its properties are read. */
function kindOfSource(source: unknown): "url" | "lock-node" | "ioredis" | "node-redis" | "options" | undefined {
  try {
    if (typeof source !== "object" || source === null || Array.isArray(source)) return undefined;
    if (source instanceof URL) return "url";
    if ("onStateChange" in source || ("eval" in source && "state" in source)) return "lock-node";
    if ("duplicate" in source && "status" in source) return "ioredis";
    if ("duplicate" in source && ("isOpen" in source || "masters" in source)) return "node-redis";
    return CONNECT_OPTIONS.some((name) => name in source) ? "options" : undefined;
  } catch {
    return undefined;
  }
}

function refusal(source: unknown): TypeError {
  const got = has(source, "duplicate", "server_info")
    ? "a client of node_redis 3 or older: use node-redis 5 or later, or ioredis"
    : `${describe(source)}${has(source, "evalsha") || has(source, "eval") ? FAKES : ""}`;
  const options = `ioredis options (${CONNECT_OPTIONS.slice(0, -1).join(", ")} or ${CONNECT_OPTIONS.at(-1)})`;
  return new TypeError(
    `node must be a client of ioredis or node-redis, a URL string, ${options} or a LockNode, got ${got}`,
  );
}

/**
 * Reports whether a value is an object with all of these names. False if the object throws when its properties are
 * read.
 */
function has(source: unknown, ...names: readonly string[]): boolean {
  try {
    return typeof source === "object" && source !== null && names.every((name) => name in source);
  } catch {
    return false;
  }
}

/** A fake client implements neither the scripts nor broken connections, so a lock that it grants proves nothing. */
const FAKES =
  ": a fake of a client cannot hold locks; in tests start a redis-server, or replace the module that you import Redlock from";

/** Describes a plain object by its property names only, because its values may be secrets. */
function describe(source: unknown): string {
  const kind = kindOf(source);
  if (kind !== "an object") return kind;
  try {
    const names = Object.keys(source as object).filter((name) => /^\w{1,40}$/.test(name));
    const members = names.slice(0, 10).join(", ") || "nothing in it";
    return `${kind} with ${members}${names.includes("url") ? ": pass the URL itself, as a string" : ""}`;
  } catch {
    return kind;
  }
}
