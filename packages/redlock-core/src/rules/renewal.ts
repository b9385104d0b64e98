/** Pure: decides when a lease is renewed, and how often the clocks are read. */

/**
 * How often all clocks are read while a lease is held. The timers of a suspended machine stop together with its
 * monotonic clock, so a lease may end by another clock without any timer being due. With 100,000 locks one pass takes 3
 * to 5 ms.
 */
export const SUSPEND_LOOK_MS = 1_000;

/**
 * Decides when a lease is renewed, and how a failed renewal is repeated. The policy does not decide when to stop: the
 * clocks, nodes that report another holder, and the holder itself do.
 */
export interface RenewalPolicy {
  /**
   * Returns when the next renewal is due after a grant or renewal at `sinceMs`. All times are of the monotonic clock.
   */
  dueMs(sinceMs: number, ttlMs: number): number;
  /** Returns when to try again after a renewal that began at `startedMs` and failed at `nowMs`. */
  retryMs(startedMs: number, nowMs: number, ttlMs: number): number;
  /** Returns how long a node may take to answer, if shorter than `nodeTimeout`. */
  timeoutMs(ttlMs: number): number;
  /** Returns the length of the window within which due renewals are sent together. */
  windowMs(ttlMs: number): number;
  /** Reports whether renewals are held back for now. */
  isPaused?(): boolean;
  /** Called after a renewal has succeeded. The renewal took `tookMs`. */
  onRenewed?(tookMs: number): void;
  /** Called after a renewal has failed. A later renewal may succeed. */
  onFailed?(error: Error): void;
}

/**
 * Renews a lock after a third of its lease. A quorum that hangs uses up at most a sixth of the lease, so the lease has
 * room for at least three attempts. Many locks together cost a handful of commands per window.
 */
export const BY_THIRDS: RenewalPolicy = {
  dueMs: (sinceMs, ttlMs) => sinceMs + ttlMs / 3,
  retryMs: (_startedMs, nowMs, ttlMs) => nowMs + Math.max(ttlMs / 9, 10),
  timeoutMs: (ttlMs) => ttlMs / 6,
  windowMs: (ttlMs) => ttlMs / 12,
};

/**
 * Returns a policy that begins a renewal once per period, regardless of the result and duration of the previous
 * renewal. A renewal is due after three quarters of the period to one full period, because due times are rounded down
 * to a grid. The leases of a process with the same period are therefore renewed in the same turn of the event loop, and
 * share a round trip.
 */
export function everyPeriod(periodMs: number): RenewalPolicy {
  const gridMs = periodMs / 4;
  const next = (ms: number): number => Math.floor((ms + periodMs) / gridMs) * gridMs;
  return { dueMs: next, retryMs: next, timeoutMs: (ttlMs) => ttlMs, windowMs: () => 0 };
}
