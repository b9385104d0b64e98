/** A scheduler whose ticks run on the leader only, once each, across failovers. */

export type { Schedule } from "./code-schedules.ts";
export type { SchedulerEvents } from "./events.ts";
export type { ListOptions, ScheduleInfo } from "./operator.ts";
export type { DefinitionOptions, IntervalOptions, ScheduleOptions } from "./options.ts";
export type { NextTick } from "./rules/calendar.ts";
export type { TickOutcome, TickRecord } from "./rules/history.ts";
export type { Overlap } from "./rules/overlap.ts";
export type { Catchup } from "./rules/plan.ts";
export type { Reconciled, ReconcileOptions, ScheduleDefinition } from "./schedule-writer.ts";
export { LeaderScheduler, type SchedulerOptions } from "./scheduler.ts";
export type { Tick, TickHandler } from "./tick.ts";
