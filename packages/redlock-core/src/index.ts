export type { LockLossReason, RedlockErrorCode, Vote } from "./errors.ts";
export {
  FencedOffError,
  LockHeldError,
  LockLostError,
  QuorumUnreachableError,
  RedlockClosedError,
  RedlockError,
  ReentrancyError,
  type ReentrancyFacts,
} from "./errors.ts";
export type { RedlockEventName, RedlockEvents, RedlockTraces } from "./events.ts";
export { type FenceClient, type Fenced, type FenceOptions, fence } from "./fence.ts";
export type { Clock } from "./kit/clock.ts";
export { systemClock } from "./kit/clock.ts";
export type { Random } from "./kit/random.ts";
export { Lock } from "./lock/lock.ts";
export type { NodeSource } from "./nodes/connect.ts";
export type { LockNode, NodeScript, NodeState, OnGap } from "./nodes/node.ts";
export type { Finding, FindingCode } from "./operators/check.ts";
export type { Inspection, NodeInspection } from "./operators/inspect.ts";
export type { AcquireOptions, RedlockOptions, Reentrancy, ResolvedOptions, UsingOptions } from "./options.ts";
export { Redlock } from "./redlock.ts";
export type { VoteKind } from "./rules/quorum.ts";
