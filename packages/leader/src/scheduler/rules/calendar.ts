/**
 * Pure: computes the times of ticks. croner computes the calendars. The timers of croner are not used, because they do
 * not end with a term.
 */

import { kindOf, quote, show } from "@x/redlock-core/kit";
import { Cron } from "croner";
import { dateOf } from "../../rules/values.ts";

/**
 * Returns the first tick strictly after `after`. Null if there is none. The result must depend only on `after`.
 */
export type NextTick = (after: Date) => Date | null;

/** A calendar in milliseconds since the Unix epoch. */
export interface Calendar {
  next(afterMs: number): number | null;
}

/** Error of the user's calendar, with the argument of the call. */
class CalendarError extends RangeError {
  override readonly name = "CalendarError";
}

/** The accepted forms. croner also accepts a seventh field for years, and a date. */
const CRON = /^\s*(@[a-z]+|\S+(\s+\S+){4,5})\s*$/i;

/**
 * A cron expression in an IANA time zone: 5 fields, or 6 with seconds first, or a nickname (`@daily`).
 *
 * An hour field without `*` and `?` names its hours. When the zone changes its clocks, a named time that occurs twice
 * fires only at the first occurrence. Named times that do not occur fire together once, when the clock has jumped, if
 * the day is still the same.
 *
 * With any other hour field, the ticks follow real time. A time that occurs twice fires twice, and a skipped time does
 * not fire.
 * @throws RangeError for a wrong expression, and for an expression that never fires
 */
export function cronCalendar(expression: string, timezone: string): Calendar {
  checkCron(expression, timezone);
  return storedCronCalendar(expression, timezone);
}

/** Returns the calendar of an expression that `checkCron` has accepted. Another expression throws at its first use. */
export function storedCronCalendar(expression: string, timezone: string): Calendar {
  const named = withNamedTimes(expression);
  return { next: (afterMs) => nextOf(cronOf(named, timezone), afterMs) };
}

/** Checks an expression, which `path` names in errors. @throws RangeError as `cronCalendar` */
export function checkCron(expression: string, timezone: string, path = "expression"): void {
  if (isPlainCron(expression)) return;
  if (!CRON.test(expression)) {
    throw new RangeError(`${path} must have 5 or 6 fields, or be a nickname as "@daily", got ${shown(expression)}`);
  }
  // The given expression is parsed first, so that errors show it.
  parse(expression, timezone, path);
  if (storedCronCalendar(expression, timezone).next(0) === null) {
    throw new RangeError(`${path} must have a next tick, got ${shown(expression)}, which never fires`);
  }
}

/** The least and greatest value of each field, from minutes to days of the week. */
const PLAIN_FIELDS = [
  [0, 59],
  [0, 23],
  [1, 31],
  [1, 12],
  [0, 7],
] as const;
/** Each month has this day. */
const LAST_COMMON_DAY = 28;

/**
 * Reports whether an expression is certainly right and fires: numbers, ranges and steps within their limits, and a day
 * that each month has. croner takes 0.2 ms to find the same, two seconds for ten thousand schedules.
 */
export function isPlainCron(expression: string): boolean {
  const fields = expression.split(" ");
  return (
    fields.length === PLAIN_FIELDS.length &&
    PLAIN_FIELDS.every((limits, at) => isPlainField(fields[at] ?? "", limits)) &&
    Number.parseInt(fields[2]?.replace("*", "1") ?? "", 10) <= LAST_COMMON_DAY
  );
}

function isPlainField(field: string, [least, greatest]: readonly [number, number]): boolean {
  return field.split(",").every((text) => {
    const item = text.replace(/^\*/, `${least}-${greatest}`);
    const [, from, to, step = "1"] = /^(\d\d?)(?:-(\d\d?)(?:\/(\d\d?))?)?$/.exec(item) ?? [];
    if (from === undefined) return false;
    const [first, last] = [Number(from), Number(to ?? from)];
    return least <= first && first <= last && last <= greatest && Number(step) >= 1 && Number(step) <= greatest;
  });
}

interface ParsedCron {
  readonly key: string;
  readonly cron: Cron;
  last: { readonly afterMs: number; readonly nextMs: number | null } | undefined;
}

/**
 * croner creates an array of 10,000 years, 83 kB, for each expression. The creation takes about 0.1 ms, the same as
 * finding a tick. The cache contains only expressions that are soon needed again. A cache of ten thousand caused nine
 * tenths of the garbage collector's work, which moves objects that survive.
 */
