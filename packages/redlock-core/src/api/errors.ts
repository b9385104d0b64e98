/**
 * Pure: the errors of this package. There is one class per decision that a caller can make, each with a stable `code`
 * and plain data.
 */
import type { Vote } from "../rules/quorum.ts";

export type RedlockErrorCode =
  | "LOCK_HELD"
  | "QUORUM_UNREACHABLE"
  | "NO_LUA"
  | "LOCK_LOST"
  | "FENCED_OFF"
  | "REENTRANCY"
  | "REDLOCK_CLOSED";

/**
 * Base class of every error that this package rejects with, except `TypeError`, `RangeError` and the caller's
 * `signal.reason`.
 */
export abstract class RedlockError extends Error {
  abstract readonly code: RedlockErrorCode;
  readonly resources: readonly string[];

  constructor(message: string, resources: readonly string[]) {
    super(message);
    this.name = new.target.name;
    this.resources = resources;
  }
}

/**
 * The resource was held by another process, or by another lock of this process, until the call's waiting time was over.
 * Contention is not a fault: try later, or skip the work.
 */
export class LockHeldError extends RedlockError {
  readonly code = "LOCK_HELD" as const;
  /** Name of the resource that was held. */
  readonly resource: string;
  /**
   * Option `name` of the holder's `Redlock`. Undefined if the holder has no name, if no node knows the name, or if this
   * call did not wait.
   */
  readonly holder: string | undefined;
  readonly votes: readonly Vote[];
  readonly attempts: number;

  constructor(facts: AttemptFacts) {
    const held = facts.votes.find((vote) => vote.vote === "held");
    const resource = held?.resource ?? String(facts.resources[0]);
    const isOurs = facts.heldHere?.includes(resource) === true;
    super(
      facts.refused ??
        `lock "${resource}" is held by ${isOurs ? "this process (locks are not reentrant)" : holderOf(held, facts)}: ${describe(facts)}`,
      facts.resources,
    );
    this.resource = resource;
    this.holder = facts.holder;
    this.votes = facts.votes;
    this.attempts = facts.attempts;
  }
}

/**
 * Too few nodes answered, or too few of the nodes may vote, so no process can acquire the lock now. `votes` contains
 * the error of each node.
 */
export class QuorumUnreachableError extends RedlockError {
  /** `NO_LUA` if the servers that can run Lua scripts are fewer than a quorum. */
  readonly code: "QUORUM_UNREACHABLE" | "NO_LUA";
  readonly votes: readonly Vote[];
  readonly attempts: number;

  constructor(facts: AttemptFacts) {
    const reasons = reasonsOf(facts.votes).join("; ");
    super(
      `${facts.asked ?? `lock ${quoted(facts.resources)}`}: no quorum could be reached: ${describe(facts)}${reasons === "" ? "" : `: ${reasons}`}`,
      facts.resources,
    );
    const withoutLua = facts.votes.filter(({ error }) => error?.startsWith("NO_LUA")).length;
    this.code = withoutLua > facts.nodeCount - facts.quorum ? "NO_LUA" : "QUORUM_UNREACHABLE";
    this.votes = facts.votes;
    this.attempts = facts.attempts;
  }
}

export type LockLossReason =
  /** The validity ended without a successful extension. */
  | "expired"
  /**
   * A quorum answered that another holder has the lock, or that the lease of a permit is gone. (If the key of a lock
   * was only deleted, the extension sets the key again.)
   */
  | "taken"
  /** An operator called `forceRelease`. */
  | "forced"
  /** The lock was held for as long as the option `maxHold` allows. */
  | "max-hold"
  /** The `Redlock` was closed, which released the lock. */
  | "closed"
  /** The holder released the lock. */
  | "released";

type LossFacts =
  | { readonly reason: LockLossReason; readonly heldMs: number; readonly votes: readonly Vote[] }
  | { readonly reason: "too-short"; readonly leftMs: number; readonly neededMs: number };

/**
 * This handle does not hold the lock, no longer holds it, or holds it for too short a time. `lock.signal` has this
 * error as its reason.
 */
export class LockLostError extends RedlockError {
  readonly code = "LOCK_LOST" as const;
  /** Why the lock is lost. With `too-short` the lock is still held, but for less time than `assertHeld` demanded. */
  readonly reason: LockLossReason | "too-short";
  readonly fencingToken: number;
  /** Answers of the nodes to the last extension, if it failed. Empty otherwise. */
  readonly votes: readonly Vote[];

  constructor(facts: LossFacts & { readonly resources: readonly string[]; readonly fencingToken: number }) {
    const what =
      facts.reason === "too-short"
        ? `has ${Math.floor(facts.leftMs)} ms left, ${facts.neededMs} needed`
        : `is lost (${facts.reason}) after ${Math.round(facts.heldMs)} ms, fencing token ${facts.fencingToken}`;
    const votes = facts.reason === "too-short" ? [] : facts.votes;
    const reasons = reasonsOf(votes);
    const why = reasons.length === 0 ? "" : `; the last extension failed: ${reasons.join("; ")}`;
    super(`lock ${quoted(facts.resources)} ${what}${why}`, facts.resources);
    this.reason = facts.reason;
    this.fencingToken = facts.fencingToken;
    this.votes = votes;
  }
}

/**
 * The data is claimed by another fencing token, or the claim is gone. Data that was read before may be out of date, so
 * the work must stop. See `fence`.
 */
