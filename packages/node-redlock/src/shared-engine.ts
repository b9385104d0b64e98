/**
 * All `Redlock`s with the same clients share one engine, and therefore one connection per client. node-redlock opens no
 * connections, so existing code may create a `Redlock` per request and never close it.
 *
 * The engine's connection for a client is closed together with the client (`client.quit()`, `client.disconnect()`).
 */

import { Redlock } from "@x/redlock-core";
import { onAbort } from "@x/redlock-core/kit";
import { databaseOf, protocolOf, type RedlockProtocol } from "@x/redlock-core/protocol";
import { type CustomScripts, clientsOf, ENGINE_SETTINGS, SCRIPTS, settingsOf } from "./settings.ts";
import type { Client, EngineSettings, Settings, SomeSettings } from "./types.ts";

type SharedSettings = EngineSettings & Pick<Settings, "driftFactor">;

/** How long the first call waits for new connections. A Cluster needs some hundred milliseconds. */
const CONNECT_MS = 2_000;

/** A `Redlock` of version 4 or 5, as its calls see it. */
export interface Caller {
  readonly clients: Set<Client>;
  readonly engine: SharedEngine;
  readonly settings: Settings;
  /** Called for each client that failed, and with a `ResourceLockedError` for contention in an attempt that counts. */
  readonly onVoteAgainst: (error: Error) => void;
}

/** Checks the arguments of a constructor. */
export function newCaller(
  given: Iterable<Client>,
  allSettings: SomeSettings & EngineSettings,
  scripts: CustomScripts,
  onVoteAgainst: Caller["onVoteAgainst"],
): Caller {
  const clients = clientsOf(given);
  SCRIPTS.resolve(scripts, "scripts");
  const settings = settingsOf(allSettings);
  const { driftFactor } = settings;
  const engine = sharedEngine([...clients], { ...ENGINE_SETTINGS.pick(allSettings), driftFactor });
  return { clients, engine, settings, onVoteAgainst };
}

/** Engines by the first of their clients. */
const known = new WeakMap<Client, Set<SharedEngine>>();

/**
 * Returns the engine for these settings and clients. The order of the clients matters because votes are reported by
 * position.
 */
function sharedEngine(clients: readonly Client[], settings: SharedSettings): SharedEngine {
  const [first] = clients;
  if (first === undefined) throw new Error("Redlock must be instantiated with at least one redis client.");
  const engines = known.get(first) ?? new Set();
  known.set(first, engines);
  for (const engine of engines) {
    if (!engine.serves(clients, settings)) continue;
    if (engine.isUsable) return engine;
    void engine.redlock.close();
    engines.delete(engine);
  }
  const engine = new SharedEngine(clients, settings);
  engines.add(engine);
  return engine;
}

/** Closes the connections that were opened for these clients, and calls `quit` on the clients. */
export function quitClients(clients: readonly Client[]): Promise<unknown[]> {
  for (const client of clients) {
    for (const engine of known.get(client) ?? []) void engine.redlock.close();
  }
  return Promise.all(clients.map((client) => client.quit()));
}

export class SharedEngine {
  readonly redlock: Redlock;
  readonly protocol: RedlockProtocol;
  readonly clients: readonly Client[];
  readonly settings: SharedSettings;
  /** Longest duration of a call, in ms. A key may live this long, even if the call failed. */
  longestMs = 0;
  /** Databases of the clients. Undefined for a client that has ended. */
  readonly #databases: (number | undefined)[];
  #isNew = true;

  constructor(clients: readonly Client[], settings: SharedSettings) {
    const { driftFactor, nodeTimeout, maxTtl } = settings;
    // Durations are checked by `checkDuration`, so that a lock without `maxTtl` may be longer than the core allows.
    const trust = maxTtl === undefined ? { quarantine: false } : { maxTtl, ttl: maxTtl };
    this.redlock = new Redlock(clients, { driftFactor, nodeTimeout, ...trust });
    this.protocol = protocolOf(this.redlock);
    this.clients = clients;
    this.settings = settings;
    this.#databases = clients.map(databaseOf);
    for (const [index, client] of clients.entries()) this.#closeWithClient(client, index);
  }

  /** This engine, or the engine that replaces it. */
  get current(): SharedEngine {
    return this.isUsable ? this : sharedEngine(this.clients, this.settings);
  }

  serves(clients: readonly Client[], { driftFactor, nodeTimeout, maxTtl }: SharedSettings): boolean {
    const own = [...this.clients, this.settings.driftFactor, this.settings.nodeTimeout, this.settings.maxTtl];
    const given = [...clients, driftFactor, nodeTimeout, maxTtl];
    return own.length === given.length && own.every((each, index) => each === given[index]);
  }

  /**
   * Whether the engine can be used. False if it was closed, if a client has ended and is connected again, or if a
   * client has selected another database.
   */
  get isUsable(): boolean {
    const isUnchanged = (client: Client, index: number): boolean =>
      client.status === "end" || databaseOf(client) === this.#databases[index];
    return !this.protocol.closed.aborted && this.clients.every(isUnchanged);
  }

  /**
   * Returns undefined if the clients can be asked now. Otherwise resolves when a quorum is connected, or when no
   * disconnected client has a command in its offline queue any more. While Redis starts, a caller therefore waits as
   * long as a command of the client would wait. Never rejects.
   */
  untilUsable(): Promise<void> | undefined {
    return (!this.#isNew && this.#hasQuorum()) || this.protocol.closed.aborted ? undefined : this.#untilQuorum();
  }

  readonly #hasQuorum = (): boolean =>
    this.protocol.nodes.filter(({ state }) => state === "ready").length >= this.redlock.quorum;

  async #untilQuorum(): Promise<void> {
    const { nodes, closed } = this.protocol;
    const areTried = (): boolean => nodes.every(({ state }) => state !== "connecting");
    if (this.#isNew) await this.protocol.untilNodes(areTried, CONNECT_MS);
    this.#isNew = false;
    if (this.#hasQuorum() || closed.aborted) return;
    const down = this.clients.filter((_, index) => nodes[index]?.state !== "ready");
    // A connected client queues nothing. If its server hangs, the answer would never arrive.
    const answers = down.map(async (client) => (client.status === "ready" ? undefined : await client.ping()));
    await this.protocol.untilNodes(this.#hasQuorum, Number.POSITIVE_INFINITY, Promise.allSettled(answers));
    if (down.some(({ status }) => status === "ready")) await this.protocol.untilNodes(this.#hasQuorum, CONNECT_MS);
  }

  #closeWithClient(client: Client, index: number): void {
    const onEnd = (): void => {
      this.#databases[index] = undefined;
      void this.protocol.nodes[index]?.close();
    };
    if (client.status === "end") onEnd();
    else client.once("end", onEnd);
    onAbort(this.protocol.closed, () => client.removeListener("end", onEnd));
  }
}
