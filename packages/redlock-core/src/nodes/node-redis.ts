/**
 * Adapter for node-redis 5 and later: a client of `createClient`. No other file knows this client.
 *
 * Each node duplicates the client to get its own connection, with `disableOfflineQueue`. With this option a broken
 * connection also drops requests that were sent but not answered, so that a request is sent immediately or rejected.
 *
 * The connection does not keep the process alive, but attempts to connect do, because their timer is out of reach. The
 * caller's client is neither used nor closed. Cluster and Sentinel of node-redis are not supported; use ioredis for
 * both.
 */

import { inTime } from "../kit/signals.ts";
import type { NodeScript } from "../rules/script.ts";
import { deadConnectionMs } from "../rules/silence.ts";
import {
  ClientNode,
  checkDatabase,
  NO_ANSWER,
  NO_HANDSHAKE,
  type NodeSettings,
  reconnectDelayMs,
  settingOf,
} from "./connection.ts";
import { type LockNode, notConnected, type OnGap } from "./node.ts";
import { Subscriptions } from "./subscriptions.ts";

/** The part of node-redis in use. */
export interface NodeRedisClient {
  readonly isOpen: boolean;
  readonly options?: object | undefined;
  duplicate(overrides?: never): unknown;
}

interface Options {
  readonly keyPrefix?: string | Buffer;
  readonly database?: number;
  readonly url?: string;
  readonly socket?: { readonly host?: string; readonly port?: number; readonly path?: string };
}

/** The caller's client: `select` and `SELECT` are the same method. */
interface SelectingClient {
  select(db: number): Promise<unknown>;
  SELECT(db: number): Promise<unknown>;
  sendCommand(args: readonly string[]): Promise<unknown>;
}

/** Databases that clients have selected with `select()`. node-redis does not expose the selected database. */
const selected = new WeakMap<NodeRedisClient, number>();

type MessageListener = (message: string, channel: string) => void;

interface Connection {
  readonly isReady: boolean;
  on(event: string, listener: (argument: unknown) => void): unknown;
  connect(): Promise<unknown>;
  sendCommand(args: readonly string[]): Promise<unknown>;
  subscribe(channel: string, listener: MessageListener): Promise<void>;
  unsubscribe(channel: string, listener: MessageListener): Promise<void>;
  unref(): void;
  destroy(): void;
}

const BROKEN_HANDSHAKE = "the connection broke in the handshake";

/** Receives the events of a connection and of its replacements. Only the current connection is reported. */
interface ConnectionListener {
  onReady(): void;
  onDown(): void;
  onError(error: unknown): void;
}

/**
 * A connection that is replaced when it is dead, because node-redis waits without end for the answer to its handshake
 * or to a PING. If its socket breaks during the handshake, node-redis may also wait without end, or report the broken
 * socket as ready: version 5 ignores the errors of its handshake commands.
 *
 * The replacement is a new client. The old client may be about to connect, which a second `connect()` would not
 * prevent.
 */
class LastingConnection {
  readonly #open: () => Connection;
  readonly #settings: NodeSettings;
  readonly #listener: ConnectionListener;
  #current: Connection;
  #cancelDeadline: (() => void) | undefined;
  /** Whether an error has occurred on the socket that was opened last. */
  #isBroken = false;
  /** Number of successive sockets that broke during their handshake. */
  #failures = 0;
  #isClosed = false;

  constructor(open: () => Connection, settings: NodeSettings, listener: ConnectionListener) {
    this.#open = open;
    this.#settings = settings;
    this.#listener = listener;
    this.#current = this.#start();
  }

  get current(): Connection {
    return this.#current;
  }

