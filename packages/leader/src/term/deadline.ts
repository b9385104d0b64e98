/**
 * Pure: until when a term may be believed.
 *
 * The deadline counts from the moment *before* the renewal request was sent: the node counts the lease from a later one. Three
 * clocks are read side by side, because none sees everything: the monotonic clock stands still while a machine is suspended
 * (Linux), the wall clock can be stepped back, the uptime has a resolution of 10 ms. The largest difference counts.
 */

/** All clocks, read once. */
export interface Reading {
  readonly monotonicMs: number;
  readonly wallMs: number;
  readonly uptimeMs: number;
}

/** Milliseconds from one reading to a later one, by whichever clock says most; never negative. */
export function elapsedMs(from: Reading, now: Reading): number {
  return Math.max(0, now.monotonicMs - from.monotonicMs, now.wallMs - from.wallMs, now.uptimeMs - from.uptimeMs);
}

/** Milliseconds left of `limitMs` counted from `from`; 0 or below: over. */
export function remainingMs(from: Reading, limitMs: number, now: Reading): number {
  return limitMs - elapsedMs(from, now);
}

/** What the clocks differ by without a suspend: the resolution of the uptime, and slewing of the wall clock. */
const CLOCK_NOISE_MS = 100;

/**
 * Which clock saw the limit pass, by more than the clocks' noise: the monotonic one, the uptime too, which runs through a suspend and is never set, or
 * the wall clock alone.
 */
export function reasonOfDeadline(
  from: Reading,
  limitMs: number,
  now: Reading,
): "renew-deadline" | "suspended" | "clock-jumped" {
  const awakeMs = now.monotonicMs - from.monotonicMs;
  const upMs = now.uptimeMs - from.uptimeMs;
  if (awakeMs >= limitMs || elapsedMs(from, now) - awakeMs <= CLOCK_NOISE_MS) return "renew-deadline";
  const isSuspended = upMs - awakeMs > CLOCK_NOISE_MS && upMs > limitMs - CLOCK_NOISE_MS;
  return isSuspended ? "suspended" : "clock-jumped";
}

/** The later of two readings that were taken in this order: a renewal never moves the deadline back. */
export function laterReading(a: Reading, b: Reading): Reading {
  return b.monotonicMs >= a.monotonicMs ? b : a;
}

/**
 * Milliseconds until the next renewal, between three quarters of `periodMs` and all of it: the renewals of a process lie on a grid,
 * so that terms of one period renew in the same turn of the event loop and share a round trip.
 */
export function untilNextRenewalMs(monotonicMs: number, periodMs: number): number {
  const grid = periodMs / 4;
  const due = Math.floor((monotonicMs + periodMs) / grid) * grid;
  return due - monotonicMs;
}
