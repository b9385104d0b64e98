/**
 * This adapter is for ioredis 5 and 6: `Redis` (also by sentinel) and `Cluster`. With ioredis-options.ts and
 * ioredis-request.ts, it is what knows ioredis.
 *
 * Each node gets a connection of its own by `duplicate()`, so that a request is sent now or never.
 * `enableOfflineQueue` and `autoResendUnfulfilledCommands` are both off (either alone leaves orphaned locks behind),
 * and there are no retries per request.
 *
 * The connection does not keep the process alive, except a Cluster's. The caller's client is neither used nor closed.
 *
 * In a Cluster, ioredis itself queues requests for a master that it is connecting to for the first time, up to
 * `connectTimeout`. A lock request may then be sent late, and its release right behind it. A master that was
 * connected never queues any. While a slot moves, ioredis sends a request again for up to a third of `nodeTimeout`.
 */

import { messageOf } from "../kit/thrown.ts";
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
import { type ScriptConnection, ScriptSender } from "./ioredis-request.ts";
import { type LockNode, notConnected, type OnGap } from "./node.ts";
import { checkOptions, nameOf } from "./rules/ioredis-options.ts";
import { connectOptionsOf, type IoredisConnectOptions } from "./rules/url.ts";
import { Subscriptions } from "./subscriptions.ts";

/** The part of ioredis that is used; both major versions have it. */
export interface IoredisClient {
  readonly status: string;
  readonly options: object;
  readonly isCluster?: boolean;
  duplicate(...args: never[]): unknown;
}

/** What ioredis remembers of `select()`, from the call on, also while it is not connected. */
interface Selected {
  readonly condition?: { readonly select?: number } | null;
  readonly prevCondition?: { readonly select?: number } | null;
}

/** Returns the database that a client is in, or will be in as soon as it is connected. */
export function databaseOf(client: IoredisClient): number {
  const { prevCondition, condition } = client as IoredisClient & Selected;
  const { db } = client.options as IoredisConnectOptions;
  return prevCondition?.select ?? condition?.select ?? db ?? 0;
}

interface Connection extends ScriptConnection {
  readonly status: string;
  readonly stream?: { readonly bytesRead?: number; unref?: () => void; destroy?: (error: Error) => void };
  readonly reconnectTimeout?: { unref?: () => void } | null;
  on(event: string, listener: (...args: never[]) => void): unknown;
  config?(verb: "GET", name: string): Promise<unknown>;
  script(command: "LOAD", source: string): Promise<unknown>;
  subscribe(channel: string): Promise<unknown>;
  unsubscribe(channel: string): Promise<unknown>;
  ping(): Promise<unknown>;
  disconnect(): void;
  nodes?(role: "master"): readonly Connection[];
  /** The part of a Cluster that chooses the connection that messages come over. */
  readonly subscriber?: { getInstance?(): Connection | null };
}

type Purpose = "requests" | "messages";
type Opener = (purpose: Purpose) => Connection;

/** What ioredis tells with an error that a command was answered with. */
type CommandError = Error & { readonly command?: { readonly name: string } };

export class IoredisNode extends ClientNode implements LockNode {
  readonly name: string;
  readonly keyPrefix: string;
  readonly isCluster: boolean;
  readonly #opener: Promise<Opener>;
  /** Throws if the caller's client is in another database by now. */
  readonly #checkDatabase: () => unknown;
  readonly #subscriptions: Subscriptions<Connection>;
  #connection: Connection | undefined;
  readonly #sender = new ScriptSender();
  #subscriber: Promise<Connection> | undefined;
  #openedSubscriber: Connection | undefined;
  /** The connection of a Cluster that a channel was first confirmed on, or that messages came over at a later check. */
  #carrier: Connection | undefined;
  #isCheckingMessages = false;

