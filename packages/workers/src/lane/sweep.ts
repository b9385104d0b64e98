/**
 * A worker asks for all keys when it starts, and now and then.
 *
 * A key whose job was removed is passed on, or forgotten, when somebody asks for it. But nobody may, or only those far
 * back in line. One worker does it for all, at most every `turnMs`. It costs O(busy keys).
 */
import type { Clock } from "@x/redlock-core";
import { Regularly } from "./regularly.ts";

export interface SweepParts {
  readonly clock: Clock;
  readonly turnMs: number;
  readonly askForAll: () => Promise<void>;
  /** Resolves true if no worker has had its turn for so long; then it is this one's. */
  readonly takeTurn: (turnMs: number) => Promise<boolean>;
}

export class Sweep {
  readonly #parts: SweepParts;
  readonly #loop: Regularly;
  #hasBegun = false;

  constructor(parts: SweepParts) {
    this.#parts = parts;
    // Twice as long: where it is not due then, somebody did it in the meantime.
    this.#loop = new Regularly(parts.clock, 2 * parts.turnMs, async () => await this.#sweep());
  }

  start(): void {
    void this.#loop.start();
  }

  stop(): void {
    this.#loop.stop();
  }

  async #sweep(): Promise<void> {
    const { turnMs, askForAll, takeTurn } = this.#parts;
    const isFirst = !this.#hasBegun;
    this.#hasBegun = true;
    if (isFirst || (await takeTurn(turnMs))) await askForAll();
  }
}
