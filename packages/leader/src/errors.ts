/**
 * Pure: the errors of this package. Each decision that a caller can make has one class, with a stable `code` and plain
 * data.
 */

/** The reason why a term ended, or is about to end. */
export type TermEndReason =
  /** No renewal succeeded for `renewDeadline`. */
  | "renew-deadline"
  /** The machine was suspended past the deadline. Only the clocks that run during a suspend saw the deadline pass. */
  | "suspended"
  /**
   * The wall clock was set forward past the deadline. The other clocks did not see the deadline pass. The term still
   * ends, because the process may have been frozen before.
   */
  | "clock-jumped"
  /** A quorum of nodes answered that the lock is gone or held by another process, or a node knows a newer term. */
  | "taken"
  /** An operator released the lock by `forceRelease()` of a `Redlock`. */
  | "forced"
  /**
   * The election's `Redlock` was closed, so the lease is not renewed any more. The lease expires and is not handed
   * over, because work may still be running.
   */
  | "closed"
  /** `term.resign()` was called. */
  | "resigned"
  /** `requestResign()` was called, in any process. */
  | "resign-requested"
  /** `eligible()` returned false or failed. */
  | "ineligible"
  /** `election.stop()` was called, or the signal of `run()` aborted. */
  | "stopping"
  /** The task of `run()` rejected. */
  | "task-failed"
  /** The task of `run()` returned. */
  | "task-ended";

const FAILURES: ReadonlySet<TermEndReason> = new Set([
  "renew-deadline",
  "suspended",
  "clock-jumped",
  "taken",
  "forced",
  "closed",
]);

/** Reports whether the end was requested. Each other end is a failure. */
export function wasAskedFor(reason: TermEndReason): boolean {
  return !FAILURES.has(reason);
}

export type LeaderErrorCode = "LEADERSHIP_LOST" | "ELECTION_STOPPED" | "ELECTION_BUSY" | "UNKNOWN_SCHEDULE";

/**
 * The base of every error that this package rejects with, except `TypeError`, `RangeError` and the caller's
 * `signal.reason`.
 */
export abstract class LeaderError extends Error {
  abstract readonly code: LeaderErrorCode;
  readonly election: string;

  constructor(message: string, election: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.election = election;
  }
}

/**
 * The term is over, or was asked to end. `term.signal` aborts with this error, and `assertCurrent()` throws it.
 */
export class LeadershipLostError extends LeaderError {
  readonly code = "LEADERSHIP_LOST" as const;
  readonly reason: TermEndReason;
  readonly term: number;

  constructor(facts: { readonly election: string; readonly term: number; readonly reason: TermEndReason }) {
    super(`election "${facts.election}": term ${facts.term} is over (${facts.reason})`, facts.election);
    this.reason = facts.reason;
    this.term = facts.term;
  }
}

/** `stop()` was called, so this election never campaigns again. */
export class ElectionStoppedError extends LeaderError {
  readonly code = "ELECTION_STOPPED" as const;

  constructor(election: string) {
    super(`election "${election}" is stopped`, election);
  }
}

/**
 * The election object already campaigns or leads. One object has one campaign or term at a time. Create a second object
 * for a second candidate.
 */
export class ElectionBusyError extends LeaderError {
  readonly code = "ELECTION_BUSY" as const;

  constructor(election: string, state: string) {
    super(`election "${election}" already takes part (${state}): one campaign or term at a time per object`, election);
  }
}

/**
 * No schedule of this name was added to this scheduler. If a call throws this error, the lock nodes know none either.
 */
export class UnknownScheduleError extends LeaderError {
  readonly code = "UNKNOWN_SCHEDULE" as const;
  readonly schedule: string;

  constructor(election: string, schedule: string) {
    super(`election "${election}": no schedule "${schedule}" was added to this scheduler`, election);
    this.schedule = schedule;
  }
}
