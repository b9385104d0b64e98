/** Pure: what can go wrong with a latch. Everything else rejects with the errors of `@x/redlock-core`. */

export type LatchErrorCode = "LATCH_NOT_SET" | "LATCH_CLOSED";

/** The base class of a latch's errors. */
export abstract class LatchError extends Error {
  abstract readonly code: LatchErrorCode;
  /** The name of the latch. */
  readonly latch: string;

  constructor(message: string, latch: string) {
    super(message);
    this.name = new.target.name;
    this.latch = latch;
  }
}

/**
 * There is no such latch: nobody has set it, its time is over, or the node has lost its data. Whoever set it sets it
 * again.
 */
export class LatchNotSetError extends LatchError {
  readonly code = "LATCH_NOT_SET" as const;

  constructor(latch: string) {
    super(`latch "${latch}" is not set: nobody set it, its keepFor is over, or the node lost its data`, latch);
  }
}

/** The latch did not open in time. */
export class LatchClosedError extends LatchError {
  readonly code = "LATCH_CLOSED" as const;
  /** What was left to count down; undefined if the latch was not set. */
  readonly left: number | undefined;

  constructor(latch: string, facts: { readonly left: number | undefined; readonly waitedMs: number }) {
    const what = facts.left === undefined ? "is not set" : `is closed, ${facts.left} to count down`;
    super(`latch "${latch}" ${what} (waited ${Math.round(facts.waitedMs)} ms)`, latch);
    this.left = facts.left;
  }
}
