/**
 * One timer serves all leases: it starts renewals that are due, and detects leases that are over, within a second even
 * if another clock than the timer's shows it. Renewals within the same window are sent in one turn, in one request per
 * node.
 */
import { type Clock, type Instant, readClock } from "../kit/clock.ts";
import { SUSPEND_LOOK_MS } from "../rules/renewal.ts";

/** A lease that is over at a certain time, and may be renewed before. */
export interface Renewable {
  /** Index of the lease in the list of `Renewal`. */
  index: number;
  /** How many milliseconds before its due time the lease may be renewed, to share a request with others. */
  readonly windowMs: number;
  /**
   * Returns the milliseconds for which the lease may be trusted, by clocks that were just read. Detects the end of the
   * lease.
   */
  remaining(now: Instant): number;
  /** Returns when `tick` has to be called next, by the monotonic clock. Infinity if the lease is over. */
  nextDueMs(): number;
  /** Detects the end of the lease, and starts a renewal that is due by `dueMs`. */
  tick(dueMs: number): void;
}

export class Renewal<Each extends Renewable> {
  readonly #clock: Clock;
  readonly #timerOptions: { readonly keepAlive: boolean };
  /** The leases, in no order. Each lease knows its index, so that it can be removed in one step. */
  readonly #leases: Each[] = [];
  /** Time at which the first lease has something to do, or an earlier time. */
  #dueMs: number = Number.POSITIVE_INFINITY;
  #timerMs: number = Number.POSITIVE_INFINITY;
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
    this.#startTimerFor(lease.nextDueMs());
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
    if (this.#leases[lease.index] === lease) this.#startTimerFor(lease.nextDueMs());
  }

  /**
   * Stops the timer. Without this call the timer continues after the last lease has gone, because another lease
   * probably follows.
   */
  close(): void {
    this.#cancel();
    this.#timerMs = Number.POSITIVE_INFINITY;
  }

  #startTimerFor(dueMs: number): void {
    this.#dueMs = Math.min(this.#dueMs, dueMs);
    if (dueMs >= this.#timerMs) return;
    this.#cancel();
    const now = this.#clock.monotonicMs();
    this.#timerMs = Math.min(dueMs, now + SUSPEND_LOOK_MS);
    this.#cancel = this.#clock.schedule(Math.max(0, this.#timerMs - now), () => this.#onTimer(), this.#timerOptions);
  }

  #onTimer(): void {
    this.#timerMs = Number.POSITIVE_INFINITY;
    const now = this.#clock.monotonicMs();
    const dueMs = this.#dueMs;
    this.#dueMs = Number.POSITIVE_INFINITY;
    const nextMs = now < dueMs ? this.#checkClocks(dueMs) : this.#tick(now);
    if (Number.isFinite(nextMs)) this.#startTimerFor(Math.max(nextMs, now + 1));
  }

  /**
   * Detects leases that are over by other clocks. A lease that is over may stay in the list until its holder ends. Such
   * leases need no further check: a test whose fake timers jump a day ahead would otherwise cause a check per second.
   */
  #checkClocks(dueMs: number): number {
    const now = readClock(this.#clock);
    for (const lease of [...this.#leases]) lease.remaining(now);
    const hasWork = this.#leases.some((lease) => Number.isFinite(lease.nextDueMs()));
    return hasWork ? dueMs : Number.POSITIVE_INFINITY;
  }

  #tick(now: number): number {
    let nextMs = Number.POSITIVE_INFINITY;
    // Iterates over a copy, because a lost lease removes itself from the list.
    for (const lease of [...this.#leases]) {
      lease.tick(now + lease.windowMs);
      nextMs = Math.min(nextMs, lease.nextDueMs());
    }
    return nextMs;
  }
}
