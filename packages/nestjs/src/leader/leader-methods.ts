/**
 * Methods that only the leader calls: once per tick (`@LeaderCron` and `@LeaderInterval`), or once per term
 * (`@OnElected`).
 */
import "reflect-metadata";
import type { LeaderTerm } from "@x/leader";
import type { IntervalOptions, ScheduleOptions, Tick } from "@x/leader/scheduler";
import type { Marker } from "../discovery.ts";
import { type Decorated, instanceMethod, methodName } from "../rules/names.ts";

export interface LeaderCronOptions extends ScheduleOptions {
  /**
   * Name of the schedule. Stored state and tick IDs begin with this name. Default `Class.method`: renaming the class
   * starts a new schedule.
   */
  readonly name?: string | undefined;
}

export interface LeaderIntervalOptions extends IntervalOptions {
  /** The name of the schedule, as for `@LeaderCron`. */
  readonly name?: string | undefined;
}

export type TickMethodDecorator = <Method extends (tick: Tick) => unknown>(
  target: object,
  key: string | symbol,
  descriptor: TypedPropertyDescriptor<Method>,
) => void;

export type ScheduleMark =
  | { readonly kind: "cron"; readonly expression: string; readonly options: LeaderCronOptions }
  | { readonly kind: "every"; readonly ms: number; readonly options: LeaderIntervalOptions };

export const SCHEDULE: Marker = { key: Symbol("x.nestjs.schedule"), decorator: "@LeaderCron or @LeaderInterval" };

/**
 * Calls the method with each tick of a cron expression, on the leader only. Accepts the expressions and options of
 * `LeaderScheduler.cron()`.
 */
export function LeaderCron(expression: string, options: LeaderCronOptions = {}): TickMethodDecorator {
  return (target, key, { value }) => mark("@LeaderCron", { target, key, value }, { kind: "cron", expression, options });
}

/** Calls the method every `ms`, on the leader only. Accepts the options of `LeaderScheduler.every()`. */
export function LeaderInterval(ms: number, options: LeaderIntervalOptions = {}): TickMethodDecorator {
  return (target, key, { value }) => mark("@LeaderInterval", { target, key, value }, { kind: "every", ms, options });
}

function mark(decorator: string, decorated: Decorated, schedule: ScheduleMark): void {
  const method = instanceMethod(decorator, decorated);
  if (Reflect.hasOwnMetadata(SCHEDULE.key, method))
    throw new TypeError(`${methodName(decorated.target, decorated.key)} must have one schedule, got a second one`);
  Reflect.defineMetadata(SCHEDULE.key, schedule, method);
}

export type TermMethodDecorator = <Method extends (term: LeaderTerm) => unknown>(
  target: object,
  key: string | symbol,
  descriptor: TypedPropertyDescriptor<Method>,
) => void;

export const ON_ELECTED: Marker = { key: Symbol("x.nestjs.onElected"), decorator: "@OnElected" };

/**
 * Calls the method with the term each time this process is elected. The method may return immediately, or work until
 * `term.signal` aborts. The leadership is handed over only after the method has ended.
 *
 * If the method fails, this process hands the leadership over and does not become a candidate for the election's
 * cooldown.
 */
export function OnElected(): TermMethodDecorator {
  return (target, key, { value }) =>
    Reflect.defineMetadata(ON_ELECTED.key, true, instanceMethod("@OnElected", { target, key, value }));
}
