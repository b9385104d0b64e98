/**
 * This adapter is for node-redis 5 and later: a client of `createClient`. No other file knows this client.
 *
 * Each node gets a connection of its own by `duplicate()`, with `disableOfflineQueue`. Here that also drops what was
 * sent and not answered when a connection breaks, so that a request is sent now or never.
 *
 * The connection does not keep the process alive, but the attempts to make it do, because their timer is out of
 * reach. The caller's client is neither used nor closed. Cluster and Sentinel of node-redis are not supported; those
 * of ioredis are.
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

/** The part of node-redis that is used. */
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

/** The caller's client: `select` and `SELECT` are one method with two names. */
interface SelectingClient {
  select(db: number): Promise<unknown>;
  SELECT(db: number): Promise<unknown>;
  sendCommand(args: readonly string[]): Promise<unknown>;
}

/** Databases that clients were put into by `select()`; node-redis tells nobody which. */
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

/** A listener hears of a connection and of those that replace it, of one at a time. */
interface ConnectionListener {
  onReady(): void;
  onDown(): void;
  onError(error: unknown): void;
}

/**
 * A connection is followed by the next one, because node-redis waits without end for the answer to its handshake or to
 * a PING. If its socket breaks in the handshake, it may wait without end, too. Or it calls the broken socket ready:
 * version 5 ignores the errors of all that it asks there.
 *
 * The next one is a new client. The old one may still be about to connect, and would do it beside a second `connect()`.
 */
class LastingConnection {
  readonly #open: () => Connection;
  readonly #settings: NodeSettings;
  readonly #listener: ConnectionListener;
  #current: Connection;
  #cancelDeadline: (() => void) | undefined;
  /** Whether the socket that was opened last has had an error. */
  #isBroken = false;
  /** How many in a row have broken in their handshake. */
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
    this.#relax();
    const dead = this.#current;
    this.#current = this.#start();
    destroy(dead);
    this.#listener.onError(new Error(why));
    this.#listener.onDown();
  }

  /** Asks for a sign of life, without which the connection is replaced. */
  check(): void {
    const connection = this.#current;
    if (!connection.isReady || this.#cancelDeadline !== undefined) return;
    this.#expectAnswer(NO_ANSWER);
    const answered = (): void => {
      if (connection === this.#current) this.#relax();
    };
    connection.sendCommand(["PING"]).then(answered, answered);
  }

  close(): void {
    this.#isClosed = true;
    this.#relax();
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
      this.#relax();
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
    on("reconnecting", () => this.#wentDown());
    on("end", () => this.#wentDown());
    connection.connect().catch((error: unknown) => {
      if (connection === this.#current) this.#listener.onError(error);
    });
    return connection;
  }

  #wentDown(): void {
    this.#relax();
    this.#listener.onDown();
  }

  #replaceLater(): void {
    const pauseMs = reconnectDelayMs(this.#failures);
    this.#failures += 1;
    this.#cancelDeadline = this.#settings.clock.schedule(pauseMs, () => this.replace(BROKEN_HANDSHAKE));
  }

  #expectAnswer(otherwise: string): void {
    this.#relax();
    const { clock, nodeTimeoutMs } = this.#settings;
    this.#cancelDeadline = clock.schedule(deadConnectionMs(nodeTimeoutMs), () => this.replace(otherwise));
  }

  #relax(): void {
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
    const listener: MessageListener = (message, channel) => this.#subscriptions.heard(channel, message);
    this.#subscriptions = new Subscriptions({
      // A client takes along, when it reconnects, what was confirmed, and confirms that at once.
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

  /** Duplicates the caller's client, which is neither used nor closed. */
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
          // A connection that shares the user's cache empties it when it closes.
          clientSideCache: undefined,
          emitInvalidate: undefined,
          socket: {
            ...options.socket,
            reconnectStrategy: reconnectDelayMs,
            // Fires on idle connections, too.
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
      onReady: () => this.#subscriptions.use(messages.current),
      onDown: () => this.#subscriptions.lose(),
      onError: (error) => {
        // A client that may not have what it takes along connects again and again.
        if (String(error).includes("NOPERM")) this.#subscriptions.tellGap(false);
      },
    });
    return messages;
  }
}

/**
 * Watches which database the client selects from now on, and asks it which it has selected. Never rejects.
 *
 * Resolves when the client has answered, or did not answer within `nodeTimeout` because it may be busy with a
 * blocking command. Its answer counts from then on.
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
    // A user without the right, or a server that is too old: nobody knows.
    () => undefined,
  );
  const limit = { timeoutMs: nodeTimeoutMs, otherwise: NO_ANSWER };
  await inTime(clock, answered, limit).catch(() => undefined);
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
