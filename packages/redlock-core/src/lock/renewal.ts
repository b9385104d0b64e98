/**
 * One timer serves all locks of a `Redlock`: it extends what is due, and notices what is over, by the wall clock
 * alone within a second. Extensions that are due within the same window are sent in one turn, and so travel in one
 * request per node.
 */
import type { Clock } from "../kit/clock.ts";
import { renewWindowMs, WALL_CLOCK_LOOK_MS } from "../rules/validity.ts";
import type { Holding } from "./holding.ts";

export class Renewal {
  readonly #clock: Clock;
  /** The locks, in no order. Each knows its place, so that it leaves in one step. */
  readonly #holdings: Holding[] = [];
  /** The time at which the first of them has something to do, or an earlier time. */
  #dueMs: number = Number.POSITIVE_INFINITY;
  #armedMs: number = Number.POSITIVE_INFINITY;
  #cancel: () => void = () => undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get holdings(): readonly Holding[] {
    return this.#holdings;
  }

  add(holding: Holding): void {
    holding.place = this.#holdings.length;
    this.#holdings.push(holding);
    this.#armFor(holding.nextDueMs());
  }

  delete(holding: Holding): void {
    const { place } = holding;
    const last = this.#holdings[this.#holdings.length - 1];
    if (this.#holdings[place] !== holding || last === undefined) return;
    this.#holdings[place] = last;
    last.place = place;
    this.#holdings.pop();
  }

  reschedule(holding: Holding): void {
    if (this.#holdings[holding.place] === holding) this.#armFor(holding.nextDueMs());
  }

  /** Stops the timer. Otherwise it stays armed when the last lock has gone, because the next one is likely to come. */
  close(): void {
    this.#cancel();
    this.#armedMs = Number.POSITIVE_INFINITY;
  }

  #armFor(dueMs: number): void {
    this.#dueMs = Math.min(this.#dueMs, dueMs);
    if (dueMs >= this.#armedMs) return;
    this.#cancel();
    const now = this.#clock.monotonicMs();
    this.#armedMs = Math.min(dueMs, now + WALL_CLOCK_LOOK_MS);
    this.#cancel = this.#clock.schedule(Math.max(0, this.#armedMs - now), () => this.#onTimer());
  }

  #onTimer(): void {
    this.#armedMs = Number.POSITIVE_INFINITY;
    const now = this.#clock.monotonicMs();
    const dueMs = this.#dueMs;
    this.#dueMs = Number.POSITIVE_INFINITY;
    const nextMs = now < dueMs ? this.#look(dueMs) : this.#tick(now);
    if (Number.isFinite(nextMs)) this.#armFor(Math.max(nextMs, now + 1));
  }

  /** Notices what is over by the wall clock. */
  #look(dueMs: number): number {
    for (const holding of [...this.#holdings]) holding.remaining();
    return this.#holdings.length > 0 ? dueMs : Number.POSITIVE_INFINITY;
  }

  #tick(now: number): number {
    let nextMs = Number.POSITIVE_INFINITY;
    // A copy: a lock that is lost leaves the list.
    for (const holding of [...this.#holdings]) {
      holding.tick(now + renewWindowMs(holding.ttlMs));
      nextMs = Math.min(nextMs, holding.nextDueMs());
    }
    return nextMs;
  }
}
