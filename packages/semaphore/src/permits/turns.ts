/**
 * A turn is the message by which a node calls a waiter. The waiters of one `Redlock` share a channel, opened by the
 * first wait. If a message is lost, the waiter finds its turn with the next request that it sends on its own.
 */
import type { Redlock } from "@x/redlock-core";
import { protocolOf } from "@x/redlock-core/protocol";
import { PermitLine } from "./line.ts";

/** Maximum number of remembered waiters that have left. The turn of a forgotten waiter expires unused. */
const MAX_GONE = 1_000;

const ofRedlocks = new WeakMap<Redlock, Turns>();

export class Turns {
  readonly #redlock: Redlock;
  readonly #channel: string;
  readonly #listeners = new Map<string, (node: string) => void>();
  /** Callbacks that pass on the turns of waiters that have left. A node may still have such a waiter in its line. */
  readonly #gone = new Map<string, () => void>();
  readonly #lines = new Map<string, PermitLine>();
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

  /** Whether `open` has resolved: a quorum has confirmed the channel, or `nodeTimeout` has passed. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Returns the line of this process for the permits under `key`. */
  line(key: string, capacity: number): PermitLine {
    let line = this.#lines.get(key);
    if (line === undefined) {
      line = new PermitLine(key, capacity);
      this.#lines.set(key, line);
    }
    return line;
  }

  /** Removes a line without callers. */
  tidy(key: string): void {
    if (this.#lines.get(key)?.isIdle === true) this.#lines.delete(key);
  }

  /** Returns the name of a new waiter. The script reads the number of permits and the channel from the name. */
  nextWaiter(permits: number): string {
    this.#count += 1;
    return `${permits}:${this.#channel}#${this.#count}`;
  }

  /** Calls `onTurn` whenever a node calls the waiter. */
  listen(waiter: string, onTurn: (node: string) => void): void {
    this.#listeners.set(waiter, onTurn);
  }

  /**
   * Stops listening for a waiter. Calls `passOn` if a node that still has the waiter in line calls the waiter.
   * Otherwise the next waiter in line would wait for the end of this turn.
   */
  leave(waiter: string, passOn?: () => void): void {
    this.#listeners.delete(waiter);
    if (passOn === undefined) return;
    this.#gone.set(waiter, passOn);
    if (this.#gone.size <= MAX_GONE) return;
    const [oldest] = this.#gone.keys();
    if (oldest !== undefined) this.#gone.delete(oldest);
  }

  /** Resolves when a quorum of nodes has confirmed the channel, or after `nodeTimeout`. */
  async open(): Promise<void> {
    this.#opening ??= protocolOf(this.#redlock).subscribe(this.#channel, (waiter, node) => {
      this.#listeners.get(waiter)?.(node);
      this.#gone.get(waiter)?.();
    });
    await this.#opening;
    this.#isOpen = true;
  }
}
