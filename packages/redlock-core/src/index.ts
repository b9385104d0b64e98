export type { Finding, FindingCode } from "./check.ts";
export type { Clock } from "./clock.ts";
export { systemClock } from "./clock.ts";
export type { LockLossReason, RedlockErrorCode, Vote } from "./errors.ts";
export {
  FencedOffError,
  LockHeldError,
  LockLostError,
  QuorumUnreachableError,
  RedlockClosedError,
  RedlockError,
} from "./errors.ts";
export type { RedlockEventName, RedlockEvents } from "./events.ts";
export { type FenceClient, type Fenced, type FenceOptions, fence } from "./fence.ts";
export type { Inspection, NodeInspection } from "./inspect.ts";
export { Lock } from "./lock.ts";
export type { LockNode, NodeScript, NodeState } from "./node.ts";
export type { NodeSource } from "./nodes/connect.ts";
export type { AcquireOptions, RedlockOptions, ResolvedOptions } from "./options.ts";
export type { VoteKind } from "./quorum.ts";
export type { Random } from "./random.ts";
export { Redlock } from "./redlock.ts";
