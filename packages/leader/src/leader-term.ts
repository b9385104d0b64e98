/** The term of a leader, as the owner of the term and the task of `run()` use it. */

export interface LeaderTerm extends AsyncDisposable {
  readonly election: string;
  readonly id: string;
  /** The number of the term, which increases strictly over all terms of this election. */
  readonly term: number;
  /** The number of the term. Pass the number to every store that can refuse a smaller number. */
  readonly fencingToken: number;
  readonly acquiredAt: Date;
  /**
   * Aborts with `LeadershipLostError` when the term ends, at the latest at its deadline, or when the term is asked to
   * end (`reason` says why). After a freeze, other timers may run before the signal aborts: call `isCurrent()` before
   * each important effect.
   */
  readonly signal: AbortSignal;
  /**
   * Reads the clocks now. Also true while the task of a term that was asked to end has not ended, because the lease is
   * still held.
   */
  isCurrent(): boolean;
  /** @throws LeadershipLostError if the term is over */
  assertCurrent(): void;
  /** Milliseconds until the deadline, unless a renewal moves it; 0 when the term is over. */
  remaining(): number;
  /**
   * Asks the nodes whether a quorum still holds the lock for this term. Resolves with false if not, or if the term is
   * over. For rare, expensive side effects.
   * @throws QuorumUnreachableError if too few nodes answer
   */
  verify(): Promise<boolean>;
  /**
   * Changes the value that observers see. If several values follow each other closely, observers may see only the last.
   * @throws LeadershipLostError, QuorumUnreachableError (observers may then see the value later, with the next renewal)
   */
  proclaim(value: string): Promise<void>;
  /**
   * Ends the term and hands the lock to the next candidate. End your work first: the signal aborts, then the lock is
   * free. Safe to repeat. `cooldown` is the pause of this candidate in ms. Default: `cooldown.initial` of the election.
   * In the task of `run()`, the call only asks for the end and resolves immediately. The lock is released when the task
   * has ended.
   */
  resign(options?: { readonly cooldown?: number | undefined }): Promise<void>;
}
