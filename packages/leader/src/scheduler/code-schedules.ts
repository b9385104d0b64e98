/**
 * The schedules in the code of this process, and the handlers of the kinds of schedules as data.
 *
 * Guaranteed: each name has one schedule, and each kind has one handler. A calendar that throws at its first call is
 * not added.
 */
import type { Clock } from "@x/redlock-core";
import { callback, integer, quote, text } from "@x/redlock-core/kit";
import { dateOf } from "../rules/values.ts";
import {
  checkJitter,
  type IntervalOptions,
  moment,
  type ResolvedScheduleOptions,
  resolveIntervalOptions,
  resolveScheduleOptions,
  type ScheduleOptions,
  scheduleName,
} from "./options.ts";
import {
  boundedCalendar,
  type Calendar,
  cronCalendar,
  everyCalendar,
  type NextTick,
  ownCalendar,
} from "./rules/calendar.ts";
import { KIND } from "./schedule-writer.ts";
import type { TickHandler } from "./tick.ts";
import type { ScheduleEntry } from "./timetable.ts";

/** A schedule of a scheduler. */
export interface Schedule {
  readonly name: string;
  /** Returns the first tick after `after`. Null if there is none. */
  next(after: Date): Date | null;
  /**
   * Removes the schedule from this scheduler. Running handlers continue, and waiting ticks are skipped. The stored
   * state remains. The schedule may be added again, here or in a later leader. `catchup` then applies to the ticks in
   * between, and handlers that still run count as runs of the new schedule.
   */
  remove(): void;
}

interface CodeSchedulesParts {
  readonly clock: Clock;
  /** Time zone of cron expressions without their own. */
  readonly timezone: string;
  readonly onAdded: (name: string) => void;
  readonly onRemoved: (name: string) => void;
  /** Called when a kind has got its handler. */
  readonly onHandler: (kind: string) => void;
}

const HANDLER = callback<TickHandler>();
const NEXT = callback<NextTick>();
const PERIOD = integer({ min: 1 });
const EXPRESSION = text({ min: 1 });

export class CodeSchedules {
  readonly #parts: CodeSchedulesParts;
  /** Options that all schedules without own options share, because ten thousand schedules may exist. */
  readonly #defaults: ResolvedScheduleOptions;
  readonly #entries = new Map<string, ScheduleEntry>();
  readonly #handlers = new Map<string, TickHandler>();

  constructor(parts: CodeSchedulesParts) {
    this.#parts = parts;
    this.#defaults = resolveScheduleOptions({}, parts.timezone);
  }

  /** The schedules by name. */
  get entries(): ReadonlyMap<string, ScheduleEntry> {
    return this.#entries;
  }

  /** Handlers of schedules as data, by kind. */
  get handlers(): ReadonlyMap<string, TickHandler> {
    return this.#handlers;
  }

  /** Longest `catchupWindow` of the schedules in ms. */
  get longestWindowMs(): number {
    return Math.max(0, ...[...this.#entries.values()].map((entry) => entry.options.catchupWindow));
  }

  /** See `LeaderScheduler.cron`. */
  cron(name: string, expression: string, handler: TickHandler, options: ScheduleOptions | undefined): Schedule {
    const resolved = this.#resolve(options);
    const calendar = cronCalendar(EXPRESSION.of("expression", expression), resolved.timezone);
    return this.#add(name, calendar, handler, resolved);
  }

  /** See `LeaderScheduler.every`. */
  every(name: string, ms: number, handler: TickHandler, options: IntervalOptions): Schedule {
    const { offset, options: resolved } = resolveIntervalOptions(options, this.#parts.timezone);
    const periodMs = PERIOD.of("ms", ms);
    checkJitter(resolved.jitter, periodMs);
    return this.#add(name, everyCalendar(periodMs, offset), handler, resolved);
  }

  /** See `LeaderScheduler.add`. */
  own(name: string, next: NextTick, handler: TickHandler, options: ScheduleOptions | undefined): Schedule {
    scheduleName.of("name", name);
    NEXT.of("next", next);
    const resolved = this.#resolve(options);
    const calendar = ownCalendar(name, next);
    calendar.next(this.#parts.clock.wallMs());
    return this.#add(name, calendar, handler, resolved);
  }

  /** See `LeaderScheduler.handle`. */
  handle(kind: string, handler: TickHandler): void {
    KIND.of("kind", kind);
    HANDLER.of("handler", handler);
    if (this.#handlers.has(kind)) throw new RangeError(`kind must be new to this scheduler, got ${quote(kind)}`);
    this.#handlers.set(kind, handler);
    this.#parts.onHandler(kind);
  }

  #resolve(options: ScheduleOptions | undefined): ResolvedScheduleOptions {
    return options === undefined ? this.#defaults : resolveScheduleOptions(options, this.#parts.timezone);
  }

  #add(name: string, calendar: Calendar, handler: TickHandler, options: ResolvedScheduleOptions): Schedule {
    const checked = scheduleName.of("name", name);
    HANDLER.of("handler", handler);
    if (this.#entries.has(checked)) throw new RangeError(`name must be new to this scheduler, got ${quote(checked)}`);
    const bounded = boundedCalendar(calendar, options.startMs, options.endMs);
    const entry: ScheduleEntry = { name: checked, calendar: bounded, handler, options };
    this.#entries.set(checked, entry);
    this.#parts.onAdded(checked);
    return {
      name: checked,
      next: (after) => {
        const nextMs = bounded.next(moment.of("after", after).getTime());
        return nextMs === null ? null : dateOf(nextMs);
      },
      remove: () => {
        if (this.#entries.get(checked) !== entry) return;
        this.#entries.delete(checked);
        this.#parts.onRemoved(checked);
      },
    };
  }
}
