/** Pauses of schedules: an order in a mailbox applies as soon as this process has read it. */
import type { Clock } from "@x/redlock-core";
import type { Register } from "./register.ts";
import { PAUSE, pauseOf } from "./rules/lines.ts";
import type { Runner } from "./runner.ts";
import type { Timetable, Track } from "./timetable.ts";

interface PausesParts {
  readonly clock: Clock;
  readonly register: Register;
  readonly timetable: Timetable;
  readonly runner: Runner;
}

export class Pauses {
  readonly #parts: PausesParts;

  constructor(parts: PausesParts) {
    this.#parts = parts;
  }

  /** Applies the orders that the register does not contain yet. */
  applyOrders(): void {
    const { register, timetable } = this.#parts;
    for (const [field] of register.orders) {
      const track = field.startsWith(PAUSE) ? timetable.get(field.slice(PAUSE.length)) : undefined;
      if (track !== undefined) this.applyTo(track);
    }
  }

  /** Applies the newest pause to a schedule. Ticks before the end of a pause count as dealt with. */
  applyTo(track: Track): void {
    const { register, timetable, runner } = this.#parts;
    const { name, options } = track.entry;
    track.isPaused = pauseOf(register.newest(PAUSE + name))?.isPaused ?? options.paused;
    if (track.isPaused) runner.dropWaiting(name, "paused", (claimed) => claimed.trigger === undefined);
    else if (this.resumedMs(track) > track.accountedMs) timetable.advance(track, this.resumedMs(track));
  }

  /** Returns the end of the last pause. 0 if the end is in the future, because another clock was ahead. */
  resumedMs({ entry }: Track): number {
    const { register, clock } = this.#parts;
    const { resumedMs } = pauseOf(register.newest(PAUSE + entry.name)) ?? { resumedMs: 0 };
    return resumedMs <= clock.wallMs() ? resumedMs : 0;
  }
}
