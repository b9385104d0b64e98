/**
 * One timer serves all leases: it renews what is due, and notices what is over, by other clocks than its own within a
 * second. Renewals that are due within the same window are sent in one turn, and so travel in one request per node.
 */
import { type Clock, type Instant, readClock } from "../kit/clock.ts";
import { SUSPEND_LOOK_MS } from "../rules/renewal.ts";

/** Something that is over at a time, and may be renewed before. */
export interface Renewable {
  /** The index at which the `Renewal` keeps it. */
  index: number;
  /** The time by which it may be renewed earlier, to travel with others. */
  readonly windowMs: number;
  /** Returns the milliseconds for which it may be trusted, and notices its end, by clocks that were just read. */
  remaining(now: Instant): number;
  /** Returns the next moment, by the monotonic clock, at which `tick` has something to do; Infinity if it is over. */
  nextDueMs(): number;
  /** Notices its end, and starts a renewal that is due by `dueMs`. */
  tick(dueMs: number): void;
}

export class Renewal<Each extends Renewable> {
  readonly #clock: Clock;
  readonly #timerOptions: { readonly keepAlive: boolean };
  /** The leases, in no order. Each knows its index, so that it leaves in one step. */
  readonly #leases: Each[] = [];
  /** The time at which the first of them has something to do, or an earlier time. */
  #dueMs: number = Number.POSITIVE_INFINITY;
  #armedMs: number = Number.POSITIVE_INFINITY;
  #cancel: () => void = () => undefined;

  constructor(clock: Clock, timerOptions: { readonly keepAlive: boolean } = { keepAlive: false }) {
    this.#clock = clock;
    this.#timerOptions = timerOptions;
  }

  get leases(): readonly Each[] {
    return this.#leases;
  }

  add(lease: Each): void {
    lease.index = this.#leases.length;
    this.#leases.push(lease);
    this.#armFor(lease.nextDueMs());
  }

  delete(lease: Each): void {
    const { index } = lease;
    const last = this.#leases[this.#leases.length - 1];
    if (this.#leases[index] !== lease || last === undefined) return;
    this.#leases[index] = last;
    last.index = index;
    this.#leases.pop();
  }

  reschedule(lease: Each): void {
    if (this.#leases[lease.index] === lease) this.#armFor(lease.nextDueMs());
  }

  /** Stops the timer. Otherwise it stays armed when the last lease has gone, because the next one is likely to come. */
  close(): void {
    this.#cancel();
    this.#armedMs = Number.POSITIVE_INFINITY;
  }

  #armFor(dueMs: number): void {
    this.#dueMs = Math.min(this.#dueMs, dueMs);
    if (dueMs >= this.#armedMs) return;
    this.#cancel();
    const now = this.#clock.monotonicMs();
    this.#armedMs = Math.min(dueMs, now + SUSPEND_LOOK_MS);
    this.#cancel = this.#clock.schedule(Math.max(0, this.#armedMs - now), () => this.#onTimer(), this.#timerOptions);
  }

  #onTimer(): void {
    this.#armedMs = Number.POSITIVE_INFINITY;
    const now = this.#clock.monotonicMs();
    const dueMs = this.#dueMs;
    this.#dueMs = Number.POSITIVE_INFINITY;
    const nextMs = now < dueMs ? this.#look(dueMs) : this.#tick(now);
    if (Number.isFinite(nextMs)) this.#armFor(Math.max(nextMs, now + 1));
  }

  /**
   * Notices what is over by other clocks. A lease that is over may stay in the list until its holder ends. Such leases
   * need no further look: a test whose fake timers jump a day ahead would otherwise cause one for each second.
   */
  #look(dueMs: number): number {
    const now = readClock(this.#clock);
    for (const lease of [...this.#leases]) lease.remaining(now);
    const hasWork = this.#leases.some((lease) => Number.isFinite(lease.nextDueMs()));
    return hasWork ? dueMs : Number.POSITIVE_INFINITY;
  }

  #tick(now: number): number {
    let nextMs = Number.POSITIVE_INFINITY;
    // A copy: a lease that is lost leaves the list.
    for (const lease of [...this.#leases]) {
      lease.tick(now + lease.windowMs);
      nextMs = Math.min(nextMs, lease.nextDueMs());
    }
    return nextMs;
  }
}
