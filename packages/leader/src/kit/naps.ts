import type { Clock } from "@x/redlock-core";
import { linkSignals, sleep } from "@x/redlock-core/kit";

/** Pauses of a loop. `wake()` ends a pause early, even before the pause begins. */
export class Naps {
  readonly #clock: Clock;
  #woken = new AbortController();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Ends the current nap. Without a current nap, ends the next nap. */
  wake(): void {
    this.#woken.abort();
  }

  /** Waits for `ms`, or until `wake()` is called or the signal aborts. */
  async nap(ms: number, signal: AbortSignal): Promise<void> {
    const linked = linkSignals(signal, this.#woken.signal);
    await sleep(this.#clock, ms, linked.signal).catch(() => undefined);
    linked.unlink();
    this.#woken = new AbortController();
  }
}
