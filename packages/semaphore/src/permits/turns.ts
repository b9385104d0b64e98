/**
 * Turns are the messages by which the nodes call waiters. The waiters of one `Redlock` share a channel, which is opened
 * at the first wait. A message that is lost costs the time until the waiter asks again by itself.
 */
import type { Redlock } from "@x/redlock-core";
import { protocolOf } from "@x/redlock-core/protocol";

const ofRedlocks = new WeakMap<Redlock, Turns>();

export class Turns {
  readonly #redlock: Redlock;
  readonly #channel: string;
  readonly #listeners = new Map<string, (node: string) => void>();
  #opening: Promise<unknown> | undefined;
  #isOpen = false;
  #count = 0;

  private constructor(redlock: Redlock) {
    this.#redlock = redlock;
    this.#channel = `x:semaphore:${protocolOf(redlock).newToken()}`;
  }

  static of(redlock: Redlock): Turns {
    const turns = ofRedlocks.get(redlock) ?? new Turns(redlock);
    ofRedlocks.set(redlock, turns);
    return turns;
  }

  /** Whether the channel was opened, as far as the nodes let us. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Returns a name for a waiter that wants so many permits, by which the script finds the channel. */
  nextWaiter(permits: number): string {
    this.#count += 1;
    return `${permits}:${this.#channel}#${this.#count}`;
  }

  /** Calls `onTurn` whenever a node calls the waiter; returns a function that stops that. */
  listen(waiter: string, onTurn: (node: string) => void): () => void {
    this.#listeners.set(waiter, onTurn);
    return () => this.#listeners.delete(waiter);
  }

  /** Resolves when a quorum of nodes has confirmed the channel, or after `nodeTimeout`. */
  async open(): Promise<void> {
    this.#opening ??= protocolOf(this.#redlock).subscribe(this.#channel, (waiter, node) =>
      this.#listeners.get(waiter)?.(node),
    );
    await this.#opening;
    this.#isOpen = true;
  }
}
