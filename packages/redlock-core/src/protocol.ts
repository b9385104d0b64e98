/**
 * Members for the sibling packages that need locks. This entry is documented, but semantic versioning does not cover
 * it, because it changes together with the siblings.
 */

import { type Check, shaped } from "./kit/schema/check.ts";
import { type Lease, type Lock, PROTOCOL } from "./lock/lock.ts";
import type { Redlock } from "./redlock/redlock.ts";
import type { RedlockProtocol } from "./redlock/redlock-protocol.ts";

export type { PlacedOptions } from "./api/options.ts";
export { CallDeadline, type CallEnd } from "./kit/deadlines.ts";
export { type Grant, isCorrectable, type RefusedAttempt } from "./lock/attempt.ts";
export { AutoExtension } from "./lock/auto-extension.ts";
export type { EmbeddedLocks } from "./lock/embedded.ts";
export { MAX_NODES } from "./lock/engine.ts";
export type { Lease } from "./lock/lock.ts";
export type { LockSteps, StepResult } from "./lock/lock-steps.ts";
export { type Renewable, Renewal } from "./lock/renewal.ts";
export type { NodeAnswer, OnAnswer } from "./lock/step-answers.ts";
export { type Acquirer, type Attempted, type AttemptOwner, untilGranted } from "./lock/until-granted.ts";
export { databaseOf, type IoredisClient } from "./nodes/ioredis.ts";
export { plainError, withoutCommand } from "./nodes/node.ts";
export { addressOf, connectOptionsOf } from "./nodes/rules/url.ts";
export type { RedlockProtocol } from "./redlock/redlock-protocol.ts";
export { type NodeReply, type ScriptCall, type ScriptOptions } from "./rounds/run.ts";
export { CLAMP_US } from "./rules/ballot.ts";
export { NODE_KEYS, NODE_LINES, slotOf } from "./rules/keys.ts";
export {
  acquisitionOutcome,
  emptyTally,
  median,
  quorumFreeMs,
  quorumLargest,
  type Refusal,
  refusalOf,
  type VoteTally,
} from "./rules/quorum.ts";
export { BY_THIRDS, everyPeriod, type RenewalPolicy, SUSPEND_LOOK_MS } from "./rules/renewal.ts";
export { MAX_RESOURCE_BYTES, resourceName } from "./rules/resources.ts";
export { defineScript } from "./rules/script.ts";
export { serverRefusal } from "./rules/server.ts";
export { READ_ONLY_MS } from "./rules/silence.ts";
export {
  DEFAULT_DRIFT_FACTOR,
  driftMs,
  elapsedMs,
  type LeaseEnd,
  leaseEnd,
  OVER,
  remainingMs,
  validityMs,
} from "./rules/validity.ts";
export { batchScript, isReadOnly } from "./scripts/batch.lua.ts";
export { lengthOfLine } from "./scripts/hand-over.lua.ts";
export { quarantineIn } from "./scripts/quarantine.lua.ts";
export { runIdIn } from "./scripts/run-id.lua.ts";
export { LocalLine, type LocalWaiter } from "./waiting/local-line.ts";
export type { PlaceInLine } from "./waiting/place-in-line.ts";

/** Returns the members of a `Redlock` or a `Lock` for the sibling packages. */
export function protocolOf(redlock: Redlock): RedlockProtocol;
export function protocolOf(lock: Lock): Lease;
export function protocolOf(spoken: object): unknown {
  return (spoken as { readonly [PROTOCOL]: unknown })[PROTOCOL];
}

/**
 * Checks that a value is a `Redlock` that siblings can use. The check looks at the members, because a program may
 * contain two copies of this package.
 */
export const redlock: Check<Redlock> = shaped<Redlock>("a Redlock (of @x/redlock-core)", (given) => {
  const { maxTtl } = (given["options"] ?? {}) as { readonly maxTtl?: unknown };
  const isWhole = ["acquire", "tryAcquire", "on"].every((method) => typeof given[method] === "function");
  return typeof maxTtl === "number" && isWhole && PROTOCOL in given;
});
