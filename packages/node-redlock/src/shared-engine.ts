/**
 * All `Redlock`s with the same clients share one engine, and so one connection per client. node-redlock opens no
 * connection of its own, and code written for it makes a `Redlock` per request and never closes it.
 *
 * The own connection of a client ends with the client (`client.quit()`, `client.disconnect()`).
 */

import { type LockNode, Redlock } from "@x/redlock-core";
import { onAbort, warn } from "@x/redlock-core/kit";
import { databaseOf, protocolOf, type RedlockProtocol } from "@x/redlock-core/protocol";
import type { Client, EngineSettings, Settings } from "./types.ts";

type SharedSettings = EngineSettings & Pick<Settings, "driftFactor">;

/**
 * A lock without `maxTtl` may be longer than any option of the core allows. Only the default duration is checked
 * against it.
 */
const DEFAULT_TTL_MS = 30_000;

/** How long the first call waits for connections that are being opened; a Cluster's takes some hundred milliseconds. */
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

/** Closes the connections that were opened for these clients, and quits the clients. */
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
  /** The clients that are not worth waiting for (see `VoteCount`). */
  readonly slow: Set<Client> = new Set();
  readonly #redlock: Redlock;
  readonly #settings: SharedSettings;
  readonly #ended = new Set<Client>();
  readonly #databases: readonly number[];
  /** Resolves when each connection is open or known to be down, after at most `CONNECT_MS`. Undefined from then on. */
  #connecting: Promise<void> | undefined;
  /** The clients that are waited for, see `untilUsable`. */
  readonly #asked = new Map<Client, Promise<void>>();
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
    for (const [index, client] of clients.entries()) this.#endWith(client, nodes[index]);
    this.#connecting = this.#untilNodes(() => nodes.every(({ state }) => state !== "connecting")).then(() => {
      this.#connecting = undefined;
    });
  }

  /**
   * Whether the engine can be used. It cannot when it was closed, when a client that had ended is connected again, or
   * when a client has selected another database.
   */
  get isUsable(): boolean {
    if (this.protocol.closed.aborted) return false;
    for (const client of this.#ended) if (client.status !== "end") return false;
    return this.clients.every((client, index) => databaseOf(client) === this.#databases[index]);
  }

  get quorum(): number {
    return this.#redlock.quorum;
  }

  /** The longest duration of a lock whose duration is unknown. */
  get maxTtl(): number {
    return this.#redlock.options.maxTtl;
  }

  /**
   * Resolves when a quorum is connected, or when no client that is not connected has a command in its offline queue. A
   * caller that asks for a lock while Redis starts waits as long as a command of the client would. Never rejects.
   * Undefined if the clients can be asked now.
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

  /** Resolves when the client gives up, or some time after it was connected, in which ours is, too. */
  #untilAnswered(client: Client): Promise<void> {
    const known = this.#asked.get(client);
    if (known !== undefined) return known;
    const ask = async (): Promise<void> => {
      try {
        // A connected client queues nothing, and of one whose server hangs the answer would never come.
        if (client.status !== "ready") await client.ping();
        await this.#untilNodes(() => this.protocol.nodes.every(({ state }) => state === "ready"));
      } catch {
        // It will not be connected, or has no queue: the attempt tells.
      } finally {
        this.#asked.delete(client);
      }
    };
    const asked = ask();
    this.#asked.set(client, asked);
    return asked;
  }

  /**
   * Tells whether this engine has these settings, and the same clients in the same order, because votes are reported
   * by their place.
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

  /** Resolves when the nodes are as wanted, when `over` does (by default after `CONNECT_MS`), or by `close`. */
  async #untilNodes(areWanted: () => boolean, over?: Promise<unknown>): Promise<void> {
    const { nodes, clock, closed } = this.protocol;
    const stops: (() => void)[] = [];
    await new Promise<void>((resolve) => {
      const look = (): void => {
        if (areWanted() || closed.aborted) resolve();
      };
      stops.push(onAbort(closed, resolve), ...nodes.map((node) => node.onStateChange(look)));
      if (over === undefined) stops.push(clock.schedule(CONNECT_MS, resolve, { keepAlive: true }));
      else void over.then(() => resolve());
      look();
    });
    for (const stop of stops) stop();
  }

  #endWith(client: Client, node: LockNode | undefined): void {
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
