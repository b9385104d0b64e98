/**
 * All `Redlock`s with the same clients share one engine, and therefore one connection per client. node-redlock opens no
 * connections, so existing code may create a `Redlock` per request and never close it.
 *
 * The engine's connection for a client is closed together with the client (`client.quit()`, `client.disconnect()`).
 */

import { type LockNode, Redlock } from "@x/redlock-core";
import { onAbort, warn } from "@x/redlock-core/kit";
import { databaseOf, protocolOf, type RedlockProtocol } from "@x/redlock-core/protocol";
import type { Client, EngineSettings, Settings } from "./types.ts";

type SharedSettings = EngineSettings & Pick<Settings, "driftFactor">;

/**
 * The core's default `ttl`, which must not exceed `maxTtl`. The durations of calls are checked by `checkDuration`
 * instead of the core, so that a lock without `maxTtl` may be longer than the core allows.
 */
const DEFAULT_TTL_MS = 30_000;

/** How long the first call waits for new connections. A Cluster needs some hundred milliseconds. */
const CONNECT_MS = 2_000;

const known = new WeakMap<Client, Set<SharedEngine>>();

/** Returns the engine for `clients`, which must not be empty. */
export function sharedEngine(clients: ReadonlySet<Client>, settings: SharedSettings): SharedEngine {
  const [first] = clients;
  if (first === undefined) throw new RangeError("clients must name at least one client, got []");
  const engines = known.get(first) ?? new Set();
  known.set(first, engines);
  for (const engine of engines) {
    if (!engine.serves(clients, settings)) continue;
    if (engine.isUsable) return engine;
    engine.close();
    engines.delete(engine);
  }
  const engine = new SharedEngine([...clients], settings);
  engines.add(engine);
  return engine;
}

/** Closes the connections that were opened for these clients, and calls `quit` on the clients. */
export function quitClients(clients: readonly Client[]): Promise<unknown[]> {
  for (const client of clients) {
    for (const engine of known.get(client) ?? []) engine.close();
    known.delete(client);
  }
  return Promise.all(clients.map((client) => client.quit()));
}

export class SharedEngine {
  readonly protocol: RedlockProtocol;
  readonly clients: readonly Client[];
  /** Clients that are too slow to wait for (see `VoteCount`). */
  readonly slow: Set<Client> = new Set();
  readonly #redlock: Redlock;
  readonly #settings: SharedSettings;
  readonly #ended = new Set<Client>();
  readonly #databases: readonly number[];
  /** Resolves when each connection is open or known to be down, after at most `CONNECT_MS`. Undefined afterwards. */
  #connecting: Promise<void> | undefined;
  /** Waits for clients, see `untilUsable`. */
  readonly #waitsByClient = new Map<Client, Promise<void>>();
  readonly #stopListening: (() => void)[] = [];

