/** Pure: options of a schedule and of the scheduler. */
import {
  boolean,
  Check,
  type Complete,
  choice,
  integer,
  type Resolved,
  Schema,
  type ShapeOf,
  textLike,
} from "@x/redlock-core/protocol";
import { durationMs, durationOrNoneMs } from "../rules/values.ts";
import type { Overlap } from "./rules/overlap.ts";
import type { Catchup } from "./rules/plan.ts";

/** All durations are integer milliseconds. */
export interface ScheduleOptions {
  /** IANA zone of a cron expression. Default: that of the scheduler. */
  readonly timezone?: string | undefined;
  /**
   * What becomes of ticks that nobody could run, since there was no leader, or all processes were down.
   *
   * - `latest` (default): at most one runs, the newest.
   * - `all`: each runs, the oldest first, one after another.
   * - `none`: only a tick runs that is less than a second late.
   */
  readonly catchup?: Catchup | undefined;
  /** Older ticks are missed, and counted. Default 60,000. */
  readonly catchupWindow?: number | undefined;
  /** The most ticks that are caught up at once, the newest. Default 100, at most 1,000. */
  readonly maxCatchup?: number | undefined;
  /**
   * What becomes of a tick that is due while an earlier one of its schedule runs.
   *
   * - `skip` (default): it is left out.
   * - `bufferOne`: one waits.
   * - `cancelOther`: the signal of the running one aborts, and this one runs when that has ended. One that still waits
   *   for a slot (`concurrency`) is left out, and this one replaces it.
   * - `allowAll`: both run.
   *
   * With `catchup: "all"` ticks that are caught up wait for each other instead, up to `maxCatchup` of them. So do those
   * that fall due meanwhile.
   */
  readonly overlap?: Overlap | undefined;
  /**
   * Whether a tick whose leader died runs again.
   *
   * - `at-most-once` (default): it is claimed before it runs, and a crash loses it.
   * - `at-least-once`: it is recorded as finished after it ran. After a crash the next leader runs it again. So the
   *   handler must be repeatable: `tick.id` is the same, `tick.attempt` is higher.
   */
  readonly delivery?: "at-most-once" | "at-least-once" | undefined;
  /**
   * With `at-least-once`, a tick that so many leaders began and did not finish is given up. A leader that dies counts
   * also for those that waited. One that ends in good order does not. Default 5.
   */
  readonly maxAttempts?: number | undefined;
  /**
   * Each tick runs up to this much later, at random. It is at most the period of `every()`. With other calendars, ticks
   * that fall due meanwhile are caught up as `catchup` says. Default 0.
   */
  readonly jitter?: number | undefined;
  /** `tick.signal` aborts with a `TimeoutError` when its handler has run for this long. Default: never. */
  readonly maxRunTime?: number | undefined;
  /** The schedule has no ticks before this time. */
  readonly startAt?: Date | undefined;
  /** The schedule has no ticks after this time. */
  readonly endAt?: Date | undefined;
  /** Is a schedule paused that nobody has paused or resumed yet? Default false. */
  readonly paused?: boolean | undefined;
}

/** The options of `every()`. */
export interface IntervalOptions extends ScheduleOptions {
  /** Moves all ticks by so many ms. Default 0. */
  readonly offset?: number | undefined;
}

export interface ResolvedScheduleOptions extends Complete<Omit<ScheduleOptions, "startAt" | "endAt">, "maxRunTime"> {
  readonly startMs: number;
  readonly endMs: number;
}

const LONGEST_NAME = 200;

const LONGEST_ZONE = 100;

export const zone: Check<string> = textLike("an IANA time zone", isZone);

function isZone(name: string): boolean {
  try {
    return name.length <= LONGEST_ZONE && new Intl.DateTimeFormat("en", { timeZone: name }).format(0) !== "";
  } catch {
    return false;
  }
}

/** A name becomes part of `tick.id`, which BullMQ takes as a job id only without ":". */
export const scheduleName: Check<string> = textLike(
  `a string of 1 to ${LONGEST_NAME} characters without ":"`,
  (name) => name !== "" && name.length <= LONGEST_NAME && !name.includes(":"),
);

/** A date is known by what is used of it: it may come from another realm. */
export const moment: Check<Date> = new Check({
  rule: "a valid Date",
  faultOf: (given) => {
    const ms: unknown = (given as Date).getTime();
    if (typeof ms !== "number") return "type";
    return Number.isNaN(ms) ? "range" : undefined;
  },
});

const SHAPE = {
  timezone: zone.optional(),
  catchup: choice(["none", "latest", "all"]).default("latest"),
  catchupWindow: durationOrNoneMs.default(60_000),
  maxCatchup: integer({ min: 1, max: 1_000, unit: "" }).default(100),
  overlap: choice(["skip", "bufferOne", "cancelOther", "allowAll"]).default("skip"),
  delivery: choice(["at-most-once", "at-least-once"]).default("at-most-once"),
  maxAttempts: integer({ min: 1, unit: "" }).default(5),
  jitter: durationOrNoneMs.default(0),
  maxRunTime: durationMs.optional(),
  startAt: moment.optional(),
  endAt: moment.optional(),
  paused: boolean.default(false),
} satisfies ShapeOf<ScheduleOptions>;

const INTERVAL_SHAPE = { ...SHAPE, offset: durationOrNoneMs.default(0) } satisfies ShapeOf<IntervalOptions>;

const OPTIONS = new Schema(SHAPE, ofLocks);
const INTERVAL = new Schema(INTERVAL_SHAPE, ofLocks);

function ofLocks(name: string): string | undefined {
  return name === "timeout" ? "how long a handler may run is maxRunTime" : undefined;
}

export function resolveScheduleOptions(given: ScheduleOptions, timezone: string): ResolvedScheduleOptions {
  return inForce(OPTIONS.resolve(given), timezone);
}

export function resolveIntervalOptions(
  given: IntervalOptions,
  timezone: string,
): { readonly offset: number; readonly options: ResolvedScheduleOptions } {
  const { offset, ...options } = INTERVAL.resolve(given);
  return { offset, options: inForce(options, timezone) };
}

/**
 * The object is written out: put together by spreading it takes half a kilobyte more, and there may be ten thousand.
 */
function inForce(given: Resolved<typeof SHAPE>, defaultTimezone: string): ResolvedScheduleOptions {
  const startMs = given.startAt?.getTime() ?? Number.NEGATIVE_INFINITY;
  const endMs = given.endAt?.getTime() ?? Number.POSITIVE_INFINITY;
  if (endMs < startMs) throw new RangeError(`endAt must not be before startAt, by ${startMs - endMs} ms`);
  return Object.freeze({
    timezone: given.timezone ?? defaultTimezone,
    catchup: given.catchup,
    catchupWindow: given.catchupWindow,
    maxCatchup: given.maxCatchup,
    overlap: given.overlap,
    delivery: given.delivery,
    maxAttempts: given.maxAttempts,
    jitter: given.jitter,
    maxRunTime: given.maxRunTime,
    startMs,
    endMs,
    paused: given.paused,
  });
}
