/**
 * The outcomes of the last ticks of the schedules that browsers show. A history is read again when its newest tick has
 * changed. Each look reads a bounded number of histories, so that many schedules cost no more than a few.
 */
import type { LeaderScheduler } from "@x/leader/scheduler";
import { type ScheduleView, SHOWN_TICKS, type TickMark } from "./state.ts";

/** How many histories one look reads. The next look continues with the others. */
const READ = 4;
/** The most histories that are kept. The history that was read longest ago is dropped first. */
const MOST = 500;

interface Read {
  /** The newest tick at the time of the read. */
  readonly newest: string;
  readonly ticks: readonly TickMark[];
}

export class Histories {
  readonly #read = new Map<string, Read>();

  of(schedule: ScheduleView): readonly TickMark[] {
    return this.#read.get(keyOf(schedule))?.ticks ?? [];
  }

  /**
   * Reads the histories of `shown` that may have changed. Never rejects: a history that cannot be read stays unchanged
   * and is tried again.
   */
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
        const marks =
          ticks?.slice(0, SHOWN_TICKS).map(({ outcome, scheduledAt }) => ({ outcome, at: scheduledAt.getTime() })) ??
          known?.ticks ??
          [];
        // Moves the history to the end, even if the read failed, so that the history that was read longest ago is next.
        this.#read.delete(keyOf(schedule));
        this.#read.set(keyOf(schedule), { newest: ticks === undefined ? "" : newestOf(schedule), ticks: marks });
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
