/**
 * `LockNode` is the port behind which a Redis client stands. `nodes/` has adapters for ioredis, node-redis and GLIDE.
 * To use another client, write an adapter: pass an object with these members to `new Redlock([...])` in place of a
 * client.
 *
 * The protocol needs the following of an adapter, and is unsafe or slow without it:
 * - *First in, first out.* Requests of one node reach it in the order of the calls, over one connection. A release
 *   sent after a timed-out acquire then cleans it up.
 * - *No queue while disconnected, no resending.* A request that cannot be written now is rejected. One whose
 *   connection broke is rejected too, and never sent again. Otherwise a lock appears on the node long after its
 *   caller gave up.
 * - *No retries, no timeout of its own.* The protocol has its own deadlines and retries.
 * - *Errors only through the promise* and `onStateChange`. They never become an unhandled rejection, or an `error`
 *   event without listener.
 */
import type { NodeScript } from "../rules/script.ts";

export type NodeState =
  /** The node is not yet connected for the first time. Requests wait, up to their deadline. */
  | "connecting"
  | "ready"
  /** The connection was lost or could not be made. Requests fail at once; the adapter goes on trying. */
  | "down";

/** Reports that messages may have been missed. With `isHeard` false, more will be missed until the next call. */
export type OnGap = (isHeard?: boolean) => void;

export interface LockNode {
  /** The name of the node in votes, errors and events, e.g. `10.0.0.1:6379`. */
  readonly name: string;
  /**
   * The prefix that the client puts before every key. The protocol adds it itself, so the adapter must not. Default
   * "".
   */
  readonly keyPrefix?: string | undefined;
  readonly state: NodeState;
  /** Why the node is down, if that is known. */
  readonly lastError?: Error | undefined;
  /**
   * Whether the node is a Redis Cluster behind one client; the keys of one request then share a slot. Default false.
   */
  readonly isCluster?: boolean | undefined;
  /**
   * Whether PUBLISH inside a script counts every subscriber of the node. A waiter without a subscriber is then known
   * to be gone. Default: true, but false in a Cluster.
   */
  readonly countsReceivers?: boolean | undefined;
  /** Runs a script. The call rejects if the script is not sent, not answered, or answered with an error. */
  eval(script: NodeScript, keys: readonly string[], args: readonly string[]): Promise<unknown>;
  /**
   * Calls `listener` for each message on `channel`. Resolves when the node has confirmed the subscription for the
   * first time. Waiters of an adapter without this method poll.
   *
   * Calls `onGap` when messages may have been missed: the connection was lost, and the node has confirmed the
   * subscription on another one. Where the node refuses it there, the adapter calls `onGap(false)`, and waiters poll.
   * The protocol then ends the subscription and asks for another one, while somebody waits. Without `onGap`, a waiter
   * that misses a message waits until the lease ends.
   */
  subscribe?(channel: string, listener: (message: string) => void, onGap?: OnGap): Promise<() => void>;
  /**
   * Gives up the connection and opens another one. The protocol calls it when a request was not answered in time and
   * nothing came from the node for long after it. The connection is then likely to be half-open: dead without having
   * been closed. The protocol also calls it when the node has refused to write as a replica for some seconds. A
   * failover may have moved the node's name to another server, so the adapter must look up the name again.
   *
   * `reason` becomes the error of the connection. Without this method such a node counts as silent or read-only until
   * its adapter finds out by itself.
   */
  reconnect?(reason: string): void;
  /**
   * Asks for a sign of life on the connection that messages come over. If none comes for long, the adapter replaces
   * the connection, with all subscriptions. The protocol calls it every few seconds while somebody waits for a
   * message, and never otherwise.
   *
   * Without this method, a connection that is dead without having been closed makes each wait last until the lease
   * ends.
   */
  checkMessages?(): void;
  /**
   * Reads a setting of the server (CONFIG GET); resolves with undefined if it is not known. Only `check()` calls it.
   * Settings are not checked if the method is missing or rejects.
   */
  config?(name: string): Promise<string | undefined>;
  /** Calls `listener` after every change of `state`, and returns a function that stops that. */
  onStateChange(listener: () => void): () => void;
  /** Closes the connections that the adapter opened, and only these. */
  close(): Promise<void>;
}

/** Tells whether a waiter is known to be gone when nobody received its message. */
export function countsReceivers(node: LockNode): boolean {
  return node.countsReceivers ?? node.isCluster !== true;
}

/**
 * Matches the answer of a server without Lua. Some systems package Valkey's Lua apart; without that package the
 * server has none of these commands. Garnet has them, and refuses them unless it was started with Lua.
 */
const NO_LUA = /^ERR (unknown command ['`"]?(eval|evalsha|script)\b|This instance has Lua scripting support disabled)/i;

/**
 * Returns the error that a request failed with. If the server has no Lua, without which nothing here works, the error
 * says so.
 */
export function requestError(error: unknown): Error {
  if (!(error instanceof Error)) return new Error(String(error));
  if (!NO_LUA.test(error.message)) return error;
  const message =
    "NO_LUA this server runs no Lua scripts, which locks are made by: install its Lua (Alpine: valkey-lua), switch it on, or use Redis";
  return Object.assign(new Error(message), { code: "NO_LUA" });
}

/** Returns the error that says why a request was not sent. */
export function notConnected(node: LockNode, when = ""): Error {
  const cause = node.lastError;
  return new Error(`not connected${when}, and no request is queued${cause === undefined ? "" : `: ${cause.message}`}`, {
    cause,
  });
}

/** Errors within errors are followed to this depth; no client nests them deeper. */
const MAX_DEPTH = 4;

/** These are the facts of a connection's error beside its message. */
const ERROR_FACTS = ["code", "errno", "syscall", "address", "port"] as const;

/**
 * Copies what may be shown of an adapter's error: its name, message, stack, causes and facts. Clients add the command
 * to an error, with its arguments, which may be a password.
 *
 * A name with several addresses fails with an `AggregateError` without a message; its code says what happened.
 */
export function plainError(error: unknown, depth: number = MAX_DEPTH): Error {
  if (!(error instanceof Error)) return new Error(String(error));
  const given = error as Error & Partial<Record<(typeof ERROR_FACTS)[number] | "errors", unknown>>;
  const { name, stack, code, cause, errors } = given;
  const message = error.message || (typeof code === "string" && code) || name;
  const within = depth === 0 ? [] : Array.isArray(errors) ? errors : cause instanceof Error ? [cause] : [];
  const causes = within.map((each) => plainError(each, depth - 1));
  const plain = new Error(
    message,
    causes.length === 0 ? {} : { cause: causes.length === 1 ? causes[0] : new AggregateError(causes) },
  );
  Object.defineProperty(plain, "name", { value: name, configurable: true, writable: true });
  if (stack !== undefined) Object.defineProperty(plain, "stack", { value: stack, configurable: true, writable: true });
  const facts = ERROR_FACTS.filter((fact) => ["string", "number"].includes(typeof given[fact]));
  return Object.assign(plain, Object.fromEntries(facts.map((fact) => [fact, given[fact]])));
}

/**
 * Properties in which clients add the failed command to an error. The command's arguments may contain the password of
 * an AUTH.
 */
const CLIENT_FACTS = ["command", "lastNodeError"] as const;

/** Removes the client's failed command from an error. Returns every other error unchanged. */
export function withoutCommand(error: unknown): unknown {
  return error instanceof Error && CLIENT_FACTS.some((name) => name in error) ? plainError(error) : error;
}
