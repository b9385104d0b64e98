/** Pure: which clock ended a term. */
import { type Instant } from "@x/redlock-core/kit";
import { elapsedMs } from "@x/redlock-core/protocol";

/**
 * Greatest difference between the clocks without a suspend. Its causes are the resolution of the suspended time and the
 * slewing of the wall clock.
 */
const CLOCK_NOISE_MS = 100;

/**
 * Returns the reason of a passed deadline, by the clock that saw the limit pass. The clock is the monotonic one, the
 * monotonic one plus the suspended time, or the wall clock alone. Differences within the clocks' noise do not count.
 */
export function reasonOfDeadline(
  from: Instant,
  limitMs: number,
  now: Instant,
): "renew-deadline" | "suspended" | "clock-jumped" {
  const awakeMs = now.monotonicMs - from.monotonicMs;
  const suspendedMs = now.suspendedMs - from.suspendedMs;
  if (awakeMs >= limitMs || elapsedMs(from, now) - awakeMs <= CLOCK_NOISE_MS) return "renew-deadline";
  const isSuspended = suspendedMs > CLOCK_NOISE_MS && awakeMs + suspendedMs > limitMs - CLOCK_NOISE_MS;
  return isSuspended ? "suspended" : "clock-jumped";
}
