/**
 * Pure: what can go wrong. There is one class per decision that a caller can make, with a stable `code` and plain data.
 */

/** The reason why a term ended, or is about to end. */
export type TermEndReason =
  /** No renewal succeeded for `renewDeadline`. */
  | "renew-deadline"
  /** No renewal succeeded for `renewDeadline`, as only the clocks saw that run through a suspend: the machine slept. */
  | "suspended"
  /**
   * No renewal succeeded for `renewDeadline`, as only the wall clock saw, which was set forward. It is believed,
   * because the process may have stood still before.
   */
  | "clock-jumped"
  /** A quorum said that the lock is another's or gone, or a newer term was seen. */
  | "taken"
  /** An operator took the lock away, by `forceRelease()` of a `Redlock`. */
  | "forced"
  /**
   * The election's `Redlock` was closed, so nothing renews the lease any more. The lease runs out and is not handed
   * over, because work may still go on.
   */
  | "closed"
  /** `term.resign()` was called. */
  | "resigned"
  /** Somebody called `requestResign()`. */
  | "resign-requested"
  /** `eligible()` said no. */
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

/** Tells whether somebody asked for the end; every other end is a failure. */
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
 * The term is over, or was asked to end. It is the reason of `term.signal`, and what `assertCurrent()` throws.
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

/** `stop()` was called, so this election does not campaign any more. */
export class ElectionStoppedError extends LeaderError {
  readonly code = "ELECTION_STOPPED" as const;

  constructor(election: string) {
    super(`election "${election}" is stopped`, election);
  }
}

/**
 * The election object already takes part: it campaigns, or leads, once at a time. Make a second object for a second
 * candidate.
 */
export class ElectionBusyError extends LeaderError {
  readonly code = "ELECTION_BUSY" as const;

  constructor(election: string, state: string) {
    super(`election "${election}" already takes part (${state}): one campaign or term at a time per object`, election);
  }
}

/** No schedule of this name was added to this scheduler. If a call throws this, the lock nodes know none, either. */
export class UnknownScheduleError extends LeaderError {
  readonly code = "UNKNOWN_SCHEDULE" as const;
  readonly schedule: string;

  constructor(election: string, schedule: string) {
    super(`election "${election}": no schedule "${schedule}" was added to this scheduler`, election);
    this.schedule = schedule;
  }
}
