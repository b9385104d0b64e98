/**
 * This entry has the steps of the protocol, for siblings that combine them by other rules than a `Redlock`. It is
 * documented, but outside the promises of a version number.
 *
 * Each step works on the engine of a session: see `protocolOf(redlock).session`. None checks what it is given.
 */
export { Deadline, Deadlines, type Timed } from "./kit/deadlines.ts";
export { warn } from "./kit/emitter.ts";
export {
  type AttemptRequest,
  type AttemptResult,
  type Grant,
  isCorrectable,
  isGrant,
  type RefusedAttempt,
  startAttempt,
} from "./lock/attempt.ts";
export { type ExtendResult, extendRound } from "./lock/extend.ts";
export { type ReleaseRequest, releaseEverywhere, startRelease } from "./lock/release.ts";
export type { Session } from "./lock/session.ts";
export { MAX_CORRECTIONS } from "./lock/until-granted.ts";
export { databaseOf, type IoredisClient } from "./nodes/ioredis.ts";
export { type Engine, MAX_NODES } from "./rounds/engine.ts";
export { type Answer, isNotAsked, type Observer } from "./rounds/round.ts";
export type { Target } from "./rules/operation.ts";
export { resolveResources } from "./rules/resources.ts";
export { driftMs } from "./rules/validity.ts";
export { batchScript } from "./scripts/batch.lua.ts";
export { type Enrolment, leaveLines } from "./waiting/leave.ts";
export { Waiter } from "./waiting/waiter.ts";