  constructor(clients: readonly Client[], settings: SharedSettings) {
    const { driftFactor, nodeTimeout, maxTtl } = settings;
    this.#redlock = new Redlock(clients, {
      driftFactor,
      nodeTimeout,
      ...(maxTtl === undefined ? { quarantine: false } : { maxTtl, ttl: Math.min(DEFAULT_TTL_MS, maxTtl) }),
    });
    this.protocol = protocolOf(this.#redlock);
    const { nodes } = this.protocol;
    this.clients = clients;
    this.#databases = clients.map(databaseOf);
    this.#settings = settings;
    for (const [index, client] of clients.entries()) this.#closeWithClient(client, nodes[index]);
    this.#connecting = this.#untilNodes(() => nodes.every(({ state }) => state !== "connecting")).then(() => {
      this.#connecting = undefined;
    });
  }

  /**
   * Whether the engine can be used. False if it was closed, if a client has ended and is connected again, or if a
   * client has selected another database.
   */
  get isUsable(): boolean {
    if (this.protocol.closed.aborted) return false;
    for (const client of this.#ended) if (client.status !== "end") return false;
    return this.clients.every((client, index) => databaseOf(client) === this.#databases[index]);
  }

  get quorum(): number {
    return this.#redlock.quorum;
  }

  /** Longest duration of a lock whose duration is unknown. */
  get maxTtl(): number {
    return this.#redlock.options.maxTtl;
  }

  /**
   * Returns undefined if the clients can be asked now. Otherwise resolves when a quorum is connected, or when no
   * disconnected client has a command in its offline queue any more. While Redis starts, a caller therefore waits as
   * long as a command of the client would wait. Never rejects.
   */
  untilUsable(): Promise<void> | undefined {
    const isUsable = this.#hasQuorum || this.protocol.closed.aborted;
    return this.#connecting?.then(() => this.untilUsable()) ?? (isUsable ? undefined : this.#untilQuorum());
  }

  get #hasQuorum(): boolean {
    return this.protocol.nodes.filter(({ state }) => state === "ready").length >= this.quorum;
  }

  async #untilQuorum(): Promise<void> {
    const down = this.clients.filter((_, index) => this.protocol.nodes[index]?.state !== "ready");
    await this.#untilNodes(() => this.#hasQuorum, Promise.all(down.map((client) => this.#untilAnswered(client))));
  }

  /** Resolves when the client gives up, or once the client and then also the engine's connections are open. */
  #untilAnswered(client: Client): Promise<void> {
    const known = this.#waitsByClient.get(client);
    if (known !== undefined) return known;
    const ask = async (): Promise<void> => {
      try {
        // A connected client queues nothing. If its server hangs, the answer would never arrive.
        if (client.status !== "ready") await client.ping();
        await this.#untilNodes(() => this.protocol.nodes.every(({ state }) => state === "ready"));
      } catch {
        // The client will not be connected, or has no queue. The attempt reports the error.
      } finally {
        this.#waitsByClient.delete(client);
      }
    };
    const asked = ask();
    this.#waitsByClient.set(client, asked);
    return asked;
  }

  /**
   * Reports whether this engine has these settings, and the same clients in the same order. The order matters because
   * votes are reported by position.
   */
  serves(clients: ReadonlySet<Client>, settings: SharedSettings): boolean {
    if (clients.size !== this.clients.length) return false;
    let index = 0;
    for (const client of clients) if (client !== this.clients[index++]) return false;
    return (
      settings.driftFactor === this.#settings.driftFactor &&
      settings.nodeTimeout === this.#settings.nodeTimeout &&
      settings.maxTtl === this.#settings.maxTtl
    );
  }

  close(): void {
    if (this.protocol.closed.aborted) return;
    for (const stop of this.#stopListening) stop();
    closeQuietly(this.#redlock);
  }

  /**
   * Resolves when `isDone` returns true, when `over` resolves (default: after `CONNECT_MS`), or when the engine is
   * closed.
   */
  async #untilNodes(isDone: () => boolean, over?: Promise<unknown>): Promise<void> {
    const { nodes, clock, closed } = this.protocol;
    const stops: (() => void)[] = [];
    await new Promise<void>((resolve) => {
      const check = (): void => {
        if (isDone() || closed.aborted) resolve();
      };
      stops.push(onAbort(closed, resolve), ...nodes.map((node) => node.onStateChange(check)));
      if (over === undefined) stops.push(clock.schedule(CONNECT_MS, resolve, { keepAlive: true }));
      else void over.then(() => resolve());
      check();
    });
    for (const stop of stops) stop();
  }

  #closeWithClient(client: Client, node: LockNode | undefined): void {
    const onEnd = (): void => {
      this.#ended.add(client);
      if (node !== undefined) closeQuietly(node);
    };
    if (client.status === "end") {
      onEnd();
      return;
    }
    client.once("end", onEnd);
    this.#stopListening.push(() => client.removeListener("end", onEnd));
  }
}

function closeQuietly(closed: { close(): Promise<void> }): void {
  closed.close().catch((error) => warn(error, "X_REDLOCK_CLOSE"));
}
