/**
 * The schedules in one term: the ticks that each has dealt with, and the time of its next tick.
 *
 * Guaranteed: a user's calendar that throws stops only its own schedule. Ten thousand calendars take a second in total,
 * so each slice of work calls only some of them.
 */
import type { Clock } from "@x/redlock-core";
import { Slice } from "../kit/slice.ts";
import type { ResolvedScheduleOptions } from "./options.ts";
import type { Calendar } from "./rules/calendar.ts";
import type { Definition } from "./rules/definition.ts";
import type { ScheduleState } from "./rules/lines.ts";
import { type Plan, type Planning, planInSteps } from "./rules/plan.ts";
import type { TickHandler } from "./tick.ts";

export interface ScheduleEntry {
  readonly name: string;
  readonly calendar: Calendar;
  readonly handler: TickHandler;
  readonly options: ResolvedScheduleOptions;
  /** Undefined for a schedule in the code of this process. */
  readonly definition?: Definition;
}

/** The state of a schedule in one term. */
export interface Track {
  readonly entry: ScheduleEntry;
  /** Every tick up to this time is dealt with. */
  accountedMs: number;
  /** The last tick that ran or was claimed to run, or 0. */
  lastMs: number;
  missed: number;
  isPaused: boolean;
  /** Ticks after this time are not of this schedule, because its times change, or it is removed. Infinity otherwise. */
  untilMs: number;
  /** The random part of the next tick's time. */
  delayMs: number;
  /** The time of the next tick. Null if there is no next tick, undefined until the calendar was called. */
  nextMs: number | null | undefined;
  /** The unfinished plan, while its due ticks are being found. */
  planning: Planning | undefined;
  /** The time at which a failed calendar is called again, by the monotonic clock. */
  retryMs: number | undefined;
}

export function trackOf(entry: ScheduleEntry, { accountedMs, lastMs, missed }: ScheduleState): Track {
  return {
    entry,
    accountedMs,
    lastMs,
    missed,
    isPaused: entry.options.paused,
    untilMs: Number.POSITIVE_INFINITY,
    delayMs: 0,
    nextMs: undefined,
    planning: undefined,
    retryMs: undefined,
  };
}

interface TimetableParts {
  readonly clock: Clock;
  readonly random: () => number;
  /** Called with the error of a user's calendar. */
  readonly failed: (error: unknown) => void;
}

/** The pause before a failed calendar is called again. */
const RETRY_MS = 30_000;

export class Timetable {
  readonly #parts: TimetableParts;
  readonly #tracks = new Map<string, Track>();

  constructor(parts: TimetableParts) {
    this.#parts = parts;
  }

  get size(): number {
    return this.#tracks.size;
  }

  get(name: string): Track | undefined {
    return this.#tracks.get(name);
  }

  add(entry: ScheduleEntry, state: ScheduleState): Track {
    const track = trackOf(entry, state);
    this.advance(track, track.accountedMs);
    this.#tracks.set(entry.name, track);
    return track;
  }

  delete(name: string): void {
    this.#tracks.delete(name);
  }

  /** Marks every tick up to `accountedMs` as dealt with. The calendar must be called for the next tick. */
  advance(track: Track, accountedMs: number): void {
    track.accountedMs = Math.max(track.accountedMs, accountedMs);
    track.nextMs = undefined;
    track.planning = undefined;
    track.delayMs = Math.floor(this.#parts.random() * (track.entry.options.jitter + 1));
  }

  /** Limits the ticks of schedules whose times change or that are removed. All others have no limit. */
  limit(untilMs: ReadonlyMap<string, number>): void {
    for (const track of this.#tracks.values())
      track.untilMs = untilMs.get(track.entry.name) ?? Number.POSITIVE_INFINITY;
  }

  /** Returns the milliseconds until the first tick. 0 while some calendars have not been called yet. */
  untilTickMs(): number {
    const { clock } = this.#parts;
    const slice = new Slice(clock);
    const nowMs = clock.wallMs();
    let waitMs = Number.POSITIVE_INFINITY;
    for (const track of this.#tracks.values()) {
      if (track.retryMs !== undefined && track.retryMs <= clock.monotonicMs()) track.nextMs = undefined;
      if (track.nextMs === undefined) {
        if (slice.isOver) return 0;
        this.#guarded(track, () => {
          track.nextMs = track.entry.calendar.next(track.accountedMs);
        });
      }
      const { nextMs, delayMs, untilMs } = track;
      if (typeof nextMs === "number" && nextMs <= untilMs) waitMs = Math.min(waitMs, nextMs + delayMs - nowMs);
    }
    return waitMs;
  }

  /** Reports whether every tick up to `atMs` is dealt with. False while some calendars have not been called yet. */
  isSettledAt(atMs: number): boolean {
    for (const { accountedMs, nextMs, delayMs, untilMs } of this.#tracks.values()) {
      if (accountedMs >= Math.min(atMs, untilMs) || nextMs === null) continue;
      if (nextMs === undefined || (nextMs + delayMs <= atMs && nextMs <= untilMs)) return false;
    }
    return true;
  }

  /**
   * Returns the due schedules, the longest overdue first, so that a schedule with many ticks cannot delay other
   * schedules.
   */
  dueAt(nowMs: number): readonly Track[] {
    const dueMs = ({ nextMs, delayMs, untilMs }: Track): number =>
      typeof nextMs === "number" && nextMs <= untilMs ? nextMs + delayMs : Number.POSITIVE_INFINITY;
    const due: Track[] = [];
    for (const track of this.#tracks.values()) if (dueMs(track) <= nowMs) due.push(track);
    return due.sort((a, b) => dueMs(a) - dueMs(b));
  }

  /**
   * Plans the due ticks of a schedule. Undefined if the calendar threw, or if the slice ended before all due ticks were
   * found. The next call then continues.
   */
  planAt(nowMs: number, track: Track, slice: Slice): Plan | undefined {
    const { accountedMs, delayMs, entry, untilMs } = track;
    const { catchup, catchupWindow: windowMs, maxCatchup } = entry.options;
    return this.#guarded(track, () => {
      track.planning ??= planInSteps({
        calendar: entry.calendar,
        accountedMs,
        nowMs: Math.min(nowMs - delayMs, untilMs),
        catchup,
        windowMs,
        maxCatchup,
      });
      for (;;) {
        const step = track.planning.next();
        if (step.done === true) {
          track.planning = undefined;
          return step.value;
        }
        if (slice.isOver) return undefined;
      }
    });
  }

  #guarded<T>(track: Track, ask: () => T): T | undefined {
    try {
      track.retryMs = undefined;
      return ask();
    } catch (error) {
      track.nextMs = null;
      track.planning = undefined;
      track.retryMs = this.#parts.clock.monotonicMs() + RETRY_MS;
      this.#parts.failed(error);
      return undefined;
    }
  }
}
