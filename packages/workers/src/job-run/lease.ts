/**
 * Pure: how long BullMQ's lock of a job can be trusted. It was set when Redis ran the command, so at the earliest when
 * it was sent.
 */
import { elapsedMs, type Instant } from "@x/redlock-core/protocol";

export function leaseLeftMs(sent: Instant, now: Instant, lockDurationMs: number): number {
  return lockDurationMs - elapsedMs(sent, now);
}

/**
 * Tells whether a job is confirmed before it is started, because it was fetched long ago. The process was frozen since,
 * or the lock of its key was waited for. Half the lease is what BullMQ's own renewal leaves at the least.
 */
export function mustConfirm(sent: Instant, now: Instant, lockDurationMs: number): boolean {
  return leaseLeftMs(sent, now, lockDurationMs) < lockDurationMs / 2;
}
