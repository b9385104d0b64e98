/**
 * Loads the schedules of a term. Each schedule continues with the state that the register contains, and its unfinished
 * ticks run again.
 */
import type { Clock } from "@x/redlock-core";
import { DAY_MS, quote } from "@x/redlock-core/kit";
import { Slice } from "../kit/slice.ts";
import { dateOf } from "../rules/values.ts";
import type { Claims } from "./claims.ts";
import type { DamagedLines } from "./damaged-lines.ts";
import type { DataSchedules } from "./data-schedules.ts";
import type { Pauses } from "./pauses.ts";
import type { Register } from "./register.ts";
import { type ScheduleState, stateLine, stateOf } from "./rules/lines.ts";
import { MOST_CLAIMS, type Step } from "./step.ts";
import type { ScheduleEntry, Timetable } from "./timetable.ts";

interface LoadingParts {
  readonly clock: Clock;
  readonly register: Register;
  readonly timetable: Timetable;
  /** Schedules in the code of this process, by name. */
  readonly entries: ReadonlyMap<string, ScheduleEntry>;
  readonly data: DataSchedules;
  readonly claims: Claims;
  readonly pauses: Pauses;
  readonly damaged: DamagedLines;
  readonly report: (error: Error) => void;
  /** Returns the time after which ticks are not of this schedule. Undefined if there is no such time. */
  readonly untilMsOf: (name: string) => number | undefined;
}

/** Tolerated lead of a schedule's state over the clock. A greater lead means that a leader's clock was wrong. */
const AHEAD_TOLERANCE_MS = 1_000;
/** Greatest plausible lead. A state with a greater lead was not written by a leader. */
const LONGEST_AHEAD_MS = 366 * DAY_MS;

export class Loading {
  readonly #parts: LoadingParts;
  /** Whether a state ahead of the clock was reported. */
  #isAheadReported = false;

  constructor(parts: LoadingParts) {
    this.#parts = parts;
  }

  /** Whether each schedule has a track. Removed schedules have none, so the counts can be compared. */
  get isDone(): boolean {
    const { timetable, entries, data } = this.#parts;
    return timetable.size === entries.size + data.active.size;
  }

  /** Loads schedules that have no track yet, up to the limits of a slice and a step. */
  addTo(step: Step): void {
    if (this.isDone) return;
    const { clock, entries, data, timetable } = this.#parts;
    const nowMs = Math.floor(clock.wallMs());
    const slice = new Slice(clock);
    for (const schedules of [entries, data.active]) {
      for (const [name, entry] of schedules) {
        if (timetable.get(name) !== undefined) continue;
        if (slice.isOver || step.changes.size >= MOST_CLAIMS) return;
        this.#load(step, entry, nowMs);
      }
    }
  }

  #load(step: Step, entry: ScheduleEntry, nowMs: number): void {
    const { timetable, pauses, claims, untilMsOf } = this.#parts;
    const { name } = entry;
    const stored = this.#storedState(name, nowMs);
    // Ticks before the time at which a schedule as data was added, or its times were changed, are not its own.
    const sinceMs = entry.definition?.sinceMs;
    const accountedMs = Math.max(stored?.accountedMs ?? sinceMs ?? nowMs, sinceMs ?? 0);
    const track = timetable.add(entry, { lastMs: 0, missed: 0, ...stored, accountedMs });
    track.untilMs = untilMsOf(name) ?? Number.POSITIVE_INFINITY;
    if (stored === undefined || stored.removedMs !== undefined) step.changes.set(name, stateLine(track));
    pauses.applyTo(track);
    claims.addUnfinished(step, track);
  }

  /** Returns the stored state of a schedule. Undefined if there is none, or if the stored state is damaged. */
  #storedState(name: string, nowMs: number): ScheduleState | undefined {
    const { register, damaged, report } = this.#parts;
    const line = register.fields.get(name);
    const state = stateOf(line);
    const aheadMs = (state?.accountedMs ?? nowMs) - nowMs;
    if (aheadMs > LONGEST_AHEAD_MS) {
      damaged.report("register", name, line ?? "");
      return undefined;
    }
    if (aheadMs > AHEAD_TOLERANCE_MS && !this.#isAheadReported) {
      this.#isAheadReported = true;
      const until = dateOf(state?.accountedMs ?? nowMs).toISOString();
      const cause = "an earlier leader's clock was ahead, or this process's clock is behind";
      const what = `the ticks of ${quote(name)} until ${until} were already run or left out, and do not run again`;
      report(new Error(`${what}: ${cause} (by ${aheadMs} ms; other schedules may be alike)`));
    }
    return state;
  }
}
