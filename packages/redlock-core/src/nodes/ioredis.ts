/**
 * Adapter for ioredis 5 and 6: `Redis` (including Sentinel) and `Cluster`. Only this file, ioredis-options.ts and
 * ioredis-request.ts know ioredis.
 *
 * Each node duplicates the client to get its own connection, which sends a request immediately or rejects it. Both
 * `enableOfflineQueue` and `autoResendUnfulfilledCommands` are off (either of them could leave orphaned locks behind),
 * and requests are not retried.
 *
 * The connection does not keep the process alive, unless it belongs to a Cluster. The caller's client is neither used
 * nor closed.
 *
 * In a Cluster, ioredis itself queues requests for a master while it connects to the master for the first time, up to
 * `connectTimeout`. A lock request may then be sent late, directly followed by its release. Requests for a master that
 * was connected before are never queued. While a hash slot moves, ioredis repeats a request for up to a third of
 * `nodeTimeout`.
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

/** The part of ioredis in use; both major versions have it. */
export interface IoredisClient {
  readonly status: string;
  readonly options: object;
  readonly isCluster?: boolean;
  duplicate(...args: never[]): unknown;
}

/** ioredis' record of `select()`, kept from the call on even while the client is not connected. */
interface Selected {
  readonly condition?: { readonly select?: number } | null;
  readonly prevCondition?: { readonly select?: number } | null;
}

/** Returns the client's current database, or the database that it will select once connected. */
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
  info(section: "server"): Promise<unknown>;
  script(command: "LOAD", source: string): Promise<unknown>;
  subscribe(channel: string): Promise<unknown>;
  unsubscribe(channel: string): Promise<unknown>;
  ping(): Promise<unknown>;
  disconnect(): void;
  nodes?(role: "master"): readonly Connection[];
  /** The part of a Cluster that chooses the connection for messages. */
  readonly subscriber?: { getInstance?(): Connection | null };
}

type Purpose = "requests" | "messages";
type Opener = (purpose: Purpose) => Connection;

/** Error of ioredis for a command that failed, with the command's name. */
type CommandError = Error & { readonly command?: { readonly name: string } };

export class IoredisNode extends ClientNode implements LockNode {
  readonly name: string;
  readonly keyPrefix: string;
  readonly isCluster: boolean;
  readonly #opener: Promise<Opener>;
  /** Throws if the caller's client is now in another database. */
  readonly #checkDatabase: () => unknown;
  readonly #subscriptions: Subscriptions<Connection>;
  #connection: Connection | undefined;
  readonly #sender = new ScriptSender();
  #subscriber: Promise<Connection> | undefined;
  #openedSubscriber: Connection | undefined;
  /**
   * Connection over which a Cluster's messages arrive: the connection that first confirmed a channel, or the one found
   * by a later check.
   */
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

  /** Creates a node with duplicates of the caller's client, which is neither used nor closed. */
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

  /** Connects by URL or options. Needs ioredis; if it is not installed, the node is down and its error says why. */
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

