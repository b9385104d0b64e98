import { FaultyProxy, type ProxyConnection } from "@x/test-support";
import { onTestFinished } from "vitest";

/** A proxy that recognizes connections with a SUBSCRIBE. Ends with the test. */
export async function startSubscriberProxy(path: string): Promise<SubscriberProxy> {
  const proxy = new SubscriberProxy({ path });
  await proxy.listen();
  onTestFinished(() => proxy.stop());
  return proxy;
}

export class SubscriberProxy extends FaultyProxy {
  /** Whether each connection is cut when the first bytes come over it. */
  breaksHandshakes = false;
  brokenHandshakes = 0;
  readonly #subscribers = new WeakSet<ProxyConnection>();
  readonly #known = new WeakSet<ProxyConnection>();
  #cuts = 0;

  /** Returns the number of open connections that pass bytes and have sent a SUBSCRIBE. */
  subscriberCount(): number {
    return this.#open().filter(({ isSilent }) => !isSilent).length;
  }

  /** Swallows every byte of subscribed connections from now on. */
  silenceSubscribers(): void {
    for (const subscriber of this.#open()) subscriber.isSilent = true;
  }

  /** Cuts the connection on which the next SUBSCRIBE arrives. */
  cutNextSubscribe(): void {
    this.#cuts += 1;
  }

  protected override onSent(bytes: Buffer, connection: ProxyConnection): void {
    if (this.breaksHandshakes && !this.#known.has(connection)) {
      this.brokenHandshakes += 1;
      return this.drop(connection);
    }
    this.#known.add(connection);
    if (!/\r\nsubscribe\r\n/i.test(bytes.toString("latin1"))) return;
    this.#subscribers.add(connection);
    if (this.#cuts === 0) return;
    this.#cuts -= 1;
    this.drop(connection);
  }

  #open(): readonly ProxyConnection[] {
    return [...this.connections].filter((connection) => this.#subscribers.has(connection));
  }
}
