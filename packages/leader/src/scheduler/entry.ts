/** What the scheduler knows of one schedule: its calendar, how far it is dealt with, and what runs. */
import type { Calendar } from "./calendar.ts";
import type { Request, ScheduleState } from "./lines.ts";
import type { ResolvedScheduleOptions } from "./options.ts";
import type { Planning } from "./plan.ts";
import type { TickHandler } from "./tick.ts";

export interface Entry {
  readonly name: string;
  readonly calendar: Calendar;
  readonly handler: TickHandler;
  readonly options: ResolvedScheduleOptions;
}

/** One run of a handler. */
export interface Job {
  readonly track: Track;
  readonly name: string;
  readonly atMs: number;
  readonly id: string;
  readonly isCatchup: boolean;
  /** It is caught up, or fell due while others were: see overlap.ts. */
  readonly isBacklog: boolean;
  readonly attempt: number;
  readonly delivery: "at-most-once" | "at-least-once";
  /** Of a `trigger()`: it runs also while the schedule is paused. */
  readonly request: Request | undefined;
  readonly lastMs: number;
}

/** Of a job that has a place among the handlers, or is in line for one. */
export interface Turn {
  /** Until its handler is called, another may take its place. */
  job: Job;
  /** Asks the handler to end; undefined: it has not been called yet. */
  cancel: ((reason: unknown) => void) | undefined;
}

/** The state of a schedule in one term. */
export interface Track {
  readonly entry: Entry;
  /** Every tick up to here is dealt with. */
  accountedMs: number;
  /** 0: none. */
  lastMs: number;
  missed: number;
  isPaused: boolean;
  /** Random part of the next tick's time. */
  delayMs: number;
  /** Null: there is none. Undefined: its calendar has not been asked yet. */
  nextMs: number | null | undefined;
  /** Its due ticks are being found; undefined: not begun. */
  planning: Planning | undefined;
  /** By the monotonic clock: its calendar failed, and is asked again then. */
  retryMs: number | undefined;
}

/** Of one name. */
export interface Runs {
  readonly running: Set<Turn>;
  /** Begin when those that run have ended. */
  readonly queue: Job[];
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

/** With `catchup: "all"` a tick that falls due meanwhile is caught up, too. */
export function isCatchingUp(runs: Runs): boolean {
  return [...Array.from(runs.running, (turn) => turn.job), ...runs.queue].some((job) => job.isBacklog);
}

/** Moves on to `accountedMs`; which tick is next is for the calendar to say. */
export function advance(track: Track, accountedMs: number, random: () => number): void {
  track.accountedMs = Math.max(track.accountedMs, accountedMs);
  track.nextMs = undefined;
  track.planning = undefined;
  track.delayMs = Math.floor(random() * (track.entry.options.jitter + 1));
}
