/** Long work on the event loop is done in slices, so that others are not held up. */
import type { Clock } from "@x/redlock-core";
import { sleep } from "@x/redlock-core/protocol";

/**
 * A slice is a tenth of what a block of the loop may take. Two slices, what is begun at their ends, and a collection of
 * garbage meet in one turn of the event loop.
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

  /** Begins another slice, in a later turn of the event loop. The process is kept alive until then. */
  async another(): Promise<void> {
    await sleep(this.#clock, 0, undefined, { keepAlive: true });
    this.#endMs = this.#clock.monotonicMs() + this.#lengthMs;
  }
}
