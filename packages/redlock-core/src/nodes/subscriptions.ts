/**
 * Shared by the adapters: the listeners of channels. Each new connection subscribes again to all channels that have
 * listeners. This class keeps the promises of `LockNode.subscribe`.
 */
import type { OnGap } from "./node.ts";

interface NodeSubscription {
  readonly channel: string;
  readonly listener: (message: string) => void;
  readonly onGap: OnGap | undefined;
  readonly onConfirmed: () => void;
  readonly onRefused: (error: unknown) => void;
  /** Whether the node has confirmed this subscription, on the current or an earlier connection. */
  wasConfirmed: boolean;
}

/** Calls to a client's connection for messages. */
interface ChannelCalls<Connection> {
  /** Resolves when the node has confirmed the subscription. Rejects if the node has refused it. */
  subscribe(connection: Connection, channel: string): Promise<unknown>;
  unsubscribe(connection: Connection, channel: string): Promise<unknown>;
}

export class Subscriptions<Connection> {
  readonly #calls: ChannelCalls<Connection>;
  readonly #all = new Set<NodeSubscription>();
  #connection: Connection | undefined;
  #closed: Error | undefined;

  constructor(calls: ChannelCalls<Connection>) {
    this.#calls = calls;
  }

  /**
   * Resolves when the node has confirmed the subscription, with a function that ends it. Rejects if the node refuses
   * it.
   */
  add(channel: string, listener: (message: string) => void, onGap: OnGap | undefined): Promise<() => void> {
    if (this.#closed !== undefined) return Promise.reject(this.#closed);
    return new Promise((resolve, reject) => {
      const added: NodeSubscription = {
        channel,
        listener,
        onGap,
        onConfirmed: () => resolve(() => this.#delete(added)),
        onRefused: reject,
        wasConfirmed: false,
      };
      this.#all.add(added);
      if (this.#connection !== undefined) void this.#subscribe(this.#connection, added);
    });
  }

  /** Subscribes to all channels over `connection`, which is also used for later subscriptions. */
  useConnection(connection: Connection): void {
    this.#connection = connection;
    for (const each of [...this.#all]) void this.#subscribe(connection, each);
  }

  /** Called when the connection is lost. Subscriptions without an answer are requested again on the next connection. */
  loseConnection(): void {
    this.#connection = undefined;
  }

  deliver(channel: string, message: string): void {
    for (const each of this.#all) if (each.channel === channel) each.listener(message);
  }

  notifyGap(isSubscribed: boolean): void {
    for (const { wasConfirmed, onGap } of [...this.#all]) if (wasConfirmed) onGap?.(isSubscribed);
  }

  /** Reports whether the node has ever confirmed a current subscription to the channel. */
  wasConfirmed(channel: string): boolean {
    return [...this.#all].some((each) => each.channel === channel && each.wasConfirmed);
  }

  close(error: Error): void {
    this.#closed = error;
    this.loseConnection();
    for (const { onRefused } of this.#all) onRefused(error);
    this.#all.clear();
  }

  /** Requests a subscription. Never rejects. */
  async #subscribe(connection: Connection, asked: NodeSubscription): Promise<void> {
    const { channel, onGap, wasConfirmed } = asked;
    try {
      await this.#calls.subscribe(connection, channel);
    } catch (error) {
      if (connection === this.#connection) this.#onRefused(asked, error);
      return;
    }
    asked.wasConfirmed = true;
    asked.onConfirmed();
    if (wasConfirmed) onGap?.(true);
    if (!this.#all.has(asked)) this.#unsubscribeIfUnused(channel);
  }

  /**
   * Keeps a subscription that was confirmed before: the next connection requests it again, which a client would not do.
   * A subscription that was never confirmed is rejected.
   */
  #onRefused(asked: NodeSubscription, error: unknown): void {
    if (asked.wasConfirmed) asked.onGap?.(false);
    else {
      this.#all.delete(asked);
      asked.onRefused(error);
    }
  }

  #delete(subscription: NodeSubscription): void {
    if (this.#all.delete(subscription)) this.#unsubscribeIfUnused(subscription.channel);
  }

  #unsubscribeIfUnused(channel: string): void {
    const isWanted = [...this.#all].some((each) => each.channel === channel);
    if (isWanted || this.#connection === undefined) return;
    this.#calls.unsubscribe(this.#connection, channel).catch(() => undefined);
  }
}
