/**
 * Asks for all keys, when a worker starts and now and then: a key whose job was removed is passed on, or forgotten, when somebody asks
 * for it; but nobody may, or only those far back in line. One worker does it for all, at most every `turnMs`. Costs O(busy keys).
 */
import type { Clock } from "@x/redlock-core";
import { Regularly } from "./regularly.ts";

export interface SweepParts {
  readonly clock: Clock;
  readonly turnMs: number;
  readonly askForAll: () => Promise<void>;
  /** Whether no worker has had its turn for so long; if so, it is this one's. */
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
