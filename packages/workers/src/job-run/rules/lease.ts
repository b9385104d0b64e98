/**
 * Pure: how long BullMQ's lock of a job can be trusted. It was set when Redis ran the command, so at the earliest when
 * it was sent. What two clocks may drift apart is taken off, as for the locks of keys.
 */
import { type Instant, leaseEnd, remainingMs, validityMs } from "@x/redlock-core/protocol";

export interface JobLease {
  /** When the command was sent that set or renewed it. */
  readonly sent: Instant;
  readonly lockDurationMs: number;
  /** The Redlock's. */
  readonly driftFactor: number;
}

export function leaseLeftMs({ sent, lockDurationMs, driftFactor }: JobLease, now: Instant): number {
  return remainingMs(leaseEnd(sent, lockDurationMs, driftFactor), now);
}

/**
 * Tells whether a job is confirmed before it is started, because it was fetched long ago. The process was frozen since,
 * or the lock of its key was waited for. Whoever starts then has at least half of what a lease may be trusted for.
 */
export function mustConfirm(lease: JobLease, now: Instant): boolean {
  return leaseLeftMs(lease, now) < validityMs(lease.lockDurationMs, lease.driftFactor) / 2;
}
