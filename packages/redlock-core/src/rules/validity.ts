/**
 * Pure: how long a grant may be trusted, and when to renew it.
 *
 * A node counts a key's life from the moment it executes the command, which is after the moment we asked. We count
 * from before the first byte was sent, and take off what two clocks may drift apart. So we never trust a key that a
 * node has already let go.
 *
 * Source: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/ (step 3 and "clock drift").
 */
import type { Instant } from "../kit/clock.ts";

export const DAY_MS = 86_400_000;

/** Redis expires keys with a resolution of 1 ms; Redlock takes 2 ms off for that ("plus a few milliseconds"). */
const EXPIRY_RESOLUTION_MS = 2;

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
 * Returns how long nothing may come from a connection before it is taken for dead. The time counts from a request
 * that was not answered in time, from its opening, or from the question for a sign of life.
 */
export function deadConnectionMs(nodeTimeoutMs: number): number {
  return Math.max(20 * nodeTimeoutMs, 15_000);
}

/**
 * Returns how often the connections for messages are asked for a sign of life while somebody waits. They are idle by
 * design.
 */
export function messageCheckMs(nodeTimeoutMs: number): number {
  return Math.min(Math.max(20 * nodeTimeoutMs, 1_000), 15_000);
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

/**
 * Returns how long a node that may have forgotten its keys casts no vote. That covers every lease that it may have
 * granted before, by a clock that may run slower than its own. `QUARANTINE_SLACK_MS` is added for a clock that is
 * stepped at boot.
 */
export function quarantineMs(maxTtlMs: number, driftFactor: number): number {
  return Math.ceil(maxTtlMs * (1 + driftFactor)) + EXPIRY_RESOLUTION_MS + QUARANTINE_SLACK_MS;
}

/**
 * Returns for how many milliseconds more a node casts no vote, as scripts/quarantine.lua.ts does. The node is the
 * process `runId`, and its clock shows `nowUs`. By its hash, the data is in the hands of `seenRunId` since `sinceUs`.
 */
export function quarantineLeftMs(
  wholeMs: number,
  node: {
    readonly nowUs: number;
    readonly runId: string | undefined;
    readonly seenRunId: string | undefined;
    readonly sinceUs: number;
  },
): number {
  const ageMs = (node.nowUs - node.sinceUs) / 1_000;
  const isKnown = node.runId === node.seenRunId && ageMs >= 0;
  return Math.max(0, Math.ceil(isKnown ? wholeMs - ageMs : wholeMs));
}

/**
 * The model had a clock that is corrected by 300 ms after boot. It broke at a slack of 0, and held at the size of the
 * step.
 */
const QUARANTINE_SLACK_MS = 300;
