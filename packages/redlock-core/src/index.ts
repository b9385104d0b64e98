export {
  FencedOffError,
  LockHeldError,
  type LockLossReason,
  LockLostError,
  QuorumUnreachableError,
  RedlockClosedError,
  RedlockError,
  type RedlockErrorCode,
  ReentrancyError,
  type ReentrancyFacts,
} from "./api/errors.ts";
export type { RedlockEventName, RedlockEvents, RedlockTraces } from "./api/events.ts";
export type { AcquireOptions, RedlockOptions, Reentrancy, ResolvedOptions, UsingOptions } from "./api/options.ts";
export { type Clock, systemClock } from "./kit/clock.ts";
export { type Logger, logTo, type StopLogging } from "./kit/log.ts";
export type { Random } from "./kit/random.ts";
export { type FenceClient, type Fenced, type FenceOptions, fence } from "./lock/fence.ts";
export { Lock } from "./lock/lock.ts";
export type { NodeSource } from "./nodes/connect.ts";
export type { LockNode, NodeState, OnGap } from "./nodes/node.ts";
export type { Finding, FindingCode } from "./operators/check.ts";
export type { Inspection, NodeInspection } from "./operators/inspect.ts";
export { Redlock } from "./redlock/redlock.ts";
export type { Vote, VoteKind } from "./rules/quorum.ts";
export type { NodeScript } from "./rules/script.ts";
