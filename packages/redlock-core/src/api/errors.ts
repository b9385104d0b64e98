/**
 * Pure: what can go wrong. There is one class per decision that a caller can make, each with a stable `code` and
 * plain data.
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
 * The base class of every error that this package rejects with, except `TypeError`, `RangeError` and the caller's
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
 * The resource was held, by somebody else or by another lock of this process, until the time for waiting was over.
 * This is no fault: try later, or skip.
 */
export class LockHeldError extends RedlockError {
  readonly code = "LOCK_HELD" as const;
  /** The resource that was held. */
  readonly resource: string;
  /**
   * The holder: the option `name` of its `Redlock`. Undefined if the holder has no name, if no node knows the name, or
   * if this call did not wait.
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
 * Too few nodes answered, or may vote. Nothing can be decided now, so nobody can have the lock. `votes` has the error
 * of each node.
 */
export class QuorumUnreachableError extends RedlockError {
  /** The code is `NO_LUA` if too many of the servers run no Lua scripts for the others to make a quorum. */
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
  /** The validity ended before an extension succeeded, or nobody asked for one. */
  | "expired"
  /**
   * A quorum answered that another has the lock, or that the lease of a permit is gone. (The key of a lock that was
   * only deleted is set again.)
   */
  | "taken"
  /** An operator called `forceRelease`. */
  | "forced"
  /** The option `maxHold` ended it. */
  | "max-hold"
  /** The `Redlock` was closed, which released it. */
  | "closed"
  /** The handle was released. */
  | "released";

type LossFacts =
  | { readonly reason: LockLossReason; readonly heldMs: number; readonly votes: readonly Vote[] }
  | { readonly reason: "too-short"; readonly leftMs: number; readonly neededMs: number };

/**
 * This handle does not hold the lock, no longer holds it, or does not hold it for long enough. `lock.signal` has this
 * error as its reason.
 */
export class LockLostError extends RedlockError {
  readonly code = "LOCK_LOST" as const;
  /** Why the lock is lost. With `too-short` the lock is held, but for less time than `assertHeld` asked for. */
  readonly reason: LockLossReason | "too-short";
  readonly fencingToken: number;
  /** How the nodes answered the last extension, if it failed; otherwise empty. */
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
 * The data is claimed for another fencing token, or its claim is gone. What was read may be out of date, so stop. See
 * `fence`.
 */
export class FencedOffError extends RedlockError {
  readonly code = "FENCED_OFF" as const;
  /** The key whose claim refused the token. */
  readonly key: string;
  readonly fencingToken: number;
  /**
   * The fencing token that has claimed the key. It is undefined if the claim has expired or was deleted, or if
   * something else is in its place.
   */
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

/** What a `ReentrancyError` is about, where it is not a lock of the `using` around the call. */
export interface ReentrancyFacts {
  /** "lock" by default. */
  readonly what?: string | undefined;
  /** "using()" by default. */
  readonly holder?: string | undefined;
  /** What to do about it. */
  readonly advice?: string | undefined;
}

/**
 * `using` was called for a resource that the code around it holds, so it would wait for itself. The code around it is
 * another `using`, or the processor of a job. This is a mistake of the program, not contention.
 *
 * Pass the outer lock along, or let the call join it by the option `reentrancy`. A call joins only a lock that has all
 * of its resources.
 */
export class ReentrancyError extends RedlockError {
  readonly code = "REENTRANCY" as const;
  /** The resource that the outer call holds. */
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

/** The `Redlock` was closed before or while the call ran. */
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
  /** The name of the holder. */
  readonly holder?: string;
  /** How long ago the votes were given. */
  readonly votesAgeMs?: number;
  /** The resources that a lock of this process holds. */
  readonly heldHere?: readonly string[];
  /** What the nodes were asked, if it was not for a lock. */
  readonly asked?: string;
  /** What is said of a refusal, if it was not of a lock. */
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

/** Lists why nodes gave no vote, one sentence per node. */
function reasonsOf(votes: readonly Vote[]): string[] {
  return votes.flatMap((vote) => {
    const reason = reasonOf(vote);
    return reason === undefined ? [] : [`${vote.node}: ${reason}`];
  });
}

function reasonOf(vote: Vote): string | undefined {
  if (vote.vote === "quarantined") {
    return `in quarantine for ${vote.quarantineLeftMs ?? 0} ms more (new, restarted or without its data)`;
  }
  return vote.vote === "failed" ? (vote.error ?? "no answer") : undefined;
}

function quoted(resources: readonly string[]): string {
  return resources.map((resource) => `"${resource}"`).join(", ");
}
