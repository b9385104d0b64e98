/** Does something now, and again so long after each end, until it is stopped. What fails is done the next time. */
import type { Clock } from "@x/redlock-core";

export class Regularly {
  readonly #clock: Clock;
  readonly #everyMs: number;
  readonly #work: () => Promise<void>;
  #cancel: () => void = () => {};
  #isStopped = false;

  constructor(clock: Clock, everyMs: number, work: () => Promise<void>) {
    this.#clock = clock;
    this.#everyMs = everyMs;
    this.#work = work;
  }

  /** Never rejects. */
  async start(): Promise<void> {
    try {
      await this.#work();
    } catch {
      // Redis is away; the worker tells that itself.
    }
    if (!this.#isStopped) this.#cancel = this.#clock.schedule(this.#everyMs, () => void this.start());
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancel();
  }
}
