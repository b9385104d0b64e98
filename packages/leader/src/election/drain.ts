/** Work that was asked to end is waited for by the shortest time that anybody has named since. */
import type { Clock } from "@x/redlock-core";

/**
 * An election has the scheduler limit the drain of its `run()` by this symbol. It is a registered one, so that two
 * copies of this package in one program understand each other.
 */
export const LIMIT_DRAIN: unique symbol = Symbol.for("@x/leader/limit-drain");

/** Limits how long the `run()` of an election that is under way waits for its task, as `election.stop()` does. */
export function limitDrain(election: object, timeoutMs: number): void {
  (election as { readonly [LIMIT_DRAIN]: (timeoutMs: number) => void })[LIMIT_DRAIN](timeoutMs);
}

/** The time that `stop()` gives, which a later call may shorten. */
export class DrainLimit {
  readonly #clock: Clock;
  readonly #listeners = new Set<() => void>();
  #timeoutMs: number | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Sets the time for all that drains now or later; undefined: each has its own. */
  set(timeoutMs: number | undefined): void {
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
