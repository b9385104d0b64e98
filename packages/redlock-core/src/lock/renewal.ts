/**
 * One timer serves all leases: it renews what is due, and notices what is over, by other clocks than its own within a
 * second. Renewals that are due within the same window are sent in one turn, and so travel in one request per node.
 */
import type { Clock } from "../kit/clock.ts";
import {
  renewAfterMs,
  renewRetryMs,
  renewTimeoutMs,
  renewWindowMs,
  SUSPEND_LOOK_MS,
  untilNextPeriodMs,
} from "../rules/renewal.ts";

/** Something that is over at a time, and may be renewed before. */
export interface Renewable {
  /** The index at which the `Renewal` keeps it. */
  index: number;
  /** The time by which it may be renewed earlier, to travel with others. */
  readonly windowMs: number;
  /** Returns the milliseconds for which it may be trusted, and notices its end. */
  remaining(): number;
  /** Returns the next moment, by the monotonic clock, at which `tick` has something to do; Infinity if it is over. */
  nextDueMs(): number;
  /** Notices its end, and starts a renewal that is due by `dueMs`. */
  tick(dueMs: number): void;
}

/**
 * A `RenewalPolicy` says when a lease is renewed and how patiently. It does not say when to give up: that is decided
 * by the clocks, by nodes that answer "not yours", and by the holder.
 */
export interface RenewalPolicy {
  /** Returns when the next renewal is due, by the monotonic clock, after a grant or a renewal at `sinceMs`. */
  dueMs(sinceMs: number, ttlMs: number): number;
  /** Returns when the next try is due after one that failed at `nowMs`. */
  retryMs(nowMs: number, ttlMs: number): number;
  /** Returns how long a node may take to answer, if that is less than `nodeTimeout`. */
  timeoutMs(ttlMs: number): number;
  /** See `Renewable`. */
  windowMs(ttlMs: number): number;
  /** Tells whether to let a renewal out. */
  isPaused?(): boolean;
  /** A renewal succeeded, `tookMs` after it began. */
  onRenewed?(tookMs: number): void;
  /** A renewal failed; the next one may succeed. */
  onFailed?(error: Error): void;
}

/** A lock is extended after a third of its lease, and at least three times within it. */
export const BY_THIRDS: RenewalPolicy = {
  dueMs: (sinceMs, ttlMs) => sinceMs + renewAfterMs(ttlMs),
  retryMs: (nowMs, ttlMs) => nowMs + renewRetryMs(ttlMs),
  timeoutMs: renewTimeoutMs,
  windowMs: renewWindowMs,
};

/** Returns a policy that renews once per period, whatever comes of it, together with others of that period. */
export function everyPeriod(periodMs: number): RenewalPolicy {
  const next = (ms: number): number => ms + untilNextPeriodMs(ms, periodMs);
  return { dueMs: next, retryMs: next, timeoutMs: (ttlMs) => ttlMs, windowMs: () => 0 };
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

  /** Notices what is over by other clocks. */
  #look(dueMs: number): number {
    for (const lease of [...this.#leases]) lease.remaining();
    return this.#leases.length > 0 ? dueMs : Number.POSITIVE_INFINITY;
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
