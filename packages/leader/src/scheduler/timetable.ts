/**
 * The schedules in one term: how far each is dealt with, and when its next tick is due.
 *
 * It is guaranteed that a calendar of the user's which throws holds up its own schedule only. Of ten thousand
 * calendars, which take a second to ask, some are asked in each slice.
 */
import type { Clock } from "@x/redlock-core";
import { Slice } from "../kit/slice.ts";
import type { ResolvedScheduleOptions } from "./options.ts";
import type { Calendar } from "./rules/calendar.ts";
import type { ScheduleState } from "./rules/lines.ts";
import { type Plan, type Planning, planInSteps } from "./rules/plan.ts";
import type { TickHandler } from "./tick.ts";

export interface Entry {
  readonly name: string;
  readonly calendar: Calendar;
  readonly handler: TickHandler;
  readonly options: ResolvedScheduleOptions;
}

/** The state of a schedule in one term. */
export interface Track {
  readonly entry: Entry;
  /** Every tick up to here is dealt with. */
  accountedMs: number;
  /** The last tick that ran or was about to, or 0. */
  lastMs: number;
  missed: number;
  isPaused: boolean;
  /** The random part of the next tick's time. */
  delayMs: number;
  /** The time of the next tick, or null if there is none. It is undefined until the calendar is asked. */
  nextMs: number | null | undefined;
  /** The plan in the making, while its due ticks are being found. */
  planning: Planning | undefined;
  /** The time at which a calendar that failed is asked again, by the monotonic clock. */
  retryMs: number | undefined;
}

export function trackOf(entry: Entry, { accountedMs, lastMs, missed }: ScheduleState): Track {
  return {
    entry,
    accountedMs,
    lastMs,
    missed,
    isPaused: entry.options.paused,
    delayMs: 0,
    nextMs: undefined,
    planning: undefined,
    retryMs: undefined,
  };
}

interface TimetableParts {
  readonly clock: Clock;
  readonly random: () => number;
  /** Is called with what a calendar of the user's has thrown. */
  readonly failed: (error: unknown) => void;
}

/** A calendar that threw is asked again after this. */
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

  add(entry: Entry, state: ScheduleState): Track {
    const track = trackOf(entry, state);
    this.advance(track, track.accountedMs);
    this.#tracks.set(entry.name, track);
    return track;
  }

  delete(name: string): void {
    this.#tracks.delete(name);
  }

  /** Moves on to `accountedMs`; which tick is next is for the calendar to say. */
  advance(track: Track, accountedMs: number): void {
    track.accountedMs = Math.max(track.accountedMs, accountedMs);
    track.nextMs = undefined;
    track.planning = undefined;
    track.delayMs = Math.floor(this.#parts.random() * (track.entry.options.jitter + 1));
  }

  /** Returns the milliseconds until the first tick; 0 while calendars are left to ask. */
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
      if (typeof track.nextMs === "number") waitMs = Math.min(waitMs, track.nextMs + track.delayMs - nowMs);
    }
    return waitMs;
  }

  /** Returns the longest overdue first: what is due again at once cannot hold up the others. */
  dueAt(nowMs: number): readonly Track[] {
    const dueMs = ({ nextMs, delayMs }: Track): number =>
      typeof nextMs === "number" ? nextMs + delayMs : Number.POSITIVE_INFINITY;
    const due: Track[] = [];
    for (const track of this.#tracks.values()) if (dueMs(track) <= nowMs) due.push(track);
    return due.sort((a, b) => dueMs(a) - dueMs(b));
  }

  /**
   * Plans the ticks that are due. The result is undefined if the calendar threw, or the slice was over before they were
   * found. The next call then goes on.
   */
  planAt(nowMs: number, track: Track, slice: Slice): Plan | undefined {
    const { accountedMs, delayMs, entry } = track;
    const { catchup, catchupWindow: windowMs, maxCatchup } = entry.options;
    return this.#guarded(track, () => {
      track.planning ??= planInSteps({
        calendar: entry.calendar,
        accountedMs,
        nowMs: nowMs - delayMs,
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
