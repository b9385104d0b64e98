/** The interface of every way to elect a leader. */
/** Durations that are the same for all ways. */
export interface Durations {
  readonly leaseMs: number;
  /** The time between two renewals, and between two requests of a follower that polls. */
  readonly retryPeriodMs: number;
}

export interface Candidate {
  /** Resolves when this candidate leads. A candidate has one campaign or term at a time. */
  campaign(): Promise<Term>;
}

export interface Term {
  /** Resolves when the program learns that its leadership has ended, except by `resign`. */
  readonly lost: Promise<void>;
  /** Resolves when the leadership is released. */
  resign(): Promise<unknown>;
}

/** Returns the candidate of this process for an election. */
export type Ballot = (election: string) => Candidate;
