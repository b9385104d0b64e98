/**
 * The port behind which a Redis client stands. `nodes/` has adapters for ioredis and node-redis; anybody else writes one:
 * an object with these members may be passed to `new Redlock([...])` in place of a client.
 *
 * What the protocol needs of an adapter, and what makes it unsafe or slow without:
 * - *First in, first out.* Requests of one node reach it in the order of the calls, over one connection. A release sent after a
 *   timed-out acquire then cleans it up.
 * - *No queue while disconnected, no resending.* A request that cannot be written now is rejected; one whose connection broke
 *   is rejected and never sent again. Otherwise a lock appears on the node long after its caller gave up.
 * - *No retries, no own timeout.* Deadlines and retries are the protocol's.
 * - *Errors only through the promise* and `onStateChange`, never as an unhandled rejection or an `error` event without listener.
 */
import { createHash } from "node:crypto";
import { text } from "./schema/check.ts";

/** A Lua script with its SHA-1, by which EVALSHA calls it. Make one with `defineScript`. */
export interface NodeScript {
  readonly name: string;
  readonly source: string;
  readonly sha1: string;
}

const NAME = text({ min: 1 });
const SOURCE = text();

export function defineScript(name: string, source: string): NodeScript {
  NAME.of("name", name);
  SOURCE.of("source", source);
  return Object.freeze({ name, source, sha1: createHash("sha1").update(source).digest("hex") });
}

export type NodeState =
  /** Not yet connected for the first time. Requests wait, up to their deadline. */
  | "connecting"
  | "ready"
  /** Was or could not be connected. Requests fail at once; the adapter goes on trying. */
  | "down";

export interface LockNode {
  /** Names the node in votes, errors and events, e.g. `10.0.0.1:6379`. */
  readonly name: string;
  /** Prefix that the client puts before every key; the protocol adds it itself, so the adapter must not. Default "". */
  readonly keyPrefix?: string | undefined;
  readonly state: NodeState;
  /** Why the node is down, if known. */
  readonly lastError?: Error | undefined;
  /** True for a Redis Cluster behind one client: keys of one request then share a slot. Default false. */
  readonly isCluster?: boolean | undefined;
  /** True if PUBLISH inside a script counts every subscriber of the node: a waiter without one is known to be gone. Default: not in a Cluster. */
  readonly countsReceivers?: boolean | undefined;
  /** Runs a script. Rejects if it is not sent, not answered, or answered with an error. */
  eval(script: NodeScript, keys: readonly string[], args: readonly string[]): Promise<unknown>;
  /**
   * Calls `listener` for each message on `channel`, and `onGap` when some may have been missed: the connection was lost, and the node
   * has confirmed the subscription on another one. Resolves when the node has confirmed for the first time. Without it waiters poll;
   * without `onGap` whoever misses a message waits until the lease ends.
   */
  subscribe?(channel: string, listener: (message: string) => void, onGap?: () => void): Promise<() => void>;
  /**
   * Gives up the connection and opens another one: called when a request was not answered in time and nothing came from the
   * node for long after it, so that the connection is likely to be dead without having been closed (half-open). Without it
   * such a node counts as silent until its adapter finds out by itself.
   */
  reconnect?(): void;
  /**
   * Asks for a sign of life on the connection that messages come over, and replaces it if none comes for long, with all
   * subscriptions: called every few seconds while somebody waits for a message, never else. Without it such a connection that is
   * dead without having been closed makes each wait last until the lease ends.
   */
  checkMessages?(): void;
  /** Tells a setting of the server (CONFIG GET), or undefined. Only `check()` asks. Without it, or if it rejects, settings are not checked. */
  config?(name: string): Promise<string | undefined>;
  /** Calls `listener` after every change of `state`. Returns a function that stops that. */
  onStateChange(listener: () => void): () => void;
  /** Closes the connections that the adapter opened, and only these. */
  close(): Promise<void>;
}

/** Whether a waiter that nobody received a message for is known to be gone. */
export function countsReceivers(node: LockNode): boolean {
  return node.countsReceivers ?? node.isCluster !== true;
}

/** Valkey as some systems package it has Lua in a package of its own, and without it none of the commands. */
const NO_LUA = /^ERR unknown command ['`"]?(eval|evalsha|script)\b/i;

/** What a request failed with; of a server without Lua, which nothing here works with, that. */
export function requestError(error: unknown): Error {
  if (!(error instanceof Error)) return new Error(String(error));
  if (!NO_LUA.test(error.message)) return error;
  const message =
    "NO_LUA this server runs no Lua scripts, which locks are made by: install its Lua (Alpine: valkey-lua), or use Redis";
  return Object.assign(new Error(message), { code: "NO_LUA" });
}

/** Why a request was not sent. */
export function notConnected(node: LockNode, when = ""): Error {
  const cause = node.lastError;
  return new Error(`not connected${when}, and no request is queued${cause === undefined ? "" : `: ${cause.message}`}`, {
    cause,
  });
}

/** Of errors within errors; no client nests them deeper. */
const MAX_DEPTH = 4;

/**
 * What may be told of an adapter's error: what it says, where from, and why. Clients hang the command on it, with its arguments, which
 * may be a password. A name with several addresses fails with an `AggregateError` without a message; its code says what happened.
 */
export function plainError(error: unknown, depth: number = MAX_DEPTH): Error {
  if (!(error instanceof Error)) return new Error(String(error));
  const { name, stack, code, cause, errors } = error as NodeJS.ErrnoException & { readonly errors?: unknown };
  const message = error.message || code || name;
  const within = depth === 0 ? [] : Array.isArray(errors) ? errors : cause instanceof Error ? [cause] : [];
  const causes = within.map((each) => plainError(each, depth - 1));
  const plain = new Error(
    message,
    causes.length === 0 ? {} : { cause: causes.length === 1 ? causes[0] : new AggregateError(causes) },
  );
  Object.defineProperty(plain, "name", { value: name, configurable: true, writable: true });
  if (stack !== undefined) Object.defineProperty(plain, "stack", { value: stack, configurable: true, writable: true });
  return typeof code === "string" ? Object.assign(plain, { code }) : plain;
}
