/** Corrects the connections that BullMQ opens for a worker. */

/** Owner of the connection that waits for jobs: the worker's backend in BullMQ 6, or the worker itself in BullMQ 5. */
interface BlockingOwner {
  readonly blockingConnection?: { readonly client: Promise<BlockingClient> };
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
  const { backend, blockingConnection } = worker as BlockingOwner & { readonly backend?: BlockingOwner };
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
  (backend?.blockingConnection ?? blockingConnection)?.client.then(watch, () => undefined);
}
