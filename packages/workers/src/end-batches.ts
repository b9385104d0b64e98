/**
 * Group commit: ends of jobs travel together. One is sent at once if no answer is awaited, and those that come meanwhile go together
 * when it is there: a lone end waits for nothing, and the busier the worker, the less each end costs.
 *
 * Guaranteed: an end is answered for itself. A command that fails as a whole fails all its ends, as it would have failed each alone.
 */

/** More at once, and the server waits while the client works, and the reverse; and no other client is served for longer than a millisecond. */
const LARGEST_BATCH = 16;

interface Waiting<End> {
  readonly end: End;
  readonly resolve: (reply: unknown) => void;
  readonly reject: (error: Error) => void;
}

export class EndBatches<End> {
  readonly #send: (ends: readonly End[]) => Promise<readonly unknown[]>;
  #waiting: Waiting<End>[] = [];
  #underWay = 0;

  /** `send` resolves the answers, in the order of the ends; an `Error` among them is that end's failure. */
  constructor(send: (ends: readonly End[]) => Promise<readonly unknown[]>) {
    this.#send = send;
  }

  add(end: End): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ end, resolve, reject });
      if (this.#underWay === 0 || this.#waiting.length === LARGEST_BATCH) this.#sendWaiting();
    });
  }

  #sendWaiting(): void {
    const batch = this.#waiting;
    if (batch.length === 0) return;
    this.#waiting = [];
    this.#underWay += 1;
    this.#send(batch.map(({ end }) => end)).then(
      (replies) => {
        this.#answered();
        for (const [index, { resolve, reject }] of batch.entries()) {
          const reply = replies[index];
          if (reply instanceof Error) reject(reply);
          else resolve(reply);
        }
      },
      (error: Error) => {
        this.#answered();
        for (const { reject } of batch) reject(error);
      },
    );
  }

  #answered(): void {
    this.#underWay -= 1;
    this.#sendWaiting();
  }
}
