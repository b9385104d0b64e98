/**
 * `LockNode` is the port to a Redis client. `nodes/` contains adapters for ioredis, node-redis and GLIDE. To use
 * another client, write an adapter: pass an object with these members to `new Redlock([...])` instead of a client.
 *
 * The protocol needs the following from an adapter. Without these properties it is unsafe or slow:
 * - *First in, first out.* Requests reach the node in the order of the calls, over one connection. A release that is
 *   sent after a timed-out acquire then removes the acquired lock.
 * - *No queue while disconnected, no resending.* A request that cannot be written immediately is rejected. If the
 *   connection breaks, its unanswered requests are rejected and never sent again. Otherwise a lock could appear on the
 *   node long after its caller gave up.
 * - *No retries, no timeout.* The protocol has its own deadlines and retries.
 * - *Errors only through the promise* and `onStateChange`. Errors never become an unhandled rejection, or an `error`
 *   event without a listener.
 */
import type { NodeScript } from "../rules/script.ts";

export type NodeState =
  /** The node has not been connected yet. Requests wait for the first connection until their deadline. */
  | "connecting"
  | "ready"
  /**
   * The connection was lost or could not be made. Requests fail immediately, and the adapter keeps trying to connect.
   */
  | "down";

/**
 * Called when messages may have been missed. If `isSubscribed` is false, further messages are missed until the next
 * call.
 */
export type OnGap = (isSubscribed?: boolean) => void;

export interface LockNode {
  /** Name of the node in votes, errors and events, e.g. `10.0.0.1:6379`. */
  readonly name: string;
  /**
   * Prefix that the client puts before every key. The protocol adds the prefix itself, so the adapter must not add it.
   * Default "".
   */
  readonly keyPrefix?: string | undefined;
  readonly state: NodeState;
  /** Why the node is down, if known. */
  readonly lastError?: Error | undefined;
  /** Why the server has not loaded a script, if it refused to. */
  readonly loadError?: Error | undefined;
  /**
   * Whether the node is a Redis Cluster behind one client. The keys of one request are then in the same hash slot.
   * Default false.
   */
  readonly isCluster?: boolean | undefined;
  /**
   * Whether the reply of PUBLISH inside a script counts all subscribers of the node. If so, a waiter without a
   * subscriber is known to be gone. Default: true, but false for a Cluster.
   */
  readonly countsReceivers?: boolean | undefined;
  /** Runs a script. Rejects if the script is not sent, not answered, or answered with an error. */
  eval(script: NodeScript, keys: readonly string[], args: readonly string[]): Promise<unknown>;
  /**
   * Calls `listener` for each message on `channel`. Resolves when the node has confirmed the subscription for the first
   * time. With an adapter that lacks this method, waiters poll.
   *
   * Calls `onGap` when messages may have been missed: the connection was lost, and the node has confirmed the
   * subscription on another connection. If the node refuses the subscription there, the adapter calls `onGap(false)`,
   * and waiters poll. The protocol then ends the subscription and requests another one as long as a process waits. If
   * the adapter never calls `onGap`, a waiter that misses a message waits until the lease expires.
   */
  subscribe?(channel: string, listener: (message: string) => void, onGap?: OnGap): Promise<() => void>;
  /**
   * Drops the connection and opens another one. The protocol calls this method in two cases:
   * - A request was not answered in time, and the node has sent nothing for a long time since. The connection is then
   *   probably half-open: dead without having been closed.
   * - The node has been refusing writes as a replica for some seconds. A failover may have moved the node's name to
   *   another server, so the adapter must look up the name again.
   *
   * `reason` becomes the error of the connection. Without this method such a node counts as silent or read-only until
   * its adapter detects the problem itself.
   */
  reconnect?(reason: string): void;
  /**
   * Asks for a sign of life on the connection for messages. If the server stays silent for a long time, the adapter
   * replaces the connection, with all subscriptions. The protocol calls this method every few seconds while a caller
   * waits for a message, and never otherwise.
   *
   * Without this method, every wait lasts until the lease expires if the connection is dead without having been closed.
   */
  checkMessages?(): void;
  /**
   * Reads a setting of the server (CONFIG GET). Resolves with undefined if the setting is unknown. Only `check()` calls
   * this method. Settings are not checked if the method is missing or rejects.
   */
  config?(name: string): Promise<string | undefined>;
  /** Calls `listener` after every change of `state`. Returns a function that removes the listener. */
  onStateChange(listener: () => void): () => void;
  /** Closes the connections that the adapter opened, and no others. */
  close(): Promise<void>;
}

/** Reports whether a waiter is known to be gone if its message reached no subscriber. */
export function countsReceivers(node: LockNode): boolean {
  return node.countsReceivers ?? node.isCluster !== true;
}

/**
 * Matches the answer of a server without Lua. Some systems ship Valkey's Lua as a separate package; without this
 * package the server does not know EVALSHA. Garnet knows the command, but refuses it unless started with Lua.
 */
const NO_LUA =
  /^ERR ((unknown|unsupported) command:? ['`"]?evalsha\b|(the )?(command )?['`"]?evalsha['`"]?( command)? (is )?(not|disabled))/i;
const LUA_DISABLED = /\bLua scripting (support )?(is )?disabled/i;

/**
 * Returns the error of a failed request. If the server has no Lua, the returned error explains that locks need Lua. If
 * the node could not load its scripts, the returned error contains the reason, because NOSCRIPT does not.
 */
export function requestError(error: unknown, node: LockNode): Error {
  if (!(error instanceof Error)) return new Error(String(error));
  if (error.message.startsWith("NOSCRIPT")) return node.loadError ?? error;
  const { message: refusal } = error;
  if (!NO_LUA.test(refusal) && !(refusal.startsWith("ERR ") && LUA_DISABLED.test(refusal))) return error;
  const message =
    "NO_LUA this server runs no Lua scripts, which locks are made by: install its Lua (Alpine: valkey-lua), switch it on, or use Redis";
  return Object.assign(new Error(message), { code: "NO_LUA" });
}

/** Returns the error for a request that was not sent. Its message contains the reason if known. */
export function notConnected(node: LockNode, when = ""): Error {
  const cause = node.lastError;
  return new Error(`not connected${when}, and no request is queued${cause === undefined ? "" : `: ${cause.message}`}`, {
    cause,
  });
}

/** Causes are copied down to this depth. No client nests errors deeper. */
const MAX_DEPTH = 4;

/** Properties of a connection's error that are shown in addition to its message. */
const ERROR_FACTS = ["code", "errno", "syscall", "address", "port"] as const;

/**
 * Copies the parts of an adapter's error that may be shown: name, message, stack, causes and some properties. Clients
 * add the command with its arguments to an error, and an argument may be a password.
 *
 * If a host name has several addresses, connecting fails with an `AggregateError` without a message. Its code becomes
 * the message of the copy.
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
