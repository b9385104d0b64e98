/** Both clocks, read at once. */
import type { Clock } from "@x/redlock-core";

export interface Instant {
  readonly monotonicMs: number;
  readonly wallMs: number;
}

export function readClock(clock: Clock): Instant {
  return { monotonicMs: clock.monotonicMs(), wallMs: clock.wallMs() };
}
