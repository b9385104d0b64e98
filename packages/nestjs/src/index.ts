/** A NestJS module for locks, leader-only tasks, and exclusive BullMQ processors. */
export { CoordinationHealth, type CoordinationHealthResult } from "./health.ts";
export { InjectElection, InjectRedlock, InjectScheduler } from "./inject.ts";
export {
  LeaderCron,
  type LeaderCronOptions,
  LeaderInterval,
  type LeaderIntervalOptions,
  type TickMethodDecorator,
} from "./leader/leader-cron.ts";
export { OnElected, type TermMethodDecorator } from "./leader/on-elected.ts";
export { currentLock } from "./locked/current-lock.ts";
export { Locked, type LockedMethodDecorator } from "./locked/locked.ts";
export { type CoordinationAsyncOptions, CoordinationModule } from "./module.ts";
export type { CoordinationOptions } from "./options.ts";
export {
  ExclusiveProcessor,
  type ExclusiveProcessorDecorator,
  type ExclusiveProcessorOptions,
} from "./workers/exclusive-processor.ts";
export { ExclusiveWorkerHost } from "./workers/worker-host.ts";
