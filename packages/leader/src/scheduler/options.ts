/** Pure: options of a schedule and of the scheduler. */
import { integer, oneOf, optionalBoolean, optionalInteger, show, text } from "../checks.ts";
import { checkKnown, type Known } from "../known.ts";
import type { Overlap } from "./overlap.ts";
import type { Catchup } from "./plan.ts";

/** All durations are integer milliseconds. */
export interface ScheduleOptions {
  /** IANA zone of a cron expression. Default: that of the scheduler. */
  readonly timezone?: string | undefined;
  /**
   * Ticks that nobody could run: no leader, or all processes down. `latest` (default): at most one, the newest. `all`: each, oldest
   * first, one after another. `none`: only a tick that is less than a second late.
   */
  readonly catchup?: Catchup | undefined;
  /** Older ticks are missed, and counted. Default 60,000. */
  readonly catchupWindow?: number | undefined;
  /** At most so many are caught up at once, the newest. Default 100, at most 1,000. */
  readonly maxCatchup?: number | undefined;
  /**
   * A tick is due while an earlier one of this schedule runs. `skip` (default): it is left out. `bufferOne`: one waits. `cancelOther`: the
   * running one's signal aborts, this runs when it has ended; one that waits for a place (`concurrency`) is left out and this has its
   * place. `allowAll`: both run. With `catchup: "all"` ticks that are caught up, and those that fall due meanwhile, wait for each other
   * instead, up to `maxCatchup` of them.
   */
  readonly overlap?: Overlap | undefined;
  /**
   * `at-most-once` (default): claimed before it runs; a crash loses it. `at-least-once`: recorded as finished after it ran; after a crash
   * the next leader runs it again, so the handler must be repeatable (`tick.id` is the same, `tick.attempt` is higher).
   */
  readonly delivery?: "at-most-once" | "at-least-once" | undefined;
  /**
   * With `at-least-once`: a tick that was begun by so many leaders and not finished is given up. A leader that dies counts also for those that
   * waited, one that ends does not. Default 5.
   */
  readonly maxAttempts?: number | undefined;
  /**
   * Each tick runs up to this much later, at random. At most the period of `every()`; with other calendars, ticks that fall due meanwhile are
   * caught up as `catchup` says. Default 0.
   */
  readonly jitter?: number | undefined;
  /** `tick.signal` aborts with a `TimeoutError` after this. Default: never. */
  readonly timeout?: number | undefined;
  /** No tick before. */
  readonly startAt?: Date | undefined;
  /** No tick after. */
  readonly endAt?: Date | undefined;
  /** Is a schedule paused that nobody has paused or resumed yet? Default false. */
  readonly paused?: boolean | undefined;
}

/** Of `every()`. */
export interface IntervalOptions extends ScheduleOptions {
  /** Moves all ticks by so many ms. Default 0. */
  readonly offset?: number | undefined;
}

export interface ResolvedScheduleOptions {
  readonly timezone: string;
  readonly catchup: Catchup;
  readonly catchupWindow: number;
  readonly maxCatchup: number;
  readonly overlap: Overlap;
  readonly delivery: "at-most-once" | "at-least-once";
  readonly maxAttempts: number;
  readonly jitter: number;
  readonly timeout: number | undefined;
  readonly startMs: number;
  readonly endMs: number;
  readonly paused: boolean;
}

const LONGEST_NAME = 200;

const KNOWN: Known<ScheduleOptions> = {
  timezone: true,
  catchup: true,
  catchupWindow: true,
  maxCatchup: true,
  overlap: true,
  delivery: true,
  maxAttempts: true,
  jitter: true,
  timeout: true,
  startAt: true,
  endAt: true,
  paused: true,
};

export function resolveScheduleOptions(given: ScheduleOptions, timezone: string): ResolvedScheduleOptions {
  checkKnown(given, KNOWN);
  const startMs = moment("startAt", given.startAt) ?? Number.NEGATIVE_INFINITY;
  const endMs = moment("endAt", given.endAt) ?? Number.POSITIVE_INFINITY;
  if (endMs < startMs) throw new RangeError(`endAt must not be before startAt, got ${String(given.endAt)}`);
  return Object.freeze({
    timezone: given.timezone === undefined ? timezone : zone(given.timezone),
    catchup: oneOf("catchup", given.catchup, ["none", "latest", "all"], "latest"),
    catchupWindow: optionalInteger("catchupWindow", given.catchupWindow, 0) ?? 60_000,
    maxCatchup: optionalInteger("maxCatchup", given.maxCatchup, 1, 1_000) ?? 100,
    overlap: oneOf("overlap", given.overlap, ["skip", "bufferOne", "cancelOther", "allowAll"], "skip"),
    delivery: oneOf("delivery", given.delivery, ["at-most-once", "at-least-once"], "at-most-once"),
    maxAttempts: optionalInteger("maxAttempts", given.maxAttempts, 1) ?? 5,
    jitter: optionalInteger("jitter", given.jitter, 0) ?? 0,
    timeout: optionalInteger("timeout", given.timeout, 1),
    startMs,
    endMs,
    paused: optionalBoolean("paused", given.paused) ?? false,
  });
}

export function splitInterval(given: IntervalOptions): {
  readonly offset: number;
  readonly options: ScheduleOptions;
} {
  checkKnown(given, { ...KNOWN, offset: true });
  const { offset, ...options } = given;
  return { offset: optionalInteger("offset", offset, 0) ?? 0, options };
}

export function zone(given: unknown): string {
  const name = text("timezone", given);
  try {
    new Intl.DateTimeFormat("en", { timeZone: name }).format(0);
  } catch (error) {
    throw new RangeError(`timezone must be an IANA time zone, got ${show(name)}`, { cause: error });
  }
  return name;
}

/** A name becomes part of `tick.id`, which BullMQ takes as a job id only without ":". */
export function scheduleName(given: unknown): string {
  const name = text("name", given);
  if (name.length > LONGEST_NAME)
    throw new RangeError(`name must have at most ${LONGEST_NAME} characters, got ${name.length}`);
  if (name.includes(":")) throw new RangeError(`name must not contain ":" (BullMQ job ids may not), got ${show(name)}`);
  return name;
}

export function period(given: unknown): number {
  return integer("ms", given, 1);
}

function moment(option: string, given: unknown): number | undefined {
  if (given === undefined) return undefined;
  const ms: unknown =
    typeof given === "object" && given !== null && "getTime" in given
      ? (given as { getTime(): unknown }).getTime()
      : undefined;
  if (typeof ms !== "number") throw new TypeError(`${option} must be a Date, got ${show(given)}`);
  if (Number.isNaN(ms)) throw new RangeError(`${option} must be a valid Date, got an invalid one`);
  return ms;
}
