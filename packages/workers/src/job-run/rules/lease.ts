/**
 * Pure: how long BullMQ's lock of a job can be trusted. Redis set the lock when it ran the command, and no earlier than
 * the command was sent. The possible drift between two clocks is subtracted, as for the locks of keys.
 */
import { type Instant } from "@x/redlock-core/kit";
import { leaseEnd, remainingMs, validityMs } from "@x/redlock-core/protocol";

export interface JobLease {
  /** When the command that set or renewed the lock was sent. */
  readonly sent: Instant;
  readonly lockDurationMs: number;
  /** The option `driftFactor` of the `Redlock`. */
  readonly driftFactor: number;
}

export function leaseLeftMs({ sent, lockDurationMs, driftFactor }: JobLease, now: Instant): number {
  return remainingMs(leaseEnd(sent, lockDurationMs, driftFactor), now);
}

/**
 * Reports whether BullMQ's lock must be renewed before the job starts, because the job was fetched long ago. This
 * happens if the process froze, or the job waited for the lock of its key. Every run therefore starts with at least
 * half of a lease's validity.
 */
export function mustConfirm(lease: JobLease, now: Instant): boolean {
  return leaseLeftMs(lease, now) < validityMs(lease.lockDurationMs, lease.driftFactor) / 2;
}
