/**
 * Turns are the messages by which the nodes call waiters. The waiters of one `Redlock` share a channel, which is opened
 * at the first wait. A message that is lost costs the time until the waiter asks again by itself.
 */
import type { Redlock } from "@x/redlock-core";
import { protocolOf } from "@x/redlock-core/protocol";
import { PermitLine } from "./line.ts";

/** This many waiters that have left are remembered, the last ones. The turn of a forgotten one is kept in vain. */
const MAX_GONE = 1_000;

const ofRedlocks = new WeakMap<Redlock, Turns>();

export class Turns {
  readonly #redlock: Redlock;
  readonly #channel: string;
  readonly #listeners = new Map<string, (node: string) => void>();
  /** How each waiter that has left gives back a turn, which a node offers if the waiter is still in its line. */
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

  /** Whether the channel was opened, as far as the nodes let us. */
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

  /** Forgets a line without callers. */
  tidy(key: string): void {
    if (this.#lines.get(key)?.isIdle === true) this.#lines.delete(key);
  }

  /** Returns a name for a waiter that wants so many permits, by which the script finds the channel. */
  nextWaiter(permits: number): string {
    this.#count += 1;
    return `${permits}:${this.#channel}#${this.#count}`;
  }

  /** Calls `onTurn` whenever a node calls the waiter. */
  listen(waiter: string, onTurn: (node: string) => void): void {
    this.#listeners.set(waiter, onTurn);
  }

  /**
   * Stops listening for a waiter. Calls `passOn` if a node that still has the waiter in line calls it: otherwise the
   * next one in line would wait for the end of this turn.
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
