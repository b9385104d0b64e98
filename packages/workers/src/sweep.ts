/**
 * Asks for all keys, when a worker starts and now and then: a key whose job was removed is passed on, or forgotten, when somebody asks
 * for it; but nobody may, or only those far back in line. One worker does it for all, at most every `turnMs`. Costs O(busy keys).
 */
import type { Clock } from "@x/redlock-core";

export interface SweepParts {
  readonly clock: Clock;
  readonly turnMs: number;
  readonly askForAll: () => Promise<void>;
  /** Whether no worker has had its turn for so long; if so, it is this one's. */
  readonly takeTurn: (turnMs: number) => Promise<boolean>;
}

export class Sweep {
  readonly #parts: SweepParts;
  #cancel: () => void = () => {};
  #isStopped = false;

  constructor(parts: SweepParts) {
    this.#parts = parts;
  }

  /** Never rejects: what fails is done the next time. */
  async start(): Promise<void> {
    await this.#sweepIf(async () => true);
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancel();
  }

  async #sweepIf(isDue: () => Promise<boolean>): Promise<void> {
    const { clock, turnMs, askForAll, takeTurn } = this.#parts;
    try {
      if (await isDue()) await askForAll();
    } catch {
      // Redis is away; the worker tells that itself.
    }
    if (this.#isStopped) return;
    // Twice as long: where it is not due then, somebody did it in the meantime.
    this.#cancel = clock.schedule(2 * turnMs, () => void this.#sweepIf(async () => await takeTurn(turnMs)));
  }
}
