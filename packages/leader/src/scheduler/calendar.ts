/** Pure: when ticks are. croner answers questions about calendars here and nothing else: its timers know nothing of terms. */
import { Cron } from "croner";
import { show } from "../checks.ts";
import { dateOf } from "../date.ts";

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
 * A cron expression: 5 fields, or 6 with seconds first, or a nickname (`@daily`), in an IANA time zone. In the hour that a zone repeats in
 * autumn a fixed time fires once; in the hour that it skips in spring it fires when the hour would have begun.
 * @throws RangeError at once for a bad expression, and for one that never fires
 */
export function cronCalendar(expression: string, timezone: string): Calendar {
  if (!CRON.test(expression)) {
    throw new RangeError(`expression must have 5 or 6 fields, or be a nickname as "@daily", got ${show(expression)}`);
  }
  const cron = parsed(expression, timezone);
  if (cron.nextRun(dateOf(0)) === null) {
    throw new RangeError(`expression must have a next tick, got ${show(expression)}, which never fires`);
  }
  let last: { readonly afterMs: number; readonly nextMs: number | null } | undefined;
  return {
    next(afterMs: number): number | null {
      if (last?.afterMs !== afterMs) last = { afterMs, nextMs: cron.nextRun(dateOf(afterMs))?.getTime() ?? null };
      return last.nextMs;
    },
  };
}

function parsed(expression: string, timezone: string): Cron {
  try {
    return new Cron(expression, { paused: true, timezone });
  } catch (error) {
    const reason = error instanceof Error ? error.message.replace(/^CronPattern: /, "") : String(error);
    throw new RangeError(`expression must be a cron expression, got ${show(expression)}: ${reason}`, { cause: error });
  }
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
        `next tick of "${name}" must be null or a Date later than ${dateOf(afterMs).toISOString()}, got ${show(answer)}`,
      );
    },
  };
}

/** Only ticks from `startMs` on and before or at `endMs`. */
export function boundedCalendar(calendar: Calendar, startMs: number, endMs: number): Calendar {
  return {
    next(afterMs: number): number | null {
      const nextMs = calendar.next(Math.max(afterMs, startMs - 1));
      return nextMs !== null && nextMs <= endMs ? nextMs : null;
    },
  };
}
