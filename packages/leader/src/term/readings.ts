/** Time as this package reads it: the clock of the `Redlock`, and the machine's uptime, which runs through a suspend. */
import { uptime } from "node:os";
import { type Clock, systemClock } from "@x/redlock-core";
import type { Reading } from "./deadline.ts";

export interface Readings {
  readonly clock: Clock;
  read(): Reading;
}

/** All clocks are read within this, or once more: a process that is frozen between two of them would take that for a suspend. */
const MAX_READ_MS = 20;
const MAX_READS = 3;

export function readingsOf(clock: Clock, uptimeMs: (() => number) | undefined): Readings {
  const ownUptime = clock === systemClock ? (): number => uptime() * 1_000 : (): number => clock.monotonicMs();
  const boot = uptimeMs ?? ownUptime;
  return Object.freeze({
    clock,
    read: (): Reading => {
      for (let reads = 1; ; reads += 1) {
        const monotonicMs = clock.monotonicMs();
        const reading = { monotonicMs, wallMs: clock.wallMs(), uptimeMs: boot() };
        if (clock.monotonicMs() - monotonicMs <= MAX_READ_MS || reads === MAX_READS) return reading;
      }
    },
  });
}
