/**
 * Corrects the connections that BullMQ opens for a worker or a queue. A client that the user passes as `connection`
 * keeps its settings.
 */
import type { Clock } from "@x/redlock-core";
import { isReadOnly, READ_ONLY_MS } from "@x/redlock-core/protocol";
import type { Worker } from "./public.ts";
import { isClient, MAX_SILENCE_MS } from "./rules/connection.ts";

/** Owner of the connections: the backend in BullMQ 6, or the worker or queue itself in BullMQ 5. */
interface ConnectionOwner {
  readonly connection?: BullConnection;
  /** The connection on which a worker waits for jobs. */
  readonly blockingConnection?: BullConnection;
}

interface BullConnection {
  close(force: boolean): Promise<void>;
  /** Resolves when the connection is ready for the first time. */
  readonly client: Promise<ServerClient>;
}

/** A client of one server, as a Cluster has several. */
interface ServerClient {
  readonly options?: IoredisOptions;
  /** The running timer of ioredis for `socketTimeout`. */
  socketTimeoutTimer?: NodeJS.Timeout | undefined;
  disconnect(): void;
  on(event: "close", listener: () => void): unknown;
}

/** Called by ioredis for each error that the server replies. A result other than false replaces the connection. */
type ReconnectOnError = (error: Error) => boolean | 1 | 2;

/** The options of ioredis that this file changes. ioredis reads them for each command or reply. */
interface IoredisOptions {
  commandTimeout?: number | undefined;
  reconnectOnError?: ReconnectOnError | null;
  socketTimeout?: number | undefined;
}

function ownerOf(holder: object): ConnectionOwner {
  const { backend } = holder as { readonly backend?: ConnectionOwner };
  return backend ?? holder;
}

/**
 * Replaces a connection of a worker or queue whose server refuses writes as a replica for some seconds. A demoted
 * primary keeps its connections, while its name may already lead to the new primary.
 */
export function leaveReplicas(holder: object, given: object, clock: Clock): void {
  if (isClient(given)) return;
  const { connection, blockingConnection } = ownerOf(holder);
  const watch = (client: ServerClient): void => {
    const { options } = client;
    if (options === undefined) return;
    options.reconnectOnError = reconnectOnReadOnly(options.reconnectOnError, clock);
    stopTimeoutAtClose(client);
  };
  // BullMQ reports a failed connection itself.
  for (const each of [connection, blockingConnection]) each?.client.then(watch, () => undefined);
}

/** Ends the connections of a worker without waiting for Redis. Pending commands reject. A user's client stays open. */
export function abandonConnections(worker: object, given: object): void {
  const { connection, blockingConnection } = ownerOf(worker);
  for (const each of [isClient(given) ? undefined : connection, blockingConnection]) {
    // Before the first connection there is no client to disconnect, and later the close by BullMQ may have begun.
    each?.close(true).catch(() => undefined);
    each?.client.then((client) => client.disconnect()).catch(() => undefined);
  }
}

/**
 * Stops the timer of `socketTimeout` when the connection closes. ioredis 5 lets the timer run on, which keeps the
 * process alive and would end the next connection.
 */
function stopTimeoutAtClose(client: ServerClient): void {
  client.on("close", () => {
    clearTimeout(client.socketTimeoutTimer);
    client.socketTimeoutTimer = undefined;
  });
}

/**
 * Returns ioredis' option `reconnectOnError` for one connection. The user's function is called first, and an answer of
 * the function that replaces the connection is kept.
 */
export function reconnectOnReadOnly(own: ReconnectOnError | null | undefined, clock: Clock): ReconnectOnError {
  let firstRefusalMs: number | undefined;
  return (error) => {
    const answer = own?.(error) ?? false;
    if (!isReadOnly(error.message)) return answer;
    const nowMs = clock.monotonicMs();
    firstRefusalMs ??= nowMs;
    if (answer === false && nowMs - firstRefusalMs < READ_ONLY_MS) return false;
    firstRefusalMs = undefined;
    return answer || true;
  };
}

interface BlockingClient extends ServerClient {
  readonly isCluster?: boolean;
  readonly status: string;
  connect(): Promise<unknown>;
  disconnect(reconnect?: boolean): void;
  nodes?(): readonly ServerClient[];
  on(event: "+node", listener: (node: ServerClient) => void): unknown;
  on(event: "close", listener: () => void): unknown;
}

/** Calls `listener` with the client that waits for jobs. BullMQ reports a failed connection itself. */
function onBlockingClient(worker: object, listener: (client: BlockingClient) => void): void {
  ownerOf(worker).blockingConnection?.client.then(
    (client) => listener(client as BlockingClient),
    () => undefined,
  );
}

/** BullMQ waits for up to `drainDelay` seconds for a job, and up to this long for the time of a delayed job. */
const LONGEST_DELAY_MS = 10_000;
/** How late the answer to a wait may arrive. */
const LATENESS_MS = 5_000;

/**
 * Adapts the timeouts of the connection that waits for jobs. The server answers a wait only when its time is over, so a
 * shorter `socketTimeout` would replace the connection again and again. A `commandTimeout` would abandon the wait, and
 * the abandoned wait would take the wake-up for the next job.
 *
 * Even the duplicate of the user's client is adapted, because only the worker uses it.
 */
export function adaptBlockingTimeouts(worker: Worker): void {
  const { drainDelay = 5 } = worker.opts;
  const leastMs = Math.max(drainDelay * 1_000, LONGEST_DELAY_MS) + LATENESS_MS;
  const adapt = (client: ServerClient): void => {
    const { options } = client;
    if (options === undefined) return;
    options.commandTimeout = undefined;
    options.socketTimeout = Math.max(options.socketTimeout ?? MAX_SILENCE_MS, leastMs);
    stopTimeoutAtClose(client);
  };
  onBlockingClient(worker, (client) => {
    if (client.isCluster !== true) return adapt(client);
    for (const node of client.nodes?.() ?? []) adapt(node);
    client.on("+node", adapt);
  });
}

/**
 * Ensures that the connection that waits for jobs emits `end` after a disconnect. BullMQ's `close()` and `pause()` wait
 * for this event without a limit (BullMQ issue 4656), and ioredis omits it in two cases:
 * - A client that waits before it reconnects has no connection to end. It therefore connects once more. The client of a
 *   single server is disconnected before it has connected, so that it takes no job.
 * - A Cluster redirection that arrives during the disconnect opens a connection to another master.
 */
export function ensureDisconnectEnds(worker: object): void {
  onBlockingClient(worker, (client) => {
    const disconnect = client.disconnect.bind(client);
    client.disconnect = (reconnect = false) => {
      const { status } = client;
      disconnect(reconnect);
      if (reconnect || status !== "reconnecting" || client.status === "end") return;
      const connected = client.connect();
      if (client.isCluster !== true) disconnect();
      connected.then(() => disconnect()).catch(() => undefined);
    };
    if (client.isCluster !== true) return;
    client.on("+node", (node) => {
      if (client.status === "disconnecting") node.disconnect();
    });
  });
}
