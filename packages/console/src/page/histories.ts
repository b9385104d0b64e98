/**
 * What became of the last ticks of the schedules that browsers show. A history is read when its newest tick has
 * changed, and few are read at a look, so that many schedules cost no more.
 */
import type { LeaderScheduler, TickOutcome } from "@x/leader/scheduler";
import { type ScheduleView, SHOWN_TICKS } from "./state.ts";

/** A look reads this many; the others have their turn at the next. */
const READ = 4;
/** More are not kept: that of which the last question is longest ago is forgotten. */
const MOST = 500;

interface Read {
  /** The newest tick as it was when this was read. */
  readonly newest: string;
  readonly outcomes: readonly TickOutcome[];
}

export class Histories {
  readonly #read = new Map<string, Read>();

  of(schedule: ScheduleView): readonly TickOutcome[] {
    return this.#read.get(keyOf(schedule))?.outcomes ?? [];
  }

  /** Reads those of `shown` that may have changed. Never rejects: what cannot be read stays, and has its turn again. */
  async look(
    shown: readonly ScheduleView[],
    schedulerOf: (scheduler: string) => LeaderScheduler | undefined,
  ): Promise<void> {
    const places = new Map([...this.#read.keys()].map((key, at) => [key, at]));
    const placeOf = (schedule: ScheduleView): number => places.get(keyOf(schedule)) ?? -1;
    const changed = shown.filter((schedule) => this.#read.get(keyOf(schedule))?.newest !== newestOf(schedule));
    const turn = changed.toSorted((one, other) => placeOf(one) - placeOf(other)).slice(0, READ);
    await Promise.all(
      turn.map(async (schedule) => {
        const known = this.#read.get(keyOf(schedule));
        const ticks = await schedulerOf(schedule.scheduler)
          ?.history(schedule.name)
          .catch(() => undefined);
        const outcomes = ticks?.slice(0, SHOWN_TICKS).map(({ outcome }) => outcome) ?? known?.outcomes ?? [];
        // Behind the others, also if it failed: the one that was read longest ago is the next.
        this.#read.delete(keyOf(schedule));
        this.#read.set(keyOf(schedule), { newest: ticks === undefined ? "" : newestOf(schedule), outcomes });
        if (this.#read.size > MOST) this.#read.delete(this.#read.keys().next().value ?? "");
      }),
    );
  }
}

function keyOf({ scheduler, name }: ScheduleView): string {
  return JSON.stringify([scheduler, name]);
}

function newestOf({ outcome, tickAt, tookMs, lateMs }: ScheduleView): string {
  return JSON.stringify([outcome, tickAt, tookMs, lateMs]);
}
