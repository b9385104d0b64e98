/** Limits the wait for work that was asked to end, to the shortest time that any call has given. */
import type { Clock } from "@x/redlock-core";

/**
 * Symbol by which a scheduler limits the drain of its election's `run()`. The symbol is registered globally, so that
 * two copies of this package in one program work together.
 */
export const LIMIT_DRAIN: unique symbol = Symbol.for("@x/leader/limit-drain");

/** Limits the time for which the current `run()` of an election waits for its task, as `election.stop()` does. */
export function limitDrain(election: object, timeoutMs: number): void {
  (election as { readonly [LIMIT_DRAIN]: (timeoutMs: number) => void })[LIMIT_DRAIN](timeoutMs);
}

/** The drain timeout of `stop()`, which a later call may shorten. */
export class DrainLimit {
  readonly #clock: Clock;
  readonly #listeners = new Set<() => void>();
  #timeoutMs: number | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Sets the limit for each current and later drain. Undefined removes the limit, so that each drain has its own. */
  set(timeoutMs: number | undefined): void {
    this.#timeoutMs = timeoutMs;
    for (const listener of this.#listeners) listener();
  }

  /**
   * Calls `onOver` after the limit that was set, counted from now, or after `otherwiseMs` without a limit. Returns a
   * function that cancels the call.
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
