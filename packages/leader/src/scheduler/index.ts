/** A scheduler whose ticks run on the leader only, once each, across failovers. */
export type { NextTick } from "./calendar.ts";
export type { SchedulerEvents } from "./events.ts";
export type { TickOutcome, TickRecord } from "./history.ts";
export type { ListOptions, ScheduleInfo } from "./operator.ts";
export type { IntervalOptions, ScheduleOptions } from "./options.ts";
export type { Overlap } from "./overlap.ts";
export type { Catchup } from "./plan.ts";
export { LeaderScheduler, type Schedule, type SchedulerOptions } from "./scheduler.ts";
export type { Tick, TickHandler } from "./tick.ts";