  private constructor(
    facts: { readonly name: string; readonly keyPrefix: string; readonly isCluster: boolean },
    opener: Promise<Opener>,
    settings: NodeSettings,
    databaseCheck: () => unknown = () => undefined,
  ) {
    super(settings);
    this.name = facts.name;
    this.keyPrefix = facts.keyPrefix;
    this.isCluster = facts.isCluster;
    this.#subscriptions = new Subscriptions({
      subscribe: (connection, channel) => connection.subscribe(channel),
      unsubscribe: (connection, channel) => connection.unsubscribe(channel),
    });
    this.#opener = opener;
    this.#checkDatabase = databaseCheck;
    opener
      .then((open) => {
        if (!this.isClosed) this.#open(open);
      })
      .catch((error: unknown) => {
        this.noteError(error);
        this.become("down");
      });
  }

  /** Duplicates the caller's client, which is neither used nor closed. */
  static of(client: IoredisClient, settings: NodeSettings): IoredisNode {
    const options = client.options as IoredisConnectOptions & { readonly redisOptions?: IoredisConnectOptions };
    const isCluster = client.isCluster === true;
    const keyPrefix = options.keyPrefix ?? options.redisOptions?.keyPrefix ?? "";
    const source = client as unknown as { duplicate(...args: unknown[]): Connection };
    const db = isCluster ? 0 : databaseOf(client);
    const opener: Opener = (purpose) => {
      const overrides = overridesFor(purpose, settings, isCluster);
      if (!isCluster) return source.duplicate({ ...overrides, db });
      return source.duplicate([], {
        ...clusterOverrides(settings),
        redisOptions: { ...options.redisOptions, ...overrides },
      });
    };
    return new IoredisNode(
      { name: isCluster ? "cluster" : nameOf(options), keyPrefix, isCluster },
      Promise.resolve(opener),
      settings,
      () => isCluster || checkDatabase(db, databaseOf(client)),
    );
  }

  /** Connects by URL or options. ioredis must be installed; otherwise the node is down, and says so. */
  static connect(target: string | IoredisConnectOptions, settings: NodeSettings): IoredisNode {
    const options = typeof target === "string" ? connectOptionsOf(target) : target;
    checkOptions(options);
    const { keyPrefix = "" } = options;
    const opener = import("ioredis").then(
      ({ Redis }): Opener =>
        (purpose) =>
          new Redis({ ...options, ...overridesFor(purpose, settings) } as object) as unknown as Connection,
      (cause: unknown) => {
        const reason = messageOf(cause);
        throw new Error(`a URL or options need ioredis: install it, or pass a client (${reason})`, { cause });
      },
    );
    return new IoredisNode({ name: nameOf(options), keyPrefix, isCluster: false }, opener, settings);
  }

  /** It is not async, because that would cost two more promises for each request. */
  eval(script: NodeScript, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    try {
      const answer = this.#send(script, keys, args);
      answer.catch(this.#forgetIfMissing);
      return answer;
    } catch (error) {
      return Promise.reject(error);
    }
  }

  readonly #forgetIfMissing = (error: unknown): void => this.scripts.forgetIfMissing(error);

  #send(script: NodeScript, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    const connection = this.#connection;
    // The status of a Cluster changes a moment before its event, and what it is asked in between it would queue.
    const isReady = this.state === "ready" && connection?.status === "ready";
    if (connection === undefined || !isReady) throw notConnected(this);
    this.#checkDatabase();
    if (this.scripts.needsLoading(script)) {
      for (const master of connection.nodes?.("master") ?? [connection]) {
        master.script("LOAD", script.source).catch(() => this.scripts.forget());
      }
    }
    // The command of a Cluster must know its keys.
    return this.isCluster
      ? connection.evalsha([script.sha1, keys.length, ...keys, ...args])
      : this.#sender.send(connection, script.sha1, keys, args);
  }

  async config(name: string): Promise<string | undefined> {
    if (this.isCluster || this.state !== "ready") return undefined;
    return settingOf(await this.#connection?.config?.("GET", name), name);
  }

  /** The other end may never confirm an orderly end. Of a Cluster, ioredis watches each connection by itself. */
  reconnect(reason: string): void {
    if (!this.isCluster) this.#connection?.stream?.destroy?.(new Error(reason));
  }

  async subscribe(channel: string, onMessage: (message: string) => void, onGap?: OnGap): Promise<() => void> {
    this.#subscriber ??= this.#openSubscriber();
    const connection = await this.#subscriber;
    const unsubscribe = await this.#subscriptions.add(channel, onMessage, onGap);
    this.#carrier ??= connection.subscriber?.getInstance?.() ?? undefined;
    return unsubscribe;
  }

  checkMessages(): void {
    const subscriber = this.#openedSubscriber;
    if (this.isCluster) this.#checkCarrier(subscriber?.subscriber?.getInstance?.());
    if (this.isCluster || this.#isCheckingMessages || subscriber?.status !== "ready") return;
    const { clock, nodeTimeoutMs } = this.settings;
    const { stream } = subscriber;
    this.#isCheckingMessages = true;
    const cancel = clock.schedule(deadConnectionMs(nodeTimeoutMs), () => {
      this.#isCheckingMessages = false;
      stream?.destroy?.(new Error(NO_ANSWER));
    });
    const answered = (): void => {
      this.#isCheckingMessages = false;
      cancel();
    };
    subscriber.ping().then(answered, answered);
  }

  async close(): Promise<void> {
    this.isClosed = true;
    this.#subscriptions.close(new Error(`${this.name}: closed`));
    this.#connection?.disconnect();
    this.become("down");
    const subscriber = await this.#subscriber?.catch(() => undefined);
    subscriber?.disconnect();
  }

  #open(open: Opener): void {
    const connection = open("requests");
    this.#connection = connection;
    let wasReady = false;
    let selectError: Error | undefined;
    // A Cluster may close and open again before it is ready for the first time; that is still the first connection.
    const isDown = (): void => {
      if (wasReady || !this.isCluster) this.become("down");
    };
    connection.on("connect", () => {
      selectError = undefined;
    });
    connection.on("error", (error: CommandError) => {
      // What was under way when the connection closed fails after the error that closed it.
      if (!this.isCluster && connection.status === "reconnecting") return;
      this.noteError(error);
      if (error.command?.name === "select") selectError = error;
    });
    connection.on("ready", () => {
      wasReady = true;
      // It did not get its database, and goes on in database 0.
      if (selectError !== undefined) {
        this.become("down");
        return;
      }
      this.scripts.forget();
      this.become("ready");
    });
    connection.on("close", isDown);
    connection.on("end", isDown);
    letProcessEnd(connection);
    boundHandshake(connection, this.settings);
  }

  /** When a Cluster's is lost, ioredis subscribes over another one by itself, and tells nobody. */
  #checkCarrier(carrier: Connection | null | undefined): void {
    if (carrier?.status !== "ready" || this.#carrier === undefined || carrier === this.#carrier) return;
    this.#carrier = carrier;
    // Answered after what it was to subscribe to.
    carrier.ping().then(
      () => {
        this.#subscriptions.tellGap(true);
      },
      () => undefined,
    );
  }

  async #openSubscriber(): Promise<Connection> {
    const open = await this.#opener;
    if (this.isClosed) throw new Error(`${this.name}: closed`);
    const connection = open("messages");
    connection.on("error", () => undefined);
    connection.on("message", (channel: string, message: string) => {
      this.#subscriptions.heard(channel, message);
    });
    let wasReady = false;
    connection.on("ready", () => {
      // ioredis would ask by itself, leave a refusal without anybody who handles it, and never ask again.
      if (wasReady && !this.isCluster) this.#subscriptions.use(connection);
      wasReady = true;
    });
    letProcessEnd(connection);
    boundHandshake(connection, this.settings);
    this.#openedSubscriber = connection;
    this.#subscriptions.use(connection);
    return connection;
  }
}

