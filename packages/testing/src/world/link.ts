/**
 * A client's view of one server: a `LockNode` for the production code, and the TCP connections under it.
 *
 * A connection delivers first in, first out, with delays, stalls (packets that are lost and sent again) and resets.
 * After a reset, the server may still execute the requests that were already on their way. The promises of a real
 * adapter hold: nothing is queued while disconnected, and nothing is sent twice.
 */
import type { LockNode, NodeScript, NodeState } from "@x/redlock-core";
import { ReplyError } from "../redis/reply.ts";
import type { ClientReply } from "../redis/scripts.ts";
import { LinkSubscriptions } from "./link-subscriptions.ts";
import type { Machine } from "./machine.ts";
import type { Server } from "./server.ts";
import type { World } from "./world.ts";

export interface NetworkOptions {
  readonly delayMs: number;
  readonly jitterMs: number;
  /** The share of messages that take up to `slowMs`. */
  readonly slowChance: number;
  readonly slowMs: number;
}

type Settle = { readonly resolve: (reply: unknown) => void; readonly reject: (error: Error) => void };

/** One direction of a connection. */
class Direction {
  #lastMs = 0;

  arrival(atMs: number): number {
    this.#lastMs = Math.max(this.#lastMs, atMs);
    return this.#lastMs;
  }
}

interface TcpConnection {
  readonly incarnation: number;
  readonly up: Direction;
  readonly down: Direction;
  readonly pending: Set<Settle>;
  /** SHA-1 of the scripts that this connection has loaded on the server. */
  readonly loaded: Set<string>;
  /** Whether the client's end is closed, so that no reply arrives. */
  isClosed: boolean;
  /** Requests that arrive after this true time are lost with the connection. */
  lostFromMs: number;
}

export class Link implements LockNode {
  readonly name: string;
  readonly machine: Machine;
  readonly server: Server;
  readonly #world: World;
  readonly #network: NetworkOptions;
  readonly #listeners = new Set<() => void>();
  readonly #subscriptions: LinkSubscriptions;
  readonly #stopWatching: () => void;
  #state: NodeState = "connecting";
  #connection: TcpConnection | undefined;
  #isClosed = false;
  #failures = 0;
  #stalledUntilMs: { up: number; down: number } = { up: 0, down: 0 };
  lastError: Error | undefined;

