/** Splits long work on the event loop into slices, so that other work can run in between. */
import type { Clock } from "@x/redlock-core";
import { sleep } from "@x/redlock-core/kit";

/**
 * A tenth of the longest tolerated block of the event loop. One turn of the event loop may contain two slices, the work
 * that starts at their ends, and a garbage collection.
 */
const SLICE_MS = 5;

export class Slice {
  readonly #clock: Clock;
  readonly #lengthMs: number;
  #endMs: number;

  constructor(clock: Clock, lengthMs: number = SLICE_MS) {
    this.#clock = clock;
    this.#lengthMs = lengthMs;
    this.#endMs = clock.monotonicMs() + lengthMs;
  }

  get isOver(): boolean {
    return this.#clock.monotonicMs() >= this.#endMs;
  }

  /** Begins another slice in a later turn of the event loop. Keeps the process alive until then. */
  async another(): Promise<void> {
    await sleep(this.#clock, 0, undefined, { keepAlive: true });
    this.#endMs = this.#clock.monotonicMs() + this.#lengthMs;
  }
}
