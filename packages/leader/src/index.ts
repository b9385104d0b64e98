/** This entry has leader election on 1 to N Redis nodes. `@x/leader/scheduler` adds a scheduler. */

export { LeaderElection, type LeaderHealth } from "./election/election.ts";
export type { LeaderTask } from "./election/leader-run.ts";
export type { StopOptions, TaskOptions } from "./election/options.ts";
export {
  ElectionBusyError,
  ElectionStoppedError,
  LeaderError,
  type LeaderErrorCode,
  LeadershipLostError,
  type TermEndReason,
  UnknownScheduleError,
} from "./errors.ts";
export type { LeaderEvents, Unsubscribe } from "./events/events.ts";
export { type HealthHandlerOptions, healthHandler, type Running } from "./health-handler.ts";
export type { LeaderMessages, LeaderTraces } from "./kit/diagnostics.ts";
export type { LeaderTerm } from "./leader-term.ts";
export type { CooldownOptions, LeaderElectionOptions, WorkerRenewal } from "./options.ts";
export type { LeaderInfo } from "./rules/record.ts";
export type { ElectionState } from "./rules/state.ts";
