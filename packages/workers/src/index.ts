export type { KeyRate, OnFailure } from "./bullmq/rules/compose.ts";
export {
  DivisionMismatchError,
  ExclusionRefusedError,
  ExclusiveWorkerError,
  type ExclusiveWorkerErrorCode,
  JobCancelledError,
  JobKeyError,
  JobLockLostError,
  KeyBacklogError,
  LaneError,
  NotALockError,
  QueueUnreachableError,
  SupersededError,
  type UnknownTexts,
  UnsupportedBullMQError,
  type WorkerFindingCode,
  WorkerMismatchError,
} from "./errors.ts";
export type {
  ExclusiveQueueEvents,
  ExclusiveQueueListener,
  ExclusiveWorkerListener,
  WorkerEvents,
  WorkerTraces,
} from "./events.ts";
export { ExclusiveQueue, type ExclusiveQueueOptions } from "./exclusive-queue.ts";
export { ExclusiveWorker } from "./exclusive-worker.ts";
export type { JobLock } from "./job-run/job-lock.ts";
export type { Batch } from "./job-run/rules/batch.ts";
export type { QueueOperators } from "./operators/queue-operators.ts";
export type { EarlyKey, ExclusionFigures, ExclusionMode, ExclusionReport } from "./operators/rules/exclusion.ts";
export type { KeyPolicy } from "./operators/rules/key-policy.ts";
export type {
  BusyKey,
  CancelledJobs,
  CancelledState,
  Explanation,
  JobCounts,
  KeyJobState,
  KeyJobs,
  KeyPause,
  KeyPosition,
  KeyReading,
  KeyReadingJob,
  Verdict,
} from "./operators/rules/key-report.ts";
export type { QueueOverview } from "./operators/rules/queue-overview.ts";
export type { WorkerReport, WorkerStatus } from "./operators/rules/worker-report.ts";
export type { WorkerSetup } from "./operators/rules/worker-setup.ts";
export type {
  BatchSize,
  Between,
  ExclusiveOptions,
  ExclusiveWorkerOptions,
  KeyOption,
  MaxWaiting,
  PerKey,
} from "./options.ts";
export type { Cancellation, KeyPath } from "./rules/entity-key.ts";
export type { StoredJob } from "./rules/stored-job.ts";
export type { ExclusiveProcessorFunction, NotRun } from "./runner/runner.ts";
