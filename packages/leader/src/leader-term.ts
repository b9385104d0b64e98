/** What the holder of a leadership, and the task of `run()`, can ask of its term. */

export interface LeaderTerm extends AsyncDisposable {
  readonly election: string;
  readonly id: string;
  /** The number of the term, which increases strictly over all terms of this election. */
  readonly term: number;
  /** The same number: pass it to every store that can refuse an older one. */
  readonly fencingToken: number;
  readonly acquiredAt: Date;
  /**
   * Aborts with `LeadershipLostError` when the term ends, at the latest at its deadline, or when it is asked to end
   * (its `reason` says which). After a freeze, timers may run before it aborts: ask `isCurrent()` before anything that
   * matters.
   */
  readonly signal: AbortSignal;
  /**
   * Reads the clocks now. True also while the term was asked to end and its task comes to an end: the lease is still
   * held.
   */
  isCurrent(): boolean;
  /** @throws LeadershipLostError if the term is over */
  assertCurrent(): void;
  /** Milliseconds until the deadline, unless a renewal moves it; 0 when the term is over. */
  remaining(): number;
  /**
   * Asks the nodes: is the lock still this term's on a quorum? For rare, expensive side effects.
   * @throws QuorumUnreachableError if too few nodes answer
   */
  verify(): Promise<boolean>;
  /**
   * Changes the value that observers see. Of values that follow each other closely they may see the last only.
   * @throws LeadershipLostError, QuorumUnreachableError (the value may then show later, with the next renewal)
   */
  proclaim(value: string): Promise<void>;
  /**
   * Ends the term and hands the lock to the next candidate. End your work first: the signal aborts, then the lock is
   * free. Safe to repeat. `cooldown`: how long this candidate stays out, in ms; default the election's
   * `cooldown.initial`. In the task of `run()` it asks for the end and resolves at once: the lock is released when the
   * task has ended.
   */
  resign(options?: { readonly cooldown?: number | undefined }): Promise<void>;
}
