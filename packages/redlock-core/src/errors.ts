/** Pure: what can go wrong, one class per decision that a caller can make, each with a stable `code` and plain data. */
import type { VoteKind } from "./quorum.ts";

/** How one node answered; plain data, safe to log or to send to another process. */
export interface Vote {
  /** Name of the node, e.g. `10.0.0.1:6379`. */
  readonly node: string;
  readonly vote: VoteKind;
  /** Milliseconds from the request to this answer. */
  readonly ms: number;
  /** The resource that was held there. */
  readonly resource?: string;
  /** Milliseconds until the holder's key expires there; -1: it has no expiry, so no lock of ours. */
  readonly holderPttl?: number;
  /** Milliseconds until the node may vote again. */
  readonly quarantineLeft?: number;
  /** Message of the node's or the connection's error. Of a `held` vote: the resource's key is of another type (WRONGTYPE). */
  readonly error?: string;
}

export type RedlockErrorCode = "LOCK_HELD" | "QUORUM_UNREACHABLE" | "NO_LUA" | "LOCK_LOST" | "FENCED_OFF" | "CLOSED";

/** Base of every error that this package rejects with, except `TypeError`, `RangeError` and the caller's `signal.reason`. */
export abstract class RedlockError extends Error {
  abstract readonly code: RedlockErrorCode;
  readonly resources: readonly string[];

  constructor(message: string, resources: readonly string[], options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.resources = resources;
  }
}

/** Somebody else had the resource, or another lock of this process, until the time for waiting was over. Not a fault: try later, or skip. */
export class LockHeldError extends RedlockError {
  readonly code = "LOCK_HELD" as const;
  /** Which of the resources was held. */
  readonly resource: string;
  readonly votes: readonly Vote[];
  readonly attempts: number;

  constructor(facts: AttemptFacts) {
    const held = facts.votes.find((vote) => vote.vote === "held");
    const resource = held?.resource ?? String(facts.resources[0]);
    const isOurs = facts.heldHere?.includes(resource) === true;
    super(
      `lock "${resource}" is held by ${isOurs ? "this process (locks are not reentrant)" : holderOf(held)}: ${describe(facts)}`,
      facts.resources,
    );
    this.resource = resource;
    this.votes = facts.votes;
    this.attempts = facts.attempts;
  }
}

/** Too few nodes answered, or may vote: nobody can have the lock now. `cause` lists the nodes' errors. */
export class QuorumUnreachableError extends RedlockError {
  /** `NO_LUA`: of servers that run no Lua scripts. */
  readonly code: "QUORUM_UNREACHABLE" | "NO_LUA";
  readonly votes: readonly Vote[];
  readonly attempts: number;

  constructor(facts: AttemptFacts) {
    const causes = reasonsOf(facts.votes);
    const reasons = causes.map((cause) => cause.message).join("; ");
    super(
      `lock ${quoted(facts.resources)}: no quorum could be reached: ${describe(facts)}${reasons === "" ? "" : `: ${reasons}`}`,
      facts.resources,
      { cause: new AggregateError(causes, "nodes that gave no vote") },
    );
    const withoutLua = facts.votes.filter(({ error }) => error?.startsWith("NO_LUA")).length;
    this.code = withoutLua > facts.nodeCount - facts.quorum ? "NO_LUA" : "QUORUM_UNREACHABLE";
    this.votes = facts.votes;
    this.attempts = facts.attempts;
  }
}

export type LossReason =
  /** The validity ended before an extension succeeded, or nobody asked for one. */
  | "expired"
  /** A quorum answered that the lock is not ours: another has it, or had it since. (A key that was only deleted is set again.) */
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
  | { readonly reason: LossReason; readonly heldMs: number; readonly votes: readonly Vote[] }
  | { readonly reason: "too-short"; readonly leftMs: number; readonly neededMs: number };

