/** One change of the register, and its effects after a quorum has confirmed the change. */

/** The greatest number of claims in one step. Each claim blocks a node for about 5 µs. */
export const MOST_CLAIMS = 500;

export class Step {
  /** Lines by field. The line "" removes its field. */
  readonly changes: Map<string, string> = new Map();
  /** Effects of the step. */
  readonly confirmed: (() => void)[] = [];
  /** Orders that are only removed from the mailboxes. */
  readonly expired: string[] = [];
  /** Number of triggers in this step, by schedule. Triggers begin or wait before the claims of the same step. */
  readonly taken: Map<string, number> = new Map();
}