  /** Not async, because `async` would cost two more promises per request. */
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
    // The status of a Cluster changes shortly before its event. In between, the Cluster would queue a request.
    const isReady = this.state === "ready" && connection?.status === "ready";
    if (connection === undefined || !isReady) throw notConnected(this);
    this.#checkDatabase();
    if (this.scripts.needsLoading(script)) {
      const masters = connection.nodes?.("master") ?? [connection];
      this.scripts.load(
        script,
        masters.map((master) => ({
          info: () => master.info("server"),
          load: (source) => master.script("LOAD", source),
        })),
      );
    }
    // A Cluster finds the node for a command by its keys, so the command must be parsed by ioredis.
    const answer = this.isCluster
      ? connection.evalsha([script.sha1, keys.length, ...keys, ...args])
      : this.#sender.send(connection, script.sha1, keys, args);
    return this.scripts.checked(answer);
  }

  async config(name: string): Promise<string | undefined> {
    if (this.isCluster || this.state !== "ready") return undefined;
    return settingOf(await this.#connection?.config?.("GET", name), name);
  }

  /**
   * Destroys the socket, because a dead peer may never confirm an orderly end. In a Cluster, ioredis watches each
   * connection itself.
   */
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
    // A Cluster may close and reopen before it is ready for the first time. Until then the node is still connecting.
    const isDown = (): void => {
      if (wasReady || !this.isCluster) this.become("down");
    };
    connection.on("connect", () => {
      selectError = undefined;
    });
    connection.on("error", (error: CommandError) => {
      // Commands under way fail after the error that closed the connection, and must not replace that error.
      if (!this.isCluster && connection.status === "reconnecting") return;
      this.noteError(error);
      if (error.command?.name === "select") selectError = error;
    });
    connection.on("ready", () => {
      wasReady = true;
      // The connection could not select its database, so it would use database 0.
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

  /**
   * Detects that ioredis has moved the subscriptions of a Cluster to another connection, which it does without an
   * event.
   */
  #checkCarrier(carrier: Connection | null | undefined): void {
    if (carrier?.status !== "ready" || this.#carrier === undefined || carrier === this.#carrier) return;
    this.#carrier = carrier;
    // The answer to PING arrives after the answers to the subscriptions that were sent before it.
    carrier.ping().then(
      () => {
        this.#subscriptions.notifyGap(true);
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
      this.#subscriptions.deliver(channel, message);
    });
    let wasReady = false;
    connection.on("ready", () => {
      // ioredis would subscribe again itself, but would leave a refusal unhandled and never repeat the request.
      if (wasReady && !this.isCluster) this.#subscriptions.useConnection(connection);
      wasReady = true;
    });
    letProcessEnd(connection);
    boundHandshake(connection, this.settings);
    this.#openedSubscriber = connection;
    this.#subscriptions.useConnection(connection);
    return connection;
  }
}

/**
 * Lets the process end even if the socket is idle or waits for an answer, or a reconnection is pending. A call under
 * way keeps the process alive by its timer. The connections of a Cluster are out of reach: they keep the process alive
 * until they are closed.
 */
function letProcessEnd(connection: Connection): void {
  connection.on("connect", () => connection.stream?.unref?.());
  connection.on("reconnecting", () => connection.reconnectTimeout?.unref?.());
}

/**
 * Limits the time for the handshake (HELLO, AUTH, SELECT, INFO). The `connectTimeout` of ioredis does not: it only
 * covers the TCP connection, which precedes the handshake.
 *
 * A server that answers but is not ready because it is loading its data is given more time. The handshakes of a Cluster
 * are not visible here; its connections have a `socketTimeout` instead.
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
    // Connections for messages queue the subscription until they are connected. Requests are sent immediately or
    // rejected.
    enableOfflineQueue: forMessages,
    autoResendUnfulfilledCommands: forMessages,
    autoResubscribe: false,
    maxRetriesPerRequest: forMessages ? null : 0,
    commandTimeout: undefined,
    // Costs a timer and a listener per command, so it is only set on connections that are not watched otherwise.
    socketTimeout: isWatched ? undefined : deadConnectionMs(settings.nodeTimeoutMs),
    retryStrategy: reconnectDelayMs,
    sentinelRetryStrategy: reconnectDelayMs,
    reconnectOnError: null,
  };
}

/**
 * Upper limit for repeated requests. All pauses in between must together end well before the round does, because only
 * one release follows the request.
 */
const REDIRECTIONS = 8;

const clusterOverrides = ({ nodeTimeoutMs }: NodeSettings): object => ({
  lazyConnect: false,
  maxRedirections: REDIRECTIONS,
  retryDelayOnTryAgain: Math.floor(nodeTimeoutMs / (3 * REDIRECTIONS)),
  retryDelayOnMoved: 0,
  keyPrefix: "",
  enableAutoPipelining: false,
  // Without this queue ioredis rejects its own ready check while no master is connected, and starts again.
  enableOfflineQueue: true,
  clusterNodeRetryStrategy: null,
  retryDelayOnFailover: 0,
  retryDelayOnClusterDown: 0,
  clusterRetryStrategy: reconnectDelayMs,
  scaleReads: "master",
});
