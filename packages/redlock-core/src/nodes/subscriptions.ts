/**
 * The adapters share this file: the listeners of channels, for which each new connection is asked. It keeps what
 * `LockNode.subscribe` promises.
 */
import type { Clock } from "../kit/clock.ts";
import type { OnGap } from "./node.ts";

/** The pause before a node that refused a subscription is asked again. */
export const RESUBSCRIBE_MS = 5_000;

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