export class FencedOffError extends RedlockError {
  readonly code = "FENCED_OFF" as const;
  /** Key whose claim message the token. */
  readonly key: string;
  readonly fencingToken: number;
  /** Fencing token that has claimed the key. Undefined if the claim has expired, was deleted, or is not a number. */
  readonly claimedBy: number | undefined;

  constructor(facts: { readonly key: string; readonly fencingToken: number; readonly claimedBy: string }) {
    const { key, fencingToken, claimedBy } = facts;
    const by = claimedBy === "" ? "no fencing token any more" : `fencing token ${claimedBy}`;
    super(`"${key}" is claimed by ${by}, ours is ${fencingToken}`, [key]);
    this.key = key;
    this.fencingToken = fencingToken;
    this.claimedBy = /^\d+$/.test(claimedBy) ? Number(claimedBy) : undefined;
  }
}

/** Texts of a `ReentrancyError` that is not about a lock of the surrounding `using`. */
export interface ReentrancyFacts {
  /** Kind of the resource. Default "lock". */
  readonly what?: string | undefined;
  /** The surrounding call. Default "using()". */
  readonly holder?: string | undefined;
  /** Advice for the developer. */
  readonly advice?: string | undefined;
}

/**
 * `using` was called for a resource that the surrounding code holds, so the call would wait for itself. The surrounding
 * code is another `using`, or the processor of a job. This error is a mistake in the program, not contention.
 *
 * Pass the outer lock to the inner code, or set the option `reentrancy` to let the call join the outer lock. A call can
 * only join a lock that has all resources of the call.
 */
export class ReentrancyError extends RedlockError {
  readonly code = "REENTRANCY" as const;
  /** Resource that the outer call holds. */
  readonly resource: string;

  constructor(resources: readonly string[], held: readonly string[], facts: ReentrancyFacts = {}) {
    const { what = "lock", holder = "using()" } = facts;
    const resource = resources.find((name) => held.includes(name)) ?? String(resources[0]);
    const missing = resources.filter((name) => !held.includes(name));
    const advice =
      missing.length === 0
        ? 'pass its lock along, or set reentrancy to "join"'
        : `it does not hold ${quoted(missing)}, so lock all of them in the outer call`;
    super(
      `${what} "${resource}" is held by the ${holder} around this one, which would wait for itself: ${facts.advice ?? advice}`,
      resources,
    );
    this.resource = resource;
  }
}

/** The `Redlock` was closed before or during the call. */
export class RedlockClosedError extends RedlockError {
  readonly code = "REDLOCK_CLOSED" as const;

  constructor(resources: readonly string[]) {
    super(`lock ${quoted(resources)}: this Redlock is closed`, resources);
  }
}

export interface AttemptFacts {
  readonly resources: readonly string[];
  readonly votes: readonly Vote[];
  readonly nodeCount: number;
  readonly quorum: number;
  readonly attempts: number;
  readonly elapsedMs: number;
  /** Holder shown in the message. */
  readonly holder?: string;
  /** Milliseconds since the votes were given. */
  readonly votesAgeMs?: number;
  /** Resources that locks of this process hold. */
  readonly heldHere?: readonly string[];
  /** Subject of the message if the request was not for a lock. */
  readonly asked?: string;
  /** Whole message of a refusal that was not about a lock. */
  readonly refused?: string;
}

function holderOf(held: Vote | undefined, { holder = "another", votesAgeMs = 0 }: AttemptFacts): string {
  if (held?.error !== undefined) return `a key of another type: another program's lock or data (${held.error})`;
  if (held?.holderTtlMs === -1) return "a key without expiry, which no lock has: another program's data?";
  const leftMs = (held?.holderTtlMs ?? 0) - votesAgeMs;
  return leftMs > 0 ? `${holder}, for ${durationOf(leftMs)} more unless extended` : holder;
}

function durationOf(ms: number): string {
  return ms < 1_000 ? `${Math.ceil(ms)} ms` : `${(ms / 1_000).toFixed(1)} s`;
}

function describe(facts: AttemptFacts): string {
  if (facts.attempts === 0 && facts.votes.length === 0) return `waited ${Math.round(facts.elapsedMs)} ms`;
  const granted = facts.votes.filter((vote) => vote.vote === "granted").length;
  const attempts = facts.attempts === 1 ? "1 attempt" : `${facts.attempts} attempts`;
  return `${granted} of ${facts.nodeCount} nodes ${facts.asked === undefined ? "granted" : "answered"}, ${facts.quorum} needed (${attempts}, ${Math.round(facts.elapsedMs)} ms)`;
}

/** Returns the reasons of the nodes that failed or must not vote, one text per node. */
function reasonsOf(votes: readonly Vote[]): string[] {
  return votes.flatMap((vote) => {
    const reason = reasonOf(vote);
    return reason === undefined ? [] : [`${vote.node}: ${reason}`];
  });
}

function reasonOf(vote: Vote): string | undefined {
  if (vote.vote === "quarantined") return quarantineReason(vote.quarantineLeftMs ?? 0);
  return vote.vote === "failed" ? (vote.error ?? "no answer") : undefined;
}

export function quarantineReason(leftMs: number): string {
  return `in quarantine for ${leftMs} ms more (new, restarted or without its data)`;
}

function quoted(resources: readonly string[]): string {
  return resources.map((resource) => `"${resource}"`).join(", ");
}
