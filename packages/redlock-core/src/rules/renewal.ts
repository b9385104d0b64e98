/** Pure: when a lease is renewed, and how often it is looked at. */

/**
 * How often all clocks are read while a lease is held. The timers of a suspended machine stand still like its
 * monotonic clock, so none is due when a lease is over by another clock. With 100,000 locks one look takes 20 ms.
 */
export const SUSPEND_LOOK_MS = 1_000;

/**
 * Returns when the first renewal is due: after a third of the lease. With the retries below, at least three tries fit
 * into the lease.
 */
export function renewAfterMs(ttlMs: number): number {
  return ttlMs / 3;
}

/** Returns the pause before the next try when a renewal failed. */
export function renewRetryMs(ttlMs: number): number {
  return Math.max(ttlMs / 9, 10);
}

/** Returns how long one try may take, so that a hung quorum does not use up the time of the next two. */
export function renewTimeoutMs(ttlMs: number): number {
  return ttlMs / 6;
}

/**
 * Returns the window within which renewals that are due travel together. Many locks then cost a handful of commands
 * per interval.
 */
export function renewWindowMs(ttlMs: number): number {
  return ttlMs / 12;
}

/**
 * Returns the milliseconds until the next renewal of a lease that is renewed once per `periodMs`. It is between three
 * quarters of the period and all of it, because the renewals of a process lie on a grid. Leases of one period are so
 * renewed in the same turn of the event loop, and share a round trip.
 */
export function untilNextPeriodMs(monotonicMs: number, periodMs: number): number {
  const gridMs = periodMs / 4;
  return Math.floor((monotonicMs + periodMs) / gridMs) * gridMs - monotonicMs;
}
