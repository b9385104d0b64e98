/** Pure: which clock ended a term. */
import { elapsedMs, type Instant } from "@x/redlock-core/protocol";

/**
 * What the clocks differ by without a suspend: the resolution of what the machine was suspended for, and slewing of the
 * wall clock.
 */
const CLOCK_NOISE_MS = 100;

/**
 * Tells which clock saw the limit pass, by more than the clocks' noise. It is the monotonic one, that one with what the
 * machine was suspended for, or the wall clock alone.
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
