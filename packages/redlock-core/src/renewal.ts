/**
 * One timer for all locks of a `Redlock`: it extends what is due and notices what is over. Extensions that are due within
 * the same window are sent in one turn, and so travel in one request per node.
 */
import type { Clock } from "./clock.ts";
import type { Holding } from "./holding.ts";
import { renewWindowMs } from "./validity.ts";

export class Renewal {
  readonly #clock: Clock;
  readonly #holdings = new Set<Holding>();
  #armedMs: number = Number.POSITIVE_INFINITY;
  #cancel: () => void = () => undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get holdings(): Iterable<Holding> {
    return this.#holdings;
  }

  add(holding: Holding): void {
    this.#holdings.add(holding);
    this.#armFor(holding.nextDueMs());
  }

  delete(holding: Holding): void {
    this.#holdings.delete(holding);
    if (this.#holdings.size > 0) return;
    this.#cancel();
    this.#armedMs = Number.POSITIVE_INFINITY;
  }

  reschedule(holding: Holding): void {
    if (this.#holdings.has(holding)) this.#armFor(holding.nextDueMs());
  }

  #armFor(dueMs: number): void {
    if (dueMs >= this.#armedMs) return;
    this.#cancel();
    this.#armedMs = dueMs;
    this.#cancel = this.#clock.schedule(Math.max(0, dueMs - this.#clock.monotonicMs()), () => this.#tick());
  }

  #tick(): void {
    this.#armedMs = Number.POSITIVE_INFINITY;
    const now = this.#clock.monotonicMs();
    let nextMs = Number.POSITIVE_INFINITY;
    for (const holding of this.#holdings) {
      holding.tick(now + renewWindowMs(holding.ttlMs));
      nextMs = Math.min(nextMs, holding.nextDueMs());
    }
    if (this.#holdings.size > 0 && Number.isFinite(nextMs)) this.#armFor(Math.max(nextMs, now + 1));
  }
}