  replace(why: string): void {
    if (this.#isClosed) return;
    this.#cancelTimer();
    const dead = this.#current;
    this.#current = this.#start();
    destroy(dead);
    this.#listener.onError(new Error(why));
    this.#listener.onDown();
  }

  /** Asks for a sign of life. Without an answer the connection is replaced. */
  check(): void {
    const connection = this.#current;
    if (!connection.isReady || this.#cancelDeadline !== undefined) return;
    this.#expectAnswer(NO_ANSWER);
    const answered = (): void => {
      if (connection === this.#current) this.#cancelTimer();
    };
    connection.sendCommand(["PING"]).then(answered, answered);
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelTimer();
    destroy(this.#current);
  }

  #start(): Connection {
    const connection = this.#open();
    const on = (event: string, listener: (argument: unknown) => void): void => {
      connection.on(event, (argument) => {
        if (connection === this.#current && !this.#isClosed) listener(argument);
      });
    };
    on("connect", () => {
      connection.unref();
      this.#isBroken = false;
      this.#expectAnswer(NO_HANDSHAKE);
    });
    on("ready", () => {
      this.#cancelTimer();
      if (this.#isBroken) return this.#replaceLater();
      this.#failures = 0;
      this.#listener.onReady();
    });
    on("error", (error) => {
      this.#listener.onError(error);
      if (connection.isReady) return;
      this.#isBroken = true;
      this.#listener.onDown();
    });
    on("reconnecting", () => this.#onDown());
    on("end", () => this.#onDown());
    connection.connect().catch((error: unknown) => {
      if (connection === this.#current) this.#listener.onError(error);
    });
    return connection;
  }

  #onDown(): void {
    this.#cancelTimer();
    this.#listener.onDown();
  }

  #replaceLater(): void {
    const pauseMs = reconnectDelayMs(this.#failures);
    this.#failures += 1;
    this.#cancelDeadline = this.#settings.clock.schedule(pauseMs, () => this.replace(BROKEN_HANDSHAKE));
  }

  #expectAnswer(otherwise: string): void {
    this.#cancelTimer();
    const { clock, nodeTimeoutMs } = this.#settings;
    this.#cancelDeadline = clock.schedule(deadConnectionMs(nodeTimeoutMs), () => this.replace(otherwise));
  }

  #cancelTimer(): void {
    this.#cancelDeadline?.();
    this.#cancelDeadline = undefined;
  }
}

export class NodeRedisNode extends ClientNode implements LockNode {
  readonly name: string;
  readonly keyPrefix: string;
  readonly #open: (forMessages: boolean) => Connection;
  /** Throws if the caller's client is in another database. */
  readonly #checkDatabase: () => void;
  readonly #requests: LastingConnection;
  readonly #subscriptions: Subscriptions<Connection>;
  #messages: LastingConnection | undefined;

  private constructor(
    facts: { readonly name: string; readonly keyPrefix: string },
    open: (forMessages: boolean) => Connection,
    settings: NodeSettings,
    database: { readonly known: Promise<unknown>; readonly check: () => void },
  ) {
    super(settings);
    this.name = facts.name;
    this.keyPrefix = facts.keyPrefix;
    this.#checkDatabase = database.check;
    this.#open = open;
    const listener: MessageListener = (message, channel) => this.#subscriptions.deliver(channel, message);
    this.#subscriptions = new Subscriptions({
      // A reconnected client repeats its confirmed subscriptions itself, and confirms them again without a request.
      subscribe: (connection, channel) => connection.subscribe(channel, listener),
      unsubscribe: (connection, channel) => connection.unsubscribe(channel, listener),
    });
    this.#requests = new LastingConnection(() => open(false), settings, {
      onReady: () => {
        const connection = this.#requests.current;
        void database.known.then(() => {
          if (this.isClosed || connection !== this.#requests.current || !connection.isReady) return;
          this.scripts.forget();
          this.become("ready");
        });
      },
      onDown: () => this.become("down"),
      onError: (error) => this.noteError(error),
    });
  }

  /** Creates a node with duplicates of the caller's client, which is neither used nor closed. */
  static of(client: NodeRedisClient, settings: NodeSettings): NodeRedisNode {
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
          // A connection that shares the caller's cache would empty the cache when it closes.
          clientSideCache: undefined,
          emitInvalidate: undefined,
          socket: {
            ...options.socket,
            reconnectStrategy: reconnectDelayMs,
            // This timeout would also fire on idle connections.
            socketTimeout: undefined,
          },
          commandOptions: {},
        }),
      settings,
      {
        known: noticeSelect(client, settings),
        check: () => checkDatabase(options.database ?? 0, selected.get(client) ?? options.database ?? 0),
      },
    );
  }

  async eval(script: NodeScript, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    if (this.state !== "ready") throw notConnected(this);
    this.#checkDatabase();
    const connection = this.#requests.current;
    return await this.scripts.run((command) => connection.sendCommand(command), script, keys, args);
  }

  async subscribe(channel: string, listener: (message: string) => void, onGap?: OnGap): Promise<() => void> {
    if (this.isClosed) throw new Error(`${this.name}: closed`);
    this.#messages ??= this.#openMessages();
    return await this.#subscriptions.add(channel, listener, onGap);
  }

  async config(name: string): Promise<string | undefined> {
    if (this.state !== "ready") return undefined;
    return settingOf(await this.#requests.current.sendCommand(["CONFIG", "GET", name]), name);
  }

  reconnect(reason: string): void {
    this.#requests.replace(reason);
  }

  checkMessages(): void {
    this.#messages?.check();
  }

  close(): Promise<void> {
    this.isClosed = true;
    this.#requests.close();
    this.#messages?.close();
    this.#subscriptions.close(new Error(`${this.name}: closed`));
    this.become("down");
    return Promise.resolve();
  }

  #openMessages(): LastingConnection {
    const messages = new LastingConnection(() => this.#open(true), this.settings, {
      onReady: () => this.#subscriptions.useConnection(messages.current),
      onDown: () => this.#subscriptions.loseConnection(),
      onError: (error) => {
        // A reconnecting client that has lost the right to its channels fails and reconnects again and again.
        if (String(error).includes("NOPERM")) this.#subscriptions.notifyGap(false);
      },
    });
    return messages;
  }
}

/**
 * Records each database that the client selects from now on, and asks the client for its current database. Never
 * rejects.
 *
 * Resolves when the client has answered, or after `nodeTimeout` because the client may be busy with a blocking command.
 * A later answer is still recorded.
 */
async function noticeSelect(source: NodeRedisClient, { clock, nodeTimeoutMs }: NodeSettings): Promise<void> {
  const client = source as NodeRedisClient & SelectingClient;
  if (!selected.has(client)) {
    selected.set(client, (client.options as Options)?.database ?? 0);
    const select = client.select.bind(client);
    client.select = client.SELECT = async (db) => {
      const reply = await select(db);
      selected.set(client, db);
      return reply;
    };
  }
  if (!client.isOpen) return;
  const answered = client.sendCommand(["CLIENT", "INFO"]).then(
    (info) => {
      const [, db] = / db=(\d+)/.exec(String(info)) ?? [];
      if (db !== undefined) selected.set(client, Number(db));
    },
    // The user lacks the right to ask, or the server is too old: the database remains unknown.
    () => undefined,
  );
  const limit = { timeoutMs: nodeTimeoutMs, otherwise: NO_ANSWER };
  await inTime(clock, answered, limit).catch(() => undefined);
}

/** Destroys a connection. `destroy` throws on a client that is not open. */
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
