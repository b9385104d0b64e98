/** Work that was asked to end is waited for by the shortest time that anybody has named since. */
import type { Clock } from "@x/redlock-core";

/** The time that `stop()` gives, which a later call may shorten. */
export class DrainLimit {
  readonly #clock: Clock;
  readonly #listeners = new Set<() => void>();
  #timeoutMs: number | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  set(timeoutMs: number): void {
    this.#timeoutMs = timeoutMs;
    for (const listener of this.#listeners) listener();
  }

  /**
   * Calls `onOver` when the time is over from now on: the one that was set, else `otherwiseMs`. Returns a function that
   * ends that.
   */
  start(otherwiseMs: number, onOver: () => void): () => void {
    let endMs = Number.POSITIVE_INFINITY;
    let cancelTimer: () => void = () => undefined;
    const arm = (): void => {
      const timeoutMs = this.#timeoutMs ?? otherwiseMs;
      const nextMs = this.#clock.monotonicMs() + timeoutMs;
      if (nextMs >= endMs) return;
      endMs = nextMs;
      cancelTimer();
      cancelTimer = this.#clock.schedule(timeoutMs, onOver);
    };
    this.#listeners.add(arm);
    arm();
    return () => {
      this.#listeners.delete(arm);
      cancelTimer();
    };
  }
}
