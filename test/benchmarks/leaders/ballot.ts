/** What every way to elect a leader offers. */
/** The same for all ways. */
export interface Durations {
  readonly leaseMs: number;
  /** Between two renewals, and, for ways that poll, between two looks of a follower. */
  readonly retryPeriodMs: number;
}

export interface Candidate {
  /** Resolves when this candidate leads. One campaign or term at a time. */
  campaign(): Promise<Term>;
}

export interface Term {
  /** Resolves when the program learns that it leads no more, other than by `resign`. */
  readonly lost: Promise<void>;
  /** Resolves when the leadership is given back. */
  resign(): Promise<unknown>;
}

/** The candidate of this process for each election. */
export type Ballot = (election: string) => Candidate;
