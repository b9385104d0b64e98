/**
 * The adapters share this file. It has the state of a node, and what its connections were told: scripts and channels.
 */
import type { Clock } from "../kit/clock.ts";
import { backOffMs } from "../rules/retry.ts";
import type { NodeScript } from "../rules/script.ts";
import { type NodeState, type OnGap, plainError } from "./node.ts";

export interface NodeSettings {
  readonly nodeTimeoutMs: number;
  readonly clock: Clock;
}

/** Why a connection is replaced that is open and says nothing. */
export const NO_HANDSHAKE = "no answer to the handshake";
export const NO_ANSWER = "no answer for too long";

/** The pause before a node that refused a subscription is asked again. */
export const RESUBSCRIBE_MS = 5_000;

/** A `ClientNode` is what a node has whatever its client is: settings, scripts, and a state with its listeners. */
export abstract class ClientNode {
  protected readonly settings: NodeSettings;
  protected readonly scripts: LoadedScripts = new LoadedScripts();
  protected isClosed = false;
  #state: NodeState = "connecting";
  #lastError: Error | undefined;
  readonly #listeners = new Set<() => void>();

  constructor(settings: NodeSettings) {
    this.settings = settings;
  }

  get state(): NodeState {
    return this.#state;
  }

  get lastError(): Error | undefined {
    return this.#lastError;
  }

  onStateChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  protected noteError(error: unknown): void {
    this.#lastError = plainError(error);
  }