/** The lock is not, or no longer, held by this handle, or not for long enough. The reason of `lock.signal`. */
export class LockLostError extends RedlockError {
  readonly code = "LOCK_LOST" as const;
  /** `too-short`: the lock is held, but for less time than `assertHeld` was to see to. */
  readonly reason: LossReason | "too-short";
  readonly fencingToken: number;
  /** How the nodes answered the last extension, if it failed; else empty. */
  readonly votes: readonly Vote[];

  constructor(facts: LossFacts & { readonly resources: readonly string[]; readonly fencingToken: number }) {
    const what =
      facts.reason === "too-short"
        ? `has ${Math.floor(facts.leftMs)} ms left, ${facts.neededMs} needed`
        : `is lost (${facts.reason}) after ${Math.round(facts.heldMs)} ms, fencing token ${facts.fencingToken}`;
    const votes = facts.reason === "too-short" ? [] : facts.votes;
    const reasons = reasonsOf(votes).map(({ message }) => message);
    const why = reasons.length === 0 ? "" : `; the last extension failed: ${reasons.join("; ")}`;
    super(`lock ${quoted(facts.resources)} ${what}${why}`, facts.resources);
    this.reason = facts.reason;
    this.fencingToken = facts.fencingToken;
    this.votes = votes;
  }
}

/** Data is claimed for another fencing token, or its claim is gone: what was read may be out of date. Stop. See `fence`. */
export class FencedOffError extends RedlockError {
  readonly code = "FENCED_OFF" as const;
  /** Which of the keys. */
  readonly key: string;
  readonly fencingToken: number;
  /** The fencing token that has it; undefined: the claim has expired or was deleted. */
  readonly claimedBy: number | undefined;

  constructor(facts: { readonly key: string; readonly fencingToken: number; readonly claimedBy: string }) {
    const { key, fencingToken, claimedBy } = facts;
    const by = claimedBy === "" ? "no fencing token any more" : `fencing token ${claimedBy}`;
    super(`"${key}" is claimed by ${by}, ours is ${fencingToken}`, [key]);
    this.key = key;
    this.fencingToken = fencingToken;
    this.claimedBy = claimedBy === "" ? undefined : Number(claimedBy);
  }
}

/** The `Redlock` was closed before or while the call ran. */
export class RedlockClosedError extends RedlockError {
  readonly code = "CLOSED" as const;

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
  /** Those of the resources that a lock of this process has. */
  readonly heldHere?: readonly string[];
}

function holderOf(held: Vote | undefined): string {
  if (held?.error !== undefined) return `a key of another type: another program's lock or data (${held.error})`;
  return held?.holderPttl === -1 ? "a key without expiry, which no lock has: another program's data?" : "another";
}

function describe(facts: AttemptFacts): string {
  if (facts.attempts === 0 && facts.votes.length === 0) return `waited ${Math.round(facts.elapsedMs)} ms`;
  const granted = facts.votes.filter((vote) => vote.vote === "granted").length;
  const attempts = facts.attempts === 1 ? "1 attempt" : `${facts.attempts} attempts`;
  return `${granted} of ${facts.nodeCount} nodes granted, ${facts.quorum} needed (${attempts}, ${Math.round(facts.elapsedMs)} ms)`;
}

/** Why nodes gave no vote, one error per node. */
function reasonsOf(votes: readonly Vote[]): Error[] {
  return votes.flatMap((vote) => {
    const reason = reasonOf(vote);
    return reason === undefined ? [] : [new Error(`${vote.node}: ${reason}`)];
  });
}

function reasonOf(vote: Vote): string | undefined {
  if (vote.vote === "quarantined") {
    return `in quarantine for ${vote.quarantineLeft ?? 0} ms more (new, restarted or without its data)`;
  }
  return vote.vote === "failed" ? (vote.error ?? "no answer") : undefined;
}

function quoted(resources: readonly string[]): string {
  return resources.map((resource) => `"${resource}"`).join(", ");
}
