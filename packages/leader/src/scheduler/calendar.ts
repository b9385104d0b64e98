/** Pure: when ticks are. croner answers questions about calendars here and nothing else: its timers know nothing of terms. */

import { kindOf, quote, show } from "@x/redlock-core/protocol";
import { Cron } from "croner";
import { dateOf } from "../kit/date.ts";

/** The first tick strictly after `after`, or null if there is none. Must not depend on the time at which it is asked. */
export type NextTick = (after: Date) => Date | null;

/** The same in milliseconds since the Unix epoch. */
export interface Calendar {
  next(afterMs: number): number | null;
}

/** An error of the user's calendar, with what was asked. */
class CalendarError extends RangeError {
  override readonly name = "CalendarError";
}

/** croner takes more: a seventh field for years, and a date. */
const CRON = /^\s*(@[a-z]+|\S+(\s+\S+){4,5})\s*$/i;

/**
 * A cron expression: 5 fields, or 6 with seconds first, or a nickname (`@daily`), in an IANA time zone. Where the zone changes its clocks,
 * an hour field without `*` and `?` names its hours: a time that occurs twice fires at the first occurrence only, and times that do not
 * occur fire once, together, when the clock has jumped, if that is still the same day. With any other hour field the ticks follow real time:
 * a time that occurs twice fires twice, and one that does not occur not at all.
 * @throws RangeError at once for a bad expression, and for one that never fires
 */
export function cronCalendar(expression: string, timezone: string): Calendar {
  if (!CRON.test(expression)) {
    throw new RangeError(`expression must have 5 or 6 fields, or be a nickname as "@daily", got ${shown(expression)}`);
  }
  const calendar = { next: (afterMs: number): number | null => nextOf(recentCron(expression, timezone), afterMs) };
  if (calendar.next(0) === null) {
    throw new RangeError(`expression must have a next tick, got ${shown(expression)}, which never fires`);
  }
  return calendar;
}

interface ParsedCron {
  readonly cron: Cron;
  last: { readonly afterMs: number; readonly nextMs: number | null } | undefined;
}

/** croner keeps an array of 10,000 years, 83 kB, for each expression. To parse one anew takes about 0.1 ms, as long as to find a tick. */
const MOST_PARSED = 16;
const recent = new Map<string, ParsedCron>();

function recentCron(expression: string, timezone: string): ParsedCron {
  const key = `${timezone} ${expression}`;
  const found = recent.get(key) ?? { cron: cronOf(expression, timezone), last: undefined };
  recent.delete(key);
  recent.set(key, found);
  const [oldest = key] = recent.keys();
  if (recent.size > MOST_PARSED) recent.delete(oldest);
  return found;
}

function nextOf(parsed: ParsedCron, afterMs: number): number | null {
  if (parsed.last?.afterMs !== afterMs)
    parsed.last = { afterMs, nextMs: parsed.cron.nextRun(dateOf(afterMs))?.getTime() ?? null };
  return parsed.last.nextMs;
}

function cronOf(expression: string, timezone: string): Cron {
  // First as it was given: an error is about that.
  const given = parse(expression, timezone);
  const named = withNamedTimes(expression);
  return named === expression ? given : parse(named, timezone);
}

function parse(expression: string, timezone: string): Cron {
  try {
    return new Cron(expression, { paused: true, timezone, fixedTimeRule: "no-wildcard" });
  } catch (error) {
    const reason = error instanceof Error ? error.message.replace(/^CronPattern: /, "") : String(error);
    throw new RangeError(`expression must be a cron expression, got ${shown(expression)}: ${reason}`, { cause: error });
  }
}

/** The same times; if the hours are named, so are minutes and seconds: croner takes any wildcard or step among them for real time. */
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

/** Every `ms`, counted from the Unix epoch plus `offsetMs`: a failover keeps the phase. */
export function everyCalendar(ms: number, offsetMs: number): Calendar {
  return { next: (afterMs) => (Math.floor((afterMs - offsetMs) / ms) + 1) * ms + offsetMs };
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

/** Only ticks from `startMs` on and before or at `endMs`. */
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
