/**
 * Methods that only the leader calls: with each tick once (`@LeaderCron` and `@LeaderInterval`), or with its term when
 * it is elected (`@OnElected`).
 */
import "reflect-metadata";
import type { LeaderTerm } from "@x/leader";
import type { IntervalOptions, ScheduleOptions, Tick } from "@x/leader/scheduler";
import type { Marker } from "../discovery.ts";
import { type Decorated, instanceMethod, methodName } from "../rules/names.ts";

export interface LeaderCronOptions extends ScheduleOptions {
  /**
   * Name of the schedule: what is stored of it, and the ids of its ticks, begin with it. Default `Class.method`, so
   * that a class that is renamed has a new schedule.
   */
  readonly name?: string | undefined;
}

export interface LeaderIntervalOptions extends IntervalOptions {
  /** The name of the schedule, as with `@LeaderCron`. */
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
 * Calls the method with each tick of a cron expression, on the leader only. Expression and options are those of
 * `LeaderScheduler.cron()`.
 */
export function LeaderCron(expression: string, options: LeaderCronOptions = {}): TickMethodDecorator {
  return (target, key, { value }) => mark("@LeaderCron", { target, key, value }, { kind: "cron", expression, options });
}

/** Calls the method every `ms`, on the leader only. The options are those of `LeaderScheduler.every()`. */
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
 * Calls the method with the term each time this process is elected. It may return at once, or work until `term.signal`
 * aborts: the leadership is handed over only when the method has ended.
 *
 * A method that fails hands the leadership over, and this process stays out for the election's cooldown.
 */
export function OnElected(): TermMethodDecorator {
  return (target, key, { value }) =>
    Reflect.defineMetadata(ON_ELECTED.key, true, instanceMethod("@OnElected", { target, key, value }));
}
