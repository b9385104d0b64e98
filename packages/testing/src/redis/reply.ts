/** Replies of the simulated Redis. */

/** A reply inside a script. Null is nil. */
export type Reply = null | number | string | Status | readonly Reply[];

export class Status {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

export class ReplyError extends Error {}