/**
 * Lets the process end: neither an idle socket, nor one that owes an answer, nor the wait before a reconnection keeps
 * it alive. A call under way does, by its timer. The connections of a Cluster are out of reach: they keep the process
 * alive until they are closed.
 */
function letProcessEnd(connection: Connection): void {
  connection.on("connect", () => connection.stream?.unref?.());
  connection.on("reconnecting", () => connection.reconnectTimeout?.unref?.());
}

/**
 * Bounds the handshake (HELLO, AUTH, SELECT, INFO), which ioredis does not: its `connectTimeout` ends with the TCP
 * connection, before the handshake.
 *
 * A server that answers and is not ready, because it loads its data, is waited for. A Cluster shows nothing of its
 * handshakes; its connections have a `socketTimeout` instead.
 */
function boundHandshake(connection: Connection, { clock, nodeTimeoutMs }: NodeSettings): void {
  let cancel = (): void => undefined;
  const watch = (): void => {
    const { stream } = connection;
    const before = stream?.bytesRead;
    cancel = clock.schedule(deadConnectionMs(nodeTimeoutMs), () => {
      if (stream?.bytesRead === before) stream?.destroy?.(new Error(NO_HANDSHAKE));
      else watch();
    });
  };
  const settled = (): void => cancel();
  connection.on("connect", () => {
    cancel();
    watch();
  });
  connection.on("ready", settled);
  connection.on("close", settled);
}

function overridesFor(purpose: Purpose, settings: NodeSettings, isCluster = false): object {
  const forMessages = purpose === "messages";
  const isWatched = forMessages || !isCluster;
  return {
    lazyConnect: false,
    monitor: false,
    readOnly: false,
    keyPrefix: "",
    stringNumbers: false,
    enableAutoPipelining: false,
    enableReadyCheck: true,
    // Messages: subscribe as soon as there is a connection. Requests: now or never.
    enableOfflineQueue: forMessages,
    autoResendUnfulfilledCommands: forMessages,
    autoResubscribe: false,
    maxRetriesPerRequest: forMessages ? null : 0,
    commandTimeout: undefined,
    // A timer and a listener for every command: only where nobody else watches.
    socketTimeout: isWatched ? undefined : deadConnectionMs(settings.nodeTimeoutMs),
    retryStrategy: reconnectDelayMs,
    sentinelRetryStrategy: reconnectDelayMs,
    reconnectOnError: null,
  };
}

/**
 * A request is sent again at most so many times. The pauses before that must together end well before the round does,
 * because its release follows it only once.
 */
const REDIRECTIONS = 8;

const clusterOverrides = ({ nodeTimeoutMs }: NodeSettings): object => ({
  lazyConnect: false,
  maxRedirections: REDIRECTIONS,
  retryDelayOnTryAgain: Math.floor(nodeTimeoutMs / (3 * REDIRECTIONS)),
  retryDelayOnMoved: 0,
  keyPrefix: "",
  enableAutoPipelining: false,
  // Without it ioredis rejects its own ready check while no master is connected, and starts again.
  enableOfflineQueue: true,
  clusterNodeRetryStrategy: null,
  retryDelayOnFailover: 0,
  retryDelayOnClusterDown: 0,
  clusterRetryStrategy: reconnectDelayMs,
  scaleReads: "master",
});