  constructor(machine: Machine, server: Server, network: NetworkOptions) {
    this.machine = machine;
    this.server = server;
    this.#world = machine.world;
    this.#network = network;
    this.name = server.name;
    this.#subscriptions = new LinkSubscriptions({
      machine,
      server,
      isClosed: () => this.#isClosed,
      arrival: (direction) => this.#arrival(direction),
    });
    this.#stopWatching = server.onCrash(() => this.#onCrash());
    machine.onKill(() => this.abandon());
    this.#connectAfter(this.#delayMs());
  }

  get state(): NodeState {
    return this.#state;
  }

  eval(script: NodeScript, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    const connection = this.#connection;
    if (this.#isClosed || this.#state !== "ready" || connection === undefined) {
      return Promise.reject(new Error("not connected"));
    }
    const isNew = !connection.loaded.has(script.sha1);
    connection.loaded.add(script.sha1);
    return new Promise((resolve, reject) => {
      const settle: Settle = { resolve, reject };
      connection.pending.add(settle);
      const arrivesMs = connection.up.arrival(this.#arrival("up"));
      this.#world.at(arrivesMs, () => {
        if (arrivesMs >= connection.lostFromMs) return;
        if (connection.incarnation !== this.server.incarnation || !this.server.isUp) {
          this.#refuse(connection);
          return;
        }
        this.server.receive(() => {
          if (isNew) this.server.load(script);
          this.#execute(connection, settle, { script, keys, args });
        });
      });
    });
  }

  subscribe(channel: string, listener: (message: string) => void, onGap?: () => void): Promise<() => void> {
    return this.#subscriptions.subscribe(channel, listener, onGap);
  }

  onStateChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  close(): Promise<void> {
    this.#isClosed = true;
    this.#stopWatching();
    this.#cut("connection closed", 0);
    this.#subscriptions.close();
    return Promise.resolve();
  }

  /** Ends the connections of a killed process. The server notices later. */
  abandon(): void {
    this.#isClosed = true;
    this.#stopWatching();
    const closesMs = this.#world.nowMs + this.#world.random.between(0, 50);
    if (this.#connection !== undefined) this.#connection.lostFromMs = closesMs;
    this.#world.at(closesMs, () => this.#subscriptions.leave());
  }

  /** Delays all messages in these directions for `ms`. Messages sent in the meantime arrive afterwards. */
  stall(directions: "up" | "down" | "both", ms: number): void {
    const untilMs = this.#world.nowMs + ms;
    if (directions !== "down") this.#stalledUntilMs.up = Math.max(this.#stalledUntilMs.up, untilMs);
    if (directions !== "up") this.#stalledUntilMs.down = Math.max(this.#stalledUntilMs.down, untilMs);
  }

  heal(): void {
    this.#stalledUntilMs = { up: 0, down: 0 };
  }

  /** Breaks the connection. Requests on their way to the server still arrive for up to `lateMs`. */
  reset(lateMs: number): void {
    this.#cut("read ECONNRESET", lateMs);
    this.#subscriptions.reset();
  }

  #execute(
    connection: TcpConnection,
    settle: Settle,
    request: { readonly script: NodeScript; readonly keys: readonly string[]; readonly args: readonly string[] },
  ): void {
    let reply: ClientReply;
    let error: Error | undefined;
    try {
      reply = this.server.execute(request.script, request.keys, request.args);
    } catch (thrown) {
      if (!(thrown instanceof ReplyError)) {
        connection.pending.delete(settle);
        settle.reject(thrown instanceof Error ? thrown : new Error(String(thrown)));
        throw thrown;
      }
      error = thrown;
    }
    this.#world.at(connection.down.arrival(this.#arrival("down")), () => {
      if (connection.isClosed) return;
      this.machine.deliver("message", () => {
        if (!connection.pending.delete(settle)) return;
        if (error?.message.startsWith("NOSCRIPT") === true) connection.loaded.clear();
        if (error === undefined) settle.resolve(reply);
        else settle.reject(error);
      });
    });
  }

  #delayMs(): number {
    const { delayMs, jitterMs, slowChance, slowMs } = this.#network;
    const { random } = this.#world;
    const slow = !this.#world.isQuiet && random.fraction() < slowChance ? random.fraction() * slowMs : 0;
    return delayMs + random.fraction() * jitterMs + slow;
  }

  #arrival(direction: "up" | "down"): number {
    return Math.max(this.#world.nowMs, this.#stalledUntilMs[direction]) + this.#delayMs();
  }

  #become(state: NodeState): void {
    if (state === this.#state) return;
    this.#state = state;
    for (const listener of [...this.#listeners]) listener();
  }

  #onCrash(): void {
    this.#subscriptions.leave();
    const { random } = this.#world;
    const noticedAfterMs = random.chance(0.7) ? this.#delayMs() : random.between(50, 1_500);
    const connection = this.#connection;
    this.#world.at(this.#world.nowMs + noticedAfterMs, () => {
      if (this.#isClosed) return;
      if (this.#connection === connection) this.#cut("connection closed by the server", 0);
      this.#subscriptions.enrolAgain();
    });
  }

  /** Answers with a reset: the server does not know this connection. */
  #refuse(connection: TcpConnection): void {
    this.#world.at(this.#world.nowMs + this.#delayMs(), () => {
      if (this.#connection === connection) this.#cut("read ECONNRESET", 0);
    });
  }

  /** Closes the connection. The client is notified now, or when its machine runs again, and then reconnects. */
  #cut(message: string, lateMs: number): void {
    const connection = this.#connection;
    if (connection === undefined) return;
    this.#connection = undefined;
    connection.isClosed = true;
    connection.lostFromMs = this.#world.nowMs + lateMs;
    const fail = (): void => {
      const error = new Error(message);
      this.lastError = error;
      const pending = [...connection.pending];
      connection.pending.clear();
      for (const { reject } of pending) reject(error);
      this.#become("down");
    };
    if (this.#isClosed) {
      fail();
      return;
    }
    // Until the client is notified, its requests go into a dead connection.
    this.#connection = { ...connection, pending: connection.pending, isClosed: true, lostFromMs: 0 };
    const told = this.#connection;
    this.machine.deliver("message", () => {
      if (this.#connection === told) this.#connection = undefined;
      fail();
      if (!this.#isClosed) this.#connectAfter(this.#reconnectDelayMs());
    });
  }

  #reconnectDelayMs(): number {
    this.#failures += 1;
    return Math.min(50 * 2 ** this.#failures, 1_000) * this.#world.random.between(0.3, 1);
  }

  #connectAfter(ms: number): void {
    this.#world.at(this.#world.nowMs + ms, () => {
      if (this.#isClosed || !this.machine.isAlive || this.#connection !== undefined) return;
      const readyMs = Math.max(this.#arrival("up"), this.#arrival("down")) + this.#delayMs();
      this.#world.at(readyMs, () => {
        if (this.#isClosed || this.#connection !== undefined) return;
        if (!this.server.isUp || this.server.isFrozen) {
          this.#connectAfter(this.#reconnectDelayMs());
          return;
        }
        const { incarnation } = this.server;
        this.machine.deliver("message", () => {
          if (this.#isClosed || this.#connection !== undefined) return;
          if (incarnation !== this.server.incarnation) {
            this.#connectAfter(this.#reconnectDelayMs());
            return;
          }
          this.#failures = 0;
          this.#connection = {
            incarnation,
            up: new Direction(),
            down: new Direction(),
            pending: new Set(),
            loaded: new Set(),
            isClosed: false,
            lostFromMs: Number.POSITIVE_INFINITY,
          };
          this.#become("ready");
        });
      });
    });
  }
}
