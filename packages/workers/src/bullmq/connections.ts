/**
 * Corrects the connections that BullMQ opens for a worker or a queue. A client that the user passes as `connection`
 * keeps its settings.
 */
import type { Clock } from "@x/redlock-core";
import { isReadOnly, READ_ONLY_MS } from "@x/redlock-core/protocol";
import { isClient } from "./rules/connection.ts";

/** Owner of the connections: the backend in BullMQ 6, or the worker or queue itself in BullMQ 5. */
interface ConnectionOwner {
  readonly connection?: BullConnection;
  /** The connection on which a worker waits for jobs. */
  readonly blockingConnection?: BullConnection;
}

interface BullConnection {
  /** Resolves when the connection is ready for the first time. */
  readonly client: Promise<{ readonly options?: ReconnectOptions }>;
}

/** Called by ioredis for each error that the server replies. A result other than false replaces the connection. */
type ReconnectOnError = (error: Error) => boolean | 1 | 2;

interface ReconnectOptions {
  reconnectOnError?: ReconnectOnError | null;
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
  const watch = ({ options }: { readonly options?: ReconnectOptions }): void => {
    if (options !== undefined) options.reconnectOnError = reconnectOnReadOnly(options.reconnectOnError, clock);
  };
  // BullMQ reports a failed connection itself.
  for (const each of [connection, blockingConnection]) each?.client.then(watch, () => undefined);
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

interface BlockingClient {
  readonly isCluster?: boolean;
  readonly status: string;
  connect(): Promise<unknown>;
  disconnect(reconnect?: boolean): void;
  on(event: "+node", listener: (node: { disconnect(): void }) => void): unknown;
}

/**
 * Ensures that the connection that waits for jobs emits `end` after a disconnect. BullMQ's `close()` and `pause()` wait
 * for this event without a limit (BullMQ issue 4656), and ioredis omits it in two cases:
 * - A client that waits before it reconnects has no connection to end. It therefore connects once more. The client of a
 *   single server is disconnected before it has connected, so that it takes no job.
 * - A Cluster redirection that arrives during the disconnect opens a connection to another master.
 */
export function ensureDisconnectEnds(worker: object): void {
  const watch = (client: BlockingClient): void => {
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
  };
  // BullMQ reports a failed connection itself.
  ownerOf(worker).blockingConnection?.client.then(
    (client) => watch(client as BlockingClient),
    () => undefined,
  );
}
