import type { Clock } from "@x/redlock-core";
import { linkSignals, sleep } from "@x/redlock-core/protocol";

/** The pauses of a loop, which others may cut short, also before they begin. */
export class Naps {
  readonly #clock: Clock;
  #woken = new AbortController();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Ends the nap that is under way, or else the next one. */
  wake(): void {
    this.#woken.abort();
  }

  /** Waits for `ms`, but not longer than until `wake()` is called or the signal aborts. */
  async nap(ms: number, signal: AbortSignal): Promise<void> {
    const linked = linkSignals(signal, this.#woken.signal);
    await sleep(this.#clock, ms, linked.signal).catch(() => undefined);
    linked.unlink();
    this.#woken = new AbortController();
  }
}
