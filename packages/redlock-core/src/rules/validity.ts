/**
 * Pure: computes how long a grant may be trusted.
 *
 * A node starts counting the life of a key when it executes the command, which is after the request was sent. The
 * client starts counting before the first byte is sent, and subtracts the possible drift between both clocks. So the
 * client never trusts a key that has already expired on a node.
 *
 * Source: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/ (step 3 and "clock drift").
 */
import type { Instant } from "../kit/clock.ts";

/** Redis expires keys with a resolution of 1 ms. Redlock subtracts 2 ms for this ("plus a few milliseconds"). */
export const EXPIRY_RESOLUTION_MS = 2;

/** Possible drift between two clocks, as a share of the elapsed time. antirez's redlock-rb uses the same number. */
export const DEFAULT_DRIFT_FACTOR = 0.01;

/** Returns the possible drift between two clocks during `ttlMs`: `ttl × driftFactor + 2`. */
export function driftMs(ttlMs: number, driftFactor: number): number {
  return Math.ceil(ttlMs * driftFactor) + EXPIRY_RESOLUTION_MS;
}

/** Returns how long a lease may be trusted, counted from before its request: the TTL minus the drift. */
export function validityMs(ttlMs: number, driftFactor: number): number {
  return ttlMs - driftMs(ttlMs, driftFactor);
}

/** End of a lease by all clocks. The lease is over once any clock has passed the end. */
export type LeaseEnd = Instant;

/** Returns the end of a lease of `ttlMs` that was requested at `asked`. */
export function leaseEnd(asked: Instant, ttlMs: number, driftFactor: number): LeaseEnd {
  return shifted(asked, validityMs(ttlMs, driftFactor));
}

/** Returns when the lease that ends at `end` was requested. */
export function leaseStart(end: LeaseEnd, ttlMs: number, driftFactor: number): Instant {
  return shifted(end, -validityMs(ttlMs, driftFactor));
}

function shifted({ monotonicMs, wallMs, suspendedMs }: Instant, byMs: number): Instant {
  return { monotonicMs: monotonicMs + byMs, wallMs: wallMs + byMs, suspendedMs };
}

/**
 * Returns the milliseconds between two instants: the largest number that any clock shows. The age of everything that is
 * trusted for a limited time is measured by this function.
 *
 * Each clock alone is insufficient. The monotonic clock stops while a machine is suspended: with this clock alone, 224
 * simulated schedules had 60 violations. The wall clock may be set back during a suspend, so suspends are also counted.
 */
export function elapsedMs(from: Instant, now: Instant): number {
  const ranMs = now.monotonicMs - from.monotonicMs + (now.suspendedMs - from.suspendedMs);
  return Math.max(ranMs, now.wallMs - from.wallMs);
}

/** Returns the milliseconds left until `end`. At 0 or below the lease is over. */
export function remainingMs(end: LeaseEnd, now: Instant): number {
  return -elapsedMs(end, now);
}

/** End of a lease that is over by every clock. */
export const OVER: LeaseEnd = Object.freeze({
  monotonicMs: Number.NEGATIVE_INFINITY,
  wallMs: Number.NEGATIVE_INFINITY,
  suspendedMs: 0,
});

/** Returns the end of a lease that was granted at `granted` and must not be held longer than `maxHoldMs`. */
export function cappedEnd(end: LeaseEnd, granted: Instant, maxHoldMs: number): LeaseEnd {
  if (maxHoldMs === Number.POSITIVE_INFINITY) return end;
  const cap = shifted(granted, maxHoldMs);
  const earlier = laterEnd(end, cap) === end ? cap : end;
  return { ...earlier, wallMs: Math.min(end.wallMs, cap.wallMs) };
}

/**
 * Returns the later of two ends of the same lease, because an extension never shortens a lease. All clocks are taken
 * from the same end.
 *
 * Mixing two ends would be unsafe after the wall clock was set back: a suspended machine would trust the older wall
 * clock end for longer by the same amount.
 */
export function laterEnd(a: LeaseEnd, b: LeaseEnd): LeaseEnd {
  return a.monotonicMs + a.suspendedMs > b.monotonicMs + b.suspendedMs ? a : b;
}
