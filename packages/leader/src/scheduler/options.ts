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
} from "@x/redlock-core/kit";
import { dateOf, durationMs, durationOrNoneMs } from "../rules/values.ts";
import type { Overlap } from "./rules/overlap.ts";
import type { Catchup } from "./rules/plan.ts";

/** All durations are integer milliseconds. */
export interface ScheduleOptions {
  /** IANA time zone of a cron expression. Default: the time zone of the scheduler. */
  readonly timezone?: string | undefined;
  /**
   * How missed ticks are treated, after a time without a leader or with all processes down.
   *
   * - `latest` (default): only the newest tick runs.
   * - `all`: each tick runs, the oldest first, one after another.
   * - `none`: a tick runs only if it is less than a second late.
   */
  readonly catchup?: Catchup | undefined;
  /** Age limit of caught-up ticks in ms. Older ticks are counted as missed. Default 60,000. */
  readonly catchupWindow?: number | undefined;
  /** The greatest number of ticks that are caught up together, the newest. Default 100, at most 1,000. */
  readonly maxCatchup?: number | undefined;
  /**
   * How a tick is treated that falls due while an earlier tick of its schedule runs.
   *
   * - `skip` (default): the later tick is skipped.
   * - `bufferOne`: one tick waits, further ticks are skipped.
   * - `cancelOther`: the signal of the running tick aborts, and the later tick runs after the end of the running tick.
   *   A tick that still waits for a slot (`concurrency`) is skipped and replaced.
   * - `allowAll`: both ticks run.
   *
   * With `catchup: "all"`, up to `maxCatchup` caught-up ticks wait for each other instead. Ticks that fall due in this
   * time also wait.
   */
  readonly overlap?: Overlap | undefined;
  /**
   * Whether a tick whose leader died runs again.
   *
   * - `at-most-once` (default): the tick is claimed before it runs, and lost by a crash.
   * - `at-least-once`: the tick is recorded as finished after it ran. After a crash the next leader runs the tick
   *   again, with the same `tick.id` and a higher `tick.attempt`. The handler must be repeatable.
   */
  readonly delivery?: "at-most-once" | "at-least-once" | undefined;
  /**
   * The greatest number of attempts with `at-least-once`. A tick that this number of leaders did not finish is skipped.
   * The death of a leader is also an attempt for ticks that waited, but an orderly end is not. Default 5.
   */
  readonly maxAttempts?: number | undefined;
  /**
   * The greatest random delay of a tick in ms, at most the period of `every()`. With other calendars, ticks that fall
   * due during a delay are caught up as `catchup` says. Default 0.
   */
  readonly jitter?: number | undefined;
  /** `tick.signal` aborts with a `TimeoutError` when its handler has run for this long. Default: never. */
  readonly maxRunTime?: number | undefined;
  /** The schedule has no ticks before this time. */
  readonly startAt?: Date | undefined;
  /** The schedule has no ticks after this time. */
  readonly endAt?: Date | undefined;
  /** Whether the schedule is paused until it is resumed for the first time. Default false. */
  readonly paused?: boolean | undefined;
}

/** The options of `every()`. */
export interface IntervalOptions extends ScheduleOptions {
  /** Shift of all ticks in ms. Default 0. */
  readonly offset?: number | undefined;
}

/** The options of a schedule as data, whose zone is a field of its own. `offset` is for `every` only. */
export type DefinitionOptions = Omit<IntervalOptions, "timezone">;

export interface ResolvedScheduleOptions extends Complete<Omit<ScheduleOptions, "startAt" | "endAt">, "maxRunTime"> {
  readonly startMs: number;
  readonly endMs: number;
}

const LONGEST_NAME = 200;

const LONGEST_ZONE = 100;

export const zone: Check<string> = textLike("an IANA time zone", isZone);

/** Zones that were found right. A check takes 30 µs, and ten thousand schedules may have few zones. */
const knownZones = new Set<string>();
/** More names than there are zones, with other spellings. */
const MOST_ZONES = 1_000;

function isZone(name: string): boolean {
  if (knownZones.has(name)) return true;
  try {
    if (name.length > LONGEST_ZONE || new Intl.DateTimeFormat("en", { timeZone: name }).format(0) === "") return false;
  } catch {
    return false;
  }
  if (knownZones.size < MOST_ZONES) knownZones.add(name);
  return true;
}

/** A name becomes part of `tick.id`. BullMQ accepts a job ID only without ":". */
export const scheduleName: Check<string> = textLike(
  `a string of 1 to ${LONGEST_NAME} characters without ":"`,
  (name) => name !== "" && name.length <= LONGEST_NAME && !name.includes(":"),
);

/** A date is recognized by its `getTime()`, because it may come from another realm. */
export const moment: Check<Date> = new Check({
  rule: "a valid Date",
  faultOf: (given) => {
    const ms: unknown = (given as Date).getTime();
    if (typeof ms !== "number") return "type";
    return Number.isNaN(ms) ? "range" : undefined;
  },
});

const STORED_SHAPE = {
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
} satisfies ShapeOf<Omit<ScheduleOptions, "timezone">>;

const SHAPE = { timezone: zone.optional(), ...STORED_SHAPE } satisfies ShapeOf<ScheduleOptions>;

const INTERVAL_SHAPE = { ...SHAPE, offset: durationOrNoneMs.default(0) } satisfies ShapeOf<IntervalOptions>;

const OPTIONS = new Schema(SHAPE, ofLocks);
const STORED = new Schema(STORED_SHAPE, ofLocks);
const STORED_INTERVAL = new Schema({ ...STORED_SHAPE, offset: INTERVAL_SHAPE.offset }, ofLocks);
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

/** @throws RangeError for a jitter that is longer than the period */
export function checkJitter(jitterMs: number, periodMs: number, path = ""): void {
  if (jitterMs > periodMs)
    throw new RangeError(`${path}jitter must be at most the period of ${periodMs} ms, got ${jitterMs}`);
}

/** Returns the options of a schedule as data that differ from their defaults, as JSON. Times are numbers. */
export function storedOptions(given: DefinitionOptions, periodMs: number | undefined, path: string): string {
  const options = (periodMs === undefined ? STORED : STORED_INTERVAL).resolve(given, path);
  inForce({ ...options, timezone: undefined }, "UTC");
  if (periodMs !== undefined) checkJitter(options.jitter, periodMs, `${path}.`);
  const resolved: Readonly<Record<string, unknown>> = options;
  const stored: Record<string, unknown> = {};
  for (const [name, { fallback }] of Object.entries(INTERVAL_SHAPE)) {
    const value = resolved[name];
    if (value !== undefined && value !== fallback)
      stored[name] = typeof value === "object" ? (value as Date).getTime() : value;
  }
  return JSON.stringify(stored);
}

/**
 * Returns the options that `storedOptions` wrote.
 * @throws TypeError, RangeError if this version does not know a value
 */
export function resolveStoredOptions(stored: object, timezone: string): ResolvedScheduleOptions {
  const { startAt, endAt, ...others } = stored as { readonly startAt?: number; readonly endAt?: number };
  const dateIn = (ms: number | undefined): Date | undefined => (ms === undefined ? undefined : dateOf(ms));
  return resolveScheduleOptions({ ...others, startAt: dateIn(startAt), endAt: dateIn(endAt) }, timezone);
}

/**
 * The object is a literal. Built by spreading, each object would need half a kilobyte more, and there may be ten
 * thousand.
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
