/**
 * The adapters share this file: the listeners of channels, for which each new connection is asked. It keeps what
 * `LockNode.subscribe` promises.
 */
import type { OnGap } from "./node.ts";

interface Subscription {
  readonly channel: string;
  readonly listener: (message: string) => void;
  readonly onGap: OnGap | undefined;
  readonly confirmed: () => void;
  readonly refused: (error: unknown) => void;
  /** Whether the node has confirmed it, on whatever connection. */
  wasConfirmed: boolean;
}

/** How a client's connection for messages is asked. */
interface ChannelCalls<Connection> {
  /** Resolves when the node has confirmed the subscription, and rejects when it has refused it. */
  subscribe(connection: Connection, channel: string): Promise<unknown>;
  unsubscribe(connection: Connection, channel: string): Promise<unknown>;
}

export class Subscriptions<Connection> {
  readonly #calls: ChannelCalls<Connection>;
  readonly #all = new Set<Subscription>();
  #connection: Connection | undefined;
  #closed: Error | undefined;

  constructor(calls: ChannelCalls<Connection>) {
    this.#calls = calls;
  }

  /** Resolves, when the node has confirmed it, with a function that ends it. */
  add(channel: string, listener: (message: string) => void, onGap: OnGap | undefined): Promise<() => void> {
    if (this.#closed !== undefined) return Promise.reject(this.#closed);
    return new Promise((resolve, reject) => {
      const added: Subscription = {
        channel,
        listener,
        onGap,
        confirmed: () => resolve(() => this.#delete(added)),
        refused: reject,
        wasConfirmed: false,
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
    for (const { refused } of this.#all) refused(error);
    this.#all.clear();
  }

  /** Never rejects. */
  async #ask(connection: Connection, asked: Subscription): Promise<void> {
    const { channel, onGap, wasConfirmed } = asked;
    try {
      await this.#calls.subscribe(connection, channel);
    } catch (error) {
      if (connection === this.#connection) this.#onRefused(asked, error);
      return;
    }
    asked.wasConfirmed = true;
    asked.confirmed();
    if (wasConfirmed) onGap?.(true);
    if (!this.#all.has(asked)) this.#leave(channel);
  }

  /** What was confirmed once is asked for again with the next connection, which a client would not do. */
  #onRefused(asked: Subscription, error: unknown): void {
    if (asked.wasConfirmed) asked.onGap?.(false);
    else {
      this.#all.delete(asked);
      asked.refused(error);
    }
  }

  #delete(subscription: Subscription): void {
    if (this.#all.delete(subscription)) this.#leave(subscription.channel);
  }

  #leave(channel: string): void {
    const isWanted = [...this.#all].some((each) => each.channel === channel);
    if (isWanted || this.#connection === undefined) return;
    this.#calls.unsubscribe(this.#connection, channel).catch(() => undefined);
  }
}
