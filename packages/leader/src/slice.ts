/** Long work on the event loop, in slices, so that others have their turn in between. */
import type { Clock } from "@x/redlock-core";
import { sleep } from "./signals.ts";

/** A fifth of what a block of the loop may take: what is begun in a slice is finished after its end. */
const SLICE_MS = 10;

export class Slice {
  readonly #clock: Clock;
  #endMs: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#endMs = clock.monotonicMs() + SLICE_MS;
  }

  get isOver(): boolean {
    return this.#clock.monotonicMs() >= this.#endMs;
  }

  /** Begins another slice, in a later turn of the event loop. */
  async another(): Promise<void> {
    await sleep(this.#clock, 0);
    this.#endMs = this.#clock.monotonicMs() + SLICE_MS;
  }
}
