/**
 * Asks for all keys now and then. A key is passed on, or forgotten, when somebody asks for it; but where the last jobs of a key were
 * removed while one of them had it, nobody ever may. Costs O(busy keys).
 */
import type { Clock } from "@x/redlock-core";

const EVERY_MS = 3_600_000;

export class Sweep {
  readonly #clock: Clock;
  readonly #askForAll: () => Promise<void>;
  #cancel: () => void = () => {};
  #isStopped = false;

  constructor(clock: Clock, askForAll: () => Promise<void>) {
    this.#clock = clock;
    this.#askForAll = askForAll;
  }

  /** Now, and then every hour. Never rejects: what fails is done the next time. */
  async start(): Promise<void> {
    try {
      await this.#askForAll();
    } catch {
      // Redis is away; the worker tells that itself.
    }
    if (!this.#isStopped) this.#cancel = this.#clock.schedule(EVERY_MS, () => void this.start());
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancel();
  }
}
