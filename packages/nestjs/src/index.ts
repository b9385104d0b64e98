/** A NestJS module for locks, leader-only tasks, and exclusive BullMQ processors. */
export { CoordinationHealth, type CoordinationHealthResult } from "./health.ts";
export {
  LeaderCron,
  type LeaderCronOptions,
  LeaderInterval,
  type LeaderIntervalOptions,
  OnElected,
  type TermMethodDecorator,
  type TickMethodDecorator,
} from "./leader/leader-methods.ts";
export { LockErrorFilter } from "./locked/lock-error-filter.ts";
export { Locked, type LockedMethodDecorator } from "./locked/locked.ts";
export { currentLock } from "./locked/locked-calls.ts";
export {
  type CoordinationAsyncOptions,
  CoordinationModule,
  InjectElection,
  InjectRedlock,
  InjectScheduler,
} from "./module.ts";
export type { CoordinationOptions } from "./options.ts";
export {
  ExclusiveProcessor,
  type ExclusiveProcessorDecorator,
  type ExclusiveProcessorOptions,
} from "./workers/exclusive-processor.ts";
export { ExclusiveWorkerHost } from "./workers/worker-host.ts";
