/** Time as this package reads it: the clock of the `Redlock`, and the machine's uptime, which runs through a suspend. */
import { uptime } from "node:os";
import { type Clock, systemClock } from "@x/redlock-core";
import type { Reading } from "./deadline.ts";

export interface Readings {
  readonly clock: Clock;
  read(): Reading;
}

export function readingsOf(clock: Clock, uptimeMs: (() => number) | undefined): Readings {
  const ownUptime = clock === systemClock ? (): number => uptime() * 1_000 : (): number => clock.monotonicMs();
  const boot = uptimeMs ?? ownUptime;
  return Object.freeze({
    clock,
    read: (): Reading => ({ monotonicMs: clock.monotonicMs(), wallMs: clock.wallMs(), uptimeMs: boot() }),
  });
}