  protected become(state: NodeState): void {
    if (state === this.#state) return;
    this.#state = state;
    if (state === "ready") this.#lastError = undefined;
    for (const listener of [...this.#listeners]) listener();
  }
}

interface Subscription<Connection> {
  readonly channel: string;
  readonly listener: (message: string) => void;
  readonly onGap: OnGap | undefined;
  readonly confirmed: () => void;
  readonly refused: (error: unknown) => void;
  /** Whether the node has confirmed it, on whatever connection. */
  wasConfirmed: boolean;
  /** The connection that has confirmed it, and has not refused it since. */
  on: Connection | undefined;
}

/** How a client's connection for messages is asked. */
interface ChannelCalls<Connection> {
  /** Resolves when the node has confirmed the subscription, and rejects when it has refused it. */
  subscribe(connection: Connection, channel: string): Promise<unknown>;
  unsubscribe(connection: Connection, channel: string): Promise<unknown>;
}

/** The listeners of channels, for which each new connection is asked. See `LockNode.subscribe`. */
export class Subscriptions<Connection> {
  readonly #clock: Clock;
  readonly #calls: ChannelCalls<Connection>;
  readonly #all = new Set<Subscription<Connection>>();
  #connection: Connection | undefined;
  #cancelAsking: (() => void) | undefined;
  #closed: Error | undefined;

  constructor(clock: Clock, calls: ChannelCalls<Connection>) {
    this.#clock = clock;
    this.#calls = calls;
  }

  /** Resolves, when the node has confirmed it, with a function that ends it. */
  add(channel: string, listener: (message: string) => void, onGap: OnGap | undefined): Promise<() => void> {
    if (this.#closed !== undefined) return Promise.reject(this.#closed);
    return new Promise((resolve, reject) => {
      const added: Subscription<Connection> = {
        channel,
        listener,
        onGap,
        confirmed: () => resolve(() => this.#delete(added)),
        refused: reject,
        wasConfirmed: false,
        on: undefined,
      };
      this.#all.add(added);
      if (this.#connection !== undefined) void this.#ask(this.#connection, added);
    });
  }

  /** Asks a connection for all channels, and from now on for each new one. */
  use(connection: Connection): void {
    this.#connection = connection;
    for (const each of [...this.#all]) void this.#ask(connection, each);
  }

  /** Waits for another connection. What the last one leaves without an answer is asked for again then. */
  lose(): void {
    this.#connection = undefined;
  }

  heard(channel: string, message: string): void {
    for (const each of this.#all) if (each.channel === channel) each.listener(message);
  }

  tellGap(isHeard: boolean): void {
    for (const { wasConfirmed, onGap } of [...this.#all]) if (wasConfirmed) onGap?.(isHeard);
  }

  /** Tells whether the node has ever confirmed a channel that somebody listens to. */
  wasConfirmed(channel: string): boolean {
    return [...this.#all].some((each) => each.channel === channel && each.wasConfirmed);
  }

  close(error: Error): void {
    this.#closed = error;
    this.lose();
    this.#cancelAsking?.();
    for (const { refused } of this.#all) refused(error);
    this.#all.clear();
  }

  /** Never rejects. */
  async #ask(connection: Connection, asked: Subscription<Connection>): Promise<void> {
    const { channel, onGap, wasConfirmed } = asked;
    try {
      await this.#calls.subscribe(connection, channel);
    } catch (error) {
      if (connection === this.#connection) this.#onRefused(asked, error);
      return;
    }
    asked.wasConfirmed = true;
    asked.on = connection;
    asked.confirmed();
    if (wasConfirmed) onGap?.(true);
    if (!this.#all.has(asked)) this.#leave(channel);
  }

  /** A client would not ask again for what it was refused on another connection, so this does. */
  #onRefused(asked: Subscription<Connection>, error: unknown): void {
    asked.on = undefined;
    if (!asked.wasConfirmed) {
      this.#all.delete(asked);
      asked.refused(error);
      return;
    }
    asked.onGap?.(false);
    this.#cancelAsking ??= this.#clock.schedule(RESUBSCRIBE_MS, () => {
      this.#cancelAsking = undefined;
      const connection = this.#connection;
      if (connection === undefined) return;
      for (const each of [...this.#all]) if (each.on !== connection) void this.#ask(connection, each);
    });
  }

  #delete(subscription: Subscription<Connection>): void {
    if (this.#all.delete(subscription)) this.#leave(subscription.channel);
  }

  #leave(channel: string): void {
    const isWanted = [...this.#all].some((each) => each.channel === channel);
    if (isWanted || this.#connection === undefined) return;
    this.#calls.unsubscribe(this.#connection, channel).catch(() => undefined);
  }
}

/**
 * SCRIPT LOAD goes out once per connection, before the first EVALSHA on the same connection. There is no second round
 * trip, and so nothing that a later release could overtake.
 */
export class LoadedScripts {
  #loaded = new Set<string>();

  forget(): void {
    this.#loaded = new Set();
  }

  needsLoading(script: NodeScript): boolean {
    if (this.#loaded.has(script.sha1)) return false;
    this.#loaded.add(script.sha1);
    return true;
  }

  /** Runs a script by the commands that `send` sends, in their order. */
  async run(
    send: (command: string[]) => Promise<unknown>,
    script: NodeScript,
    keys: readonly string[],
    args: readonly string[],
  ): Promise<unknown> {
    if (this.needsLoading(script)) send(["SCRIPT", "LOAD", script.source]).catch(() => this.forget());
    try {
      return await send(["EVALSHA", script.sha1, String(keys.length), ...keys, ...args]);
    } catch (error) {
      this.forgetIfMissing(error);
      throw error;
    }
  }

  /** Forgets which scripts were loaded if the server's script cache was flushed: the next request loads again. */
  forgetIfMissing(error: unknown): void {
    if (error instanceof Error && error.message.startsWith("NOSCRIPT")) this.forget();
  }
}

/**
 * Checks that the connection has the database that the client had when the `Redlock` was made. Locks in two databases
 * exclude nobody.
 */
export function checkDatabase(ours: number, clients: number): void {
  if (clients === ours) return;
  throw new Error(
    `its client selected database ${clients}, and this Redlock is in ${ours}: name the database in the client's options, or make another Redlock after select()`,
  );
}

/**
 * Returns the pause before the next connection, which grows from 50 ms to a second. A node that comes back is used
 * again soon, and a dead one is not hammered.
 */
export function reconnectDelayMs(failures: number): number {
  return backOffMs({ failures: failures + 1, delayMs: 50, maxDelayMs: 1_000 });
}

/**
 * Returns the value in an answer to CONFIG GET. The answer has names and values in turn or, by protocol version 3, is
 * an object.
 */
export function settingOf(answer: unknown, name: string): string | undefined {
  const value = Array.isArray(answer)
    ? (answer[1] as unknown)
    : (answer as Readonly<Record<string, unknown>> | undefined)?.[name];
  return typeof value === "string" ? value : undefined;
}
