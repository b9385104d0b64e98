/**
 * All `Redlock`s with the same clients share one engine, and so one connection per client. node-redlock opens no
 * connection of its own, and code written for it makes a `Redlock` per request and never closes it.
 *
 * The own connection of a client ends with the client (`client.quit()`, `client.disconnect()`).
 */

import { type LockNode, Redlock } from "@x/redlock-core";
import { onAbort, protocolOf } from "@x/redlock-core/protocol";
import { Deadlines, databaseOf, type Engine, type Session, warn } from "@x/redlock-core/steps";
import type { Client, EngineSettings, Settings } from "./types.ts";

type SharedSettings = EngineSettings & Pick<Settings, "driftFactor">;

/**
 * A lock without `maxTtl` may be longer than any option of the core allows. Only the default duration is checked
 * against it.
 */
const DEFAULT_TTL_MS = 30_000;

/** How long the first call waits for connections that are being opened; a Cluster's takes some hundred milliseconds. */
const CONNECT_MS = 2_000;

/**
 * A decided call waits for so long for the votes that are still out. The keys are written over connections of our
 * own. Code that reads them over the client right after the call would otherwise see some clients before the vote.
 *
 * A client that is slower than this is not waited for again until it has answered.
 */
const GRACE_MS = 50;

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
  readonly engine: Engine;
  readonly hints: Session["hints"];
  readonly clients: readonly Client[];
  /** Resolves when each connection is open or known to be down, at the latest after `CONNECT_MS`. Never rejects. */
  readonly connected: Promise<void>;
  isConnected = false;
  /** The deadlines of decided calls that wait for the votes that are still out. */
  readonly graces: Deadlines;
  /** The clients that are not worth waiting for (see `GRACE_MS`), as bits. */
  slow = 0;
  /** A signal that `close` aborts. */
  readonly closed: AbortSignal;
  readonly #redlock: Redlock;
  readonly #settings: SharedSettings;
  readonly #ended = new Set<Client>();
  readonly #databases: readonly number[];
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
    const { engine, hints, closed } = protocolOf(this.#redlock).session;
    const { nodes } = engine;
    this.clients = clients;
    this.engine = engine;
    this.graces = new Deadlines(engine.clock, GRACE_MS);
    this.hints = hints;
    this.closed = closed;
    this.#databases = clients.map(databaseOf);
    this.#settings = settings;
    for (const [index, client] of clients.entries()) this.#endWith(client, nodes[index]);
    this.connected = this.#untilNodes(() => nodes.every(({ state }) => state !== "connecting")).then(() => {
      this.isConnected = true;
    });
  }

  /**
   * Whether the engine can be used. It cannot when it was closed, when a client that had ended is connected again, or
   * when a client has selected another database.
   */
  get isUsable(): boolean {
    if (this.closed.aborted) return false;
    for (const client of this.#ended) if (client.status !== "end") return false;
    return this.clients.every((client, index) => databaseOf(client) === this.#databases[index]);
  }

  /** Whether a quorum of clients is connected. */
  get hasQuorum(): boolean {
    const { nodes, quorum } = this.engine;
    let ready = 0;
    for (const { state } of nodes) if (state === "ready") ready += 1;
    return ready >= quorum;
  }

  /**
   * Resolves when a quorum is connected, or when no client that is not connected has a command in its offline queue
   * any more. A caller that asks for a lock while Redis starts waits as long as for a command of the client's own.
   * Never rejects.
   */
  async untilUsable(): Promise<void> {
    if (this.hasQuorum || this.closed.aborted) return;
    const down = this.clients.filter((_, index) => this.engine.nodes[index]?.state !== "ready");
    await this.#untilNodes(() => this.hasQuorum, Promise.all(down.map((client) => this.#untilAnswered(client))));
  }

  /** Resolves when the client gives up, or some time after it was connected, in which ours is, too. */
  #untilAnswered(client: Client): Promise<void> {
    const known = this.#asked.get(client);
    if (known !== undefined) return known;
    const ask = async (): Promise<void> => {
      try {
        // A connected client queues nothing, and of one whose server hangs the answer would never come.
        if (client.status !== "ready") await client.ping();
        await this.#untilNodes(() => this.engine.nodes.every(({ state }) => state === "ready"));
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
    if (this.closed.aborted) return;
    for (const stop of this.#stopListening) stop();
    closeQuietly(this.#redlock);
  }

  /** Resolves when the nodes are as wanted, when `over` does (by default after `CONNECT_MS`), or by `close`. */
  async #untilNodes(areWanted: () => boolean, over?: Promise<unknown>): Promise<void> {
    const { nodes, clock } = this.engine;
    const stops: (() => void)[] = [];
    await new Promise<void>((resolve) => {
      const look = (): void => {
        if (areWanted() || this.closed.aborted) resolve();
      };
      stops.push(onAbort(this.closed, resolve), ...nodes.map((node) => node.onStateChange(look)));
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