const MOST_KEPT = 16;
const MOST_SEEN = 64;
const kept = new Map<string, ParsedCron>();
/** Expressions that were needed recently and are not in the cache. */
const seen = new Set<string>();
let latest: ParsedCron | undefined;

function cronOf(expression: string, timezone: string): ParsedCron {
  const key = `${timezone} ${expression}`;
  if (latest?.key === key) return latest;
  const found = kept.get(key);
  latest = found ?? { key, cron: parse(expression, timezone), last: undefined };
  if (found !== undefined || seen.has(key)) {
    seen.delete(key);
    kept.delete(key);
    kept.set(key, latest);
    dropOldest(kept, MOST_KEPT);
  } else {
    seen.add(key);
    dropOldest(seen, MOST_SEEN);
  }
  return latest;
}

function dropOldest(keys: Map<string, unknown> | Set<string>, most: number): void {
  const [oldest = ""] = keys.keys();
  if (keys.size > most) keys.delete(oldest);
}

function nextOf(parsed: ParsedCron, afterMs: number): number | null {
  if (parsed.last?.afterMs !== afterMs)
    parsed.last = { afterMs, nextMs: parsed.cron.nextRun(dateOf(afterMs))?.getTime() ?? null };
  return parsed.last.nextMs;
}

function parse(expression: string, timezone: string, path = "expression"): Cron {
  try {
    return new Cron(expression, { paused: true, timezone, fixedTimeRule: "no-wildcard" });
  } catch (error) {
    const reason = error instanceof Error ? error.message.replace(/^CronPattern: /, "") : String(error);
    throw new RangeError(`${path} must be a cron expression, got ${shown(expression)}: ${reason}`, { cause: error });
  }
}

/**
 * Returns an expression for the same times. If the hours are named, minutes and seconds are named as well, because
 * croner uses real time for any wildcard or step in these fields.
 */
function withNamedTimes(expression: string): string {
  const fields = expression.trim().split(/\s+/);
  const hourAt = fields.length - 4;
  if (/[*?]/.test(fields[hourAt] ?? "*")) return expression;
  return fields
    .map((field, index) => (index > hourAt ? field : withNamedValues(field, index === hourAt ? 23 : 59)))
    .join(" ");
}

function withNamedValues(field: string, most: number): string {
  const named = field.split(",").map((item) => {
    const [range = "", step] = item.replace(/[*?]/, `0-${most}`).split("/");
    if (step === undefined) return range;
    const [from = 0, to = most] = range.split("-").map(Number);
    const count = Math.floor((to - from) / Number(step)) + 1;
    return Array.from({ length: count }, (_, index) => from + index * Number(step)).join(",");
  });
  return named.join(",");
}

/** No `Date` is later. */
const LAST_DATE_MS = 8.64e15;

/** Every `ms`, counted from the Unix epoch plus `offsetMs`: a failover keeps the phase. */
export function everyCalendar(ms: number, offsetMs: number): Calendar {
  return {
    next: (afterMs) => {
      const nextMs = (Math.floor((afterMs - offsetMs) / ms) + 1) * ms + offsetMs;
      return nextMs <= LAST_DATE_MS ? nextMs : null;
    },
  };
}

/** A calendar of the user's own; checks that it moves on. */
export function ownCalendar(name: string, next: NextTick): Calendar {
  return {
    next(afterMs: number): number | null {
      const answer: unknown = next(dateOf(afterMs));
      if (answer === null) return null;
      const isDate = typeof answer === "object" && answer !== undefined && "getTime" in answer;
      const nextMs = isDate ? (answer as Date).getTime() : Number.NaN;
      if (nextMs > afterMs) return nextMs;
      throw new CalendarError(
        `next tick of "${name}" must be null or a Date later than ${dateOf(afterMs).toISOString()}, got ${Number.isNaN(nextMs) ? show(answer) : dateOf(nextMs).toISOString()}`,
      );
    },
  };
}

/** Returns a calendar with only the ticks from `startMs` on and before or at `endMs`. */
export function boundedCalendar(calendar: Calendar, startMs: number, endMs: number): Calendar {
  if (startMs === Number.NEGATIVE_INFINITY && endMs === Number.POSITIVE_INFINITY) return calendar;
  return {
    next(afterMs: number): number | null {
      const nextMs = calendar.next(Math.max(afterMs, startMs - 1));
      return nextMs !== null && nextMs <= endMs ? nextMs : null;
    },
  };
}

/** No expression has a colon, as what may be a secret has. */
function shown(expression: string): string {
  return expression.includes(":") ? kindOf(expression) : quote(expression);
}
