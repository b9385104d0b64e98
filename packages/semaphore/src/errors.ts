/** Pure: the errors of latches. All other calls of this package reject with the errors of `@x/redlock-core`. */

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

/** The latch is not set: no process has set it, its `keepFor` is over, or the node has lost its data. Set it again. */
export class LatchNotSetError extends LatchError {
  readonly code = "LATCH_NOT_SET" as const;

  constructor(latch: string) {
    super(`latch "${latch}" is not set: nobody set it, its keepFor is over, or the node lost its data`, latch);
  }
}

/** The latch did not open in time. */
export class LatchClosedError extends LatchError {
  readonly code = "LATCH_CLOSED" as const;
  /** Number of count-downs left. Undefined if the latch was not set. */
  readonly left: number | undefined;

  constructor(latch: string, facts: { readonly left: number | undefined; readonly waitedMs: number }) {
    const what = facts.left === undefined ? "is not set" : `is closed, ${facts.left} to count down`;
    super(`latch "${latch}" ${what} (waited ${Math.round(facts.waitedMs)} ms)`, latch);
    this.left = facts.left;
  }
}
