/** Pure: when a lease is renewed, and how often it is looked at. */

/**
 * How often all clocks are read while a lease is held. The timers of a suspended machine stand still like its
 * monotonic clock, so none is due when a lease is over by another clock. With 100,000 locks one look takes 3 to 5 ms.
 */
export const SUSPEND_LOOK_MS = 1_000;

/**
 * A `RenewalPolicy` says when a lease is renewed and how patiently. It does not say when to give up: that is decided
 * by the clocks, by nodes that answer "not yours", and by the holder.
 */
export interface RenewalPolicy {
  /** Returns when the next renewal is due, by the monotonic clock, after a grant or a renewal at `sinceMs`. */
  dueMs(sinceMs: number, ttlMs: number): number;
  /** Returns when the next try is due after one that began at `startedMs` and failed at `nowMs`. */
  retryMs(startedMs: number, nowMs: number, ttlMs: number): number;
  /** Returns how long a node may take to answer, if that is less than `nodeTimeout`. */
  timeoutMs(ttlMs: number): number;
  /** Returns the window within which renewals that are due travel together. */
  windowMs(ttlMs: number): number;
  /** Tells whether to let a renewal out. */
  isPaused?(): boolean;
  /** A renewal succeeded, `tookMs` after it began. */
  onRenewed?(tookMs: number): void;
  /** A renewal failed; the next one may succeed. */
  onFailed?(error: Error): void;
}

/**
 * A lock is extended after a third of its lease. At least three tries fit into the lease, because a hung quorum uses up
 * a sixth of it at most. Many locks cost a handful of commands per window.
 */
export const BY_THIRDS: RenewalPolicy = {
  dueMs: (sinceMs, ttlMs) => sinceMs + ttlMs / 3,
  retryMs: (_startedMs, nowMs, ttlMs) => nowMs + Math.max(ttlMs / 9, 10),
  timeoutMs: (ttlMs) => ttlMs / 6,
  windowMs: (ttlMs) => ttlMs / 12,
};

/**
 * Returns a policy that begins a renewal once per period, whatever comes of the last and however long that took. One is
 * due between three quarters of the period and all of it, because the renewals of a process lie on a grid. Leases of
 * one period are so renewed in the same turn of the event loop, and share a round trip.
 */
export function everyPeriod(periodMs: number): RenewalPolicy {
  const gridMs = periodMs / 4;
  const next = (ms: number): number => Math.floor((ms + periodMs) / gridMs) * gridMs;
  return { dueMs: next, retryMs: next, timeoutMs: (ttlMs) => ttlMs, windowMs: () => 0 };
}
