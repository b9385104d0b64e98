/**
 * node-redis 5 and later: a client of `createClient`. One of the two files that know a client.
 *
 * Each node gets a connection of its own by `duplicate()`, with `disableOfflineQueue`, which here also drops what was sent and
 * not answered when a connection breaks: a request is sent now or never. The connection does not keep the process alive, but the
 * attempts to make it do: their timer is out of reach. The caller's client is neither used nor closed. Cluster and Sentinel of
 * node-redis are not supported; ioredis' are.
 */
import { type LockNode, type NodeScript, type NodeState, notConnected } from "../node.ts";
import { LoadedScripts, reconnectDelayMs, StateTeller } from "./connection.ts";

/** The part of node-redis that is used. */
export interface NodeRedisClient {
  readonly isOpen: boolean;
  readonly options?: object | undefined;
  duplicate(overrides?: never): unknown;
}

interface Options {
  readonly keyPrefix?: string | Buffer;
  readonly url?: string;
  readonly socket?: { readonly host?: string; readonly port?: number; readonly path?: string };
}

interface Connection {
  readonly isReady: boolean;
  on(event: string, listener: (argument: unknown) => void): unknown;
  connect(): Promise<unknown>;
  sendCommand(args: readonly string[]): Promise<unknown>;
  subscribe(channel: string, listener: (message: string) => void): Promise<void>;
  unsubscribe(channel: string, listener: (message: string) => void): Promise<void>;
  unref(): void;
  destroy(): void;
}

export class NodeRedisNode implements LockNode {
  readonly name: string;
  readonly keyPrefix: string;
  readonly #teller = new StateTeller();
  readonly #scripts = new LoadedScripts();
  readonly #open: (forMessages: boolean) => Connection;
  readonly #connection: Connection;
  #subscriber: Promise<Connection> | undefined;
  #openedSubscriber: Connection | undefined;
  #isClosed = false;

  private constructor(
    facts: { readonly name: string; readonly keyPrefix: string },
    open: (forMessages: boolean) => Connection,
  ) {
    this.name = facts.name;
    this.keyPrefix = facts.keyPrefix;
    this.#open = open;
    const connection = open(false);
    this.#connection = connection;
    connection.on("error", (error) => {
      this.#teller.noteError(error);
      if (!connection.isReady) this.#teller.become("down");
    });
    connection.on("ready", () => {
      connection.unref();
      this.#scripts.forget();
      if (!this.#isClosed) this.#teller.become("ready");
    });
    connection.on("reconnecting", () => this.#teller.become("down"));
    connection.on("end", () => this.#teller.become("down"));
    connection.connect().catch((error: unknown) => this.#teller.noteError(error));
  }

  /** Duplicates the caller's client, which is neither used nor closed. */
  static of(client: NodeRedisClient): NodeRedisNode {
    if (!("isOpen" in client))
      throw new TypeError("node must not be a node-redis Cluster: use ioredis' Cluster, or a LockNode");
    if ("getMasterNode" in client)
      throw new TypeError("node must not be a node-redis Sentinel: use ioredis with sentinels, or a LockNode");
    const options = (client.options ?? {}) as Options;
    const source = client as unknown as { duplicate(overrides: object): Connection };
    return new NodeRedisNode(
      { name: nameOf(options), keyPrefix: (options.keyPrefix ?? "").toString() },
      (forMessages) =>
        source.duplicate({
          keyPrefix: undefined,
          disableOfflineQueue: !forMessages,
          pingInterval: undefined,
          socket: {
            ...options.socket,
            reconnectStrategy: reconnectDelayMs,
            // Fires on idle connections, too.
            socketTimeout: undefined,
          },
          commandOptions: {},
        }),
    );
  }

  get state(): NodeState {
    return this.#teller.state;
  }

  get lastError(): Error | undefined {
    return this.#teller.lastError;
  }

  async eval(script: NodeScript, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    if (this.#teller.state !== "ready") throw notConnected(this);
    if (this.#scripts.needsLoading(script)) {
      this.#connection.sendCommand(["SCRIPT", "LOAD", script.source]).catch(() => this.#scripts.forget());
    }
    try {
      return await this.#connection.sendCommand(["EVALSHA", script.sha1, String(keys.length), ...keys, ...args]);
    } catch (error) {
      this.#scripts.forgetIfMissing(error);
      throw error;
    }
  }

  async subscribe(channel: string, listener: (message: string) => void): Promise<() => void> {
    this.#subscriber ??= this.#openSubscriber();
    const connection = await this.#subscriber;
    await connection.subscribe(channel, listener);
    return () => {
      if (!this.#isClosed) connection.unsubscribe(channel, listener).catch(() => undefined);
    };
  }

  reconnect(): void {
    if (this.#isClosed) return;
    destroy(this.#connection);
    this.#connection.connect().catch((error: unknown) => this.#teller.noteError(error));
  }

  onStateChange(listener: () => void): () => void {
    return this.#teller.onChange(listener);
  }

  close(): Promise<void> {
    this.#isClosed = true;
    destroy(this.#connection);
    if (this.#openedSubscriber !== undefined) destroy(this.#openedSubscriber);
    this.#teller.become("down");
    return Promise.resolve();
  }

  async #openSubscriber(): Promise<Connection> {
    const connection = this.#open(true);
    this.#openedSubscriber = connection;
    connection.on("error", () => undefined);
    connection.on("ready", () => connection.unref());
    await connection.connect();
    return connection;
  }
}

/** `destroy` throws on a client that is not open. */
function destroy(connection: Connection): void {
  try {
    connection.destroy();
  } catch {
    // Already closed.
  }
}

function nameOf(options: Options): string {
  const { socket } = options;
  if (socket?.path !== undefined) return socket.path;
  if (socket?.host !== undefined || socket?.port !== undefined)
    return `${socket.host ?? "localhost"}:${socket.port ?? 6379}`;
  return options.url === undefined ? "localhost:6379" : new URL(options.url).host;
}
