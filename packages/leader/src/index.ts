/** Leader election on 1 to N Redis nodes. `@x/leader/scheduler` adds a scheduler. */
export type { Cooldown } from "./cooldown.ts";
export type { LeaderLogger, LeaderMessages } from "./diagnostics.ts";
export { LeaderElection, type LeaderHealth } from "./election.ts";
export type { Unsubscribe } from "./emitter.ts";
export {
  ElectionBusyError,
  ElectionStoppedError,
  LeaderError,
  type LeaderErrorCode,
  LeadershipLostError,
  type TermLossReason,
  UnknownScheduleError,
} from "./errors.ts";
export type { LeaderEvents } from "./events.ts";
export type { LeaderTask } from "./lead.ts";
export type { CooldownOptions, LeaderElectionOptions, WorkerRenewal } from "./options.ts";
export type { LeaderInfo } from "./record.ts";
export type { StopOptions, TaskOptions } from "./run-options.ts";
export type { ElectionState } from "./state.ts";
export type { LeaderTerm } from "./term.ts";
export { type Durations, deriveTimings, type Timings, type TimingsInput } from "./timings.ts";
