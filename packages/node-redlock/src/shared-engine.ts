/**
 * All `Redlock`s with the same clients share one engine, and therefore one connection per client. node-redlock opens no
 * connections, so existing code may create a `Redlock` per request and never close it.
 *
 * The engine's connection for a client is closed together with the client (`client.quit()`, `client.disconnect()`).
 */

import { type LockNode, Redlock } from "@x/redlock-core";
import { onAbort } from "@x/redlock-core/kit";
import { CallDeadline, Deadlines, databaseOf, protocolOf, type RedlockProtocol } from "@x/redlock-core/protocol";
import type { Client, EngineSettings, Settings } from "./types.ts";

export type SharedSettings = EngineSettings & Pick<Settings, "driftFactor">;

/** How long the first call waits for new connections. A Cluster needs some hundred milliseconds. */
const CONNECT_MS = 2_000;

/**
 * How long a decided call waits for the missing votes, in ms. The keys are written over other connections than the
 * client's. Without this wait, code that reads the keys over the client right after the call could read from nodes that
 * have not voted yet.
 *
 * If a client is slower, later calls do not wait for it until it has answered.
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
    void engine.redlock.close();
    engines.delete(engine);
  }
  const engine = new SharedEngine([...clients], settings);
  engines.add(engine);
  return engine;
}

/** Closes the connections that were opened for these clients, and calls `quit` on the clients. */
export function quitClients(clients: readonly Client[]): Promise<unknown[]> {
  for (const client of clients) {
    for (const engine of known.get(client) ?? []) void engine.redlock.close();
    known.delete(client);
  }
  return Promise.all(clients.map((client) => client.quit()));
}

export class SharedEngine {
  readonly redlock: Redlock;
  readonly protocol: RedlockProtocol;
  readonly clients: readonly Client[];
  /** Clients that are too slow to wait for, as bits by position (see `VoteCount`). */
  slow = 0;
  /** The waits of decided calls for missing votes. */
  readonly graces: Deadlines;
  readonly #settings: SharedSettings;
  readonly #ended = new Set<Client>();
  readonly #databases: readonly number[];
  /** Resolves when each connection is open or known to be down, after at most `CONNECT_MS`. Undefined afterwards. */
  #connecting: Promise<void> | undefined;

  constructor(clients: readonly Client[], settings: SharedSettings) {
    const { driftFactor, nodeTimeout, maxTtl } = settings;
    // Durations are checked by `checkDuration`, so that a lock without `maxTtl` may be longer than the core allows.
    const trust = maxTtl === undefined ? { quarantine: false } : { maxTtl, ttl: maxTtl };
    this.redlock = new Redlock(clients, { driftFactor, nodeTimeout, ...trust });
    this.protocol = protocolOf(this.redlock);
    this.graces = new Deadlines(this.protocol.clock, GRACE_MS);
    this.clients = clients;
    this.#databases = clients.map(databaseOf);
    this.#settings = settings;
    const { nodes } = this.protocol;
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
    const isUnchanged = (client: Client, index: number): boolean =>
      databaseOf(client) === this.#databases[index] && (client.status === "end" || !this.#ended.has(client));
    return !this.protocol.closed.aborted && this.clients.every(isUnchanged);
  }

  /**
   * Returns undefined if the clients can be asked now. Otherwise resolves when a quorum is connected, or when no
   * disconnected client has a command in its offline queue any more. While Redis starts, a caller therefore waits as
   * long as a command of the client would wait. Never rejects.
   */
  untilUsable(): Promise<void> | undefined {
    if (this.#connecting !== undefined) return this.#connecting.then(() => this.untilUsable());
    return this.#hasQuorum || this.protocol.closed.aborted ? undefined : this.#untilQuorum();
  }

  get #hasQuorum(): boolean {
    return this.protocol.nodes.filter(({ state }) => state === "ready").length >= this.redlock.quorum;
  }

  /** Waits until the clients answer or give up, and then until the engine's own connections are open. */
  async #untilQuorum(): Promise<void> {
    const down = this.clients.filter((_, index) => this.protocol.nodes[index]?.state !== "ready");
    let isAnswered = false;
    const answers = down.map(async (client) => {
      // A connected client queues nothing. If its server hangs, the answer would never arrive.
      if (client.status !== "ready") await client.ping();
      isAnswered = true;
    });
    await this.#untilNodes(() => this.#hasQuorum, Promise.allSettled(answers));
    if (isAnswered) await this.#untilNodes(() => this.#hasQuorum);
  }

  /**
   * Reports whether this engine has these settings, and the same clients in the same order. The order matters because
   * votes are reported by position.
   */
  serves(clients: ReadonlySet<Client>, settings: SharedSettings): boolean {
    const { driftFactor, nodeTimeout, maxTtl } = this.#settings;
    return (
      clients.size === this.clients.length &&
      [...clients].every((client, index) => client === this.clients[index]) &&
      settings.driftFactor === driftFactor &&
      settings.nodeTimeout === nodeTimeout &&
      settings.maxTtl === maxTtl
    );
  }

  /**
   * Resolves when `isDone` returns true, when `over` resolves (default: after `CONNECT_MS`), or when the engine is
   * closed.
   */
  async #untilNodes(isDone: () => boolean, over?: Promise<unknown>): Promise<void> {
    const { nodes, clock, closed } = this.protocol;
    const timeoutMs = over === undefined ? CONNECT_MS : Number.POSITIVE_INFINITY;
    const deadline = new CallDeadline(clock, { timeoutMs, closed });
    await deadline.untilCalled((wake) => {
      const check = (): void => {
        if (isDone()) wake();
      };
      const stops = nodes.map((node) => node.onStateChange(check));
      void over?.then(wake);
      check();
      return () => {
        for (const stop of stops) stop();
      };
    });
    deadline.dispose();
  }

  #closeWithClient(client: Client, node: LockNode | undefined): void {
    const onEnd = (): void => {
      this.#ended.add(client);
      void node?.close();
    };
    if (client.status === "end") onEnd();
    else client.once("end", onEnd);
    onAbort(this.protocol.closed, () => client.removeListener("end", onEnd));
  }
}
