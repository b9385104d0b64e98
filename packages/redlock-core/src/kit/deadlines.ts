/**
 * The deadlines of the rounds that are under way share one timer. Nearly all rounds have the same timeout, so their
 * deadlines come in the order of their starts. A timer for each was a tenth of what a lock costs the client.
 */
import type { Clock } from "./clock.ts";

const KEEP_ALIVE = { keepAlive: true } as const;

/** A `Timed` is called at its deadline. The links belong to the list. */
export abstract class Timed {
  dueMs = 0;
  earlier: Timed | undefined;
  later: Timed | undefined;
  isTimed = false;

  abstract onDeadline(): void;
}

export class Deadlines {
  readonly #clock: Clock;
  readonly #timeoutMs: number;
  #first: Timed | undefined;
  #last: Timed | undefined;
  #cancel: (() => void) | undefined;
  #isLeaving = false;

  constructor(clock: Clock, timeoutMs: number) {
    this.#clock = clock;
    this.#timeoutMs = timeoutMs;
  }

  /** Calls `onDeadline` after the timeout; the process is kept alive until then. */
  start(timed: Timed, nowMs: number = this.#clock.monotonicMs()): void {
    timed.dueMs = nowMs + this.#timeoutMs;
    timed.isTimed = true;
    timed.earlier = this.#last;
    if (this.#last === undefined) this.#first = timed;
    else this.#last.later = timed;
    this.#last = timed;
    this.#arm(nowMs);
  }

  stop(timed: Timed): void {
    if (!timed.isTimed) return;
    timed.isTimed = false;
    if (timed.earlier === undefined) this.#first = timed.later;
    else timed.earlier.later = timed.later;
    if (timed.later === undefined) this.#last = timed.earlier;
    else timed.later.earlier = timed.earlier;
    timed.earlier = undefined;
    timed.later = undefined;
    if (this.#first !== undefined || this.#isLeaving || this.#cancel === undefined) return;
    // The next one is likely to come in this very turn.
    this.#isLeaving = true;
    this.#clock.defer(this.#onTurnEnd);
  }

  readonly #onTurnEnd = (): void => {
    this.#isLeaving = false;
    if (this.#first !== undefined) return;
    this.#cancel?.();
    this.#cancel = undefined;
  };

  readonly #onTimer = (): void => {
    this.#cancel = undefined;
    const nowMs = this.#clock.monotonicMs();
    while (this.#first !== undefined && this.#first.dueMs <= nowMs) {
      const due = this.#first;
      this.stop(due);
      due.onDeadline();
    }
    this.#arm(nowMs);
  };

  /**
   * Arms the timer for the first deadline. A round that begins at the end of another must not put off the deadlines
   * that are due before its own.
   */
  #arm(nowMs: number): void {
    if (this.#cancel !== undefined || this.#first === undefined) return;
    this.#cancel = this.#clock.schedule(this.#first.dueMs - nowMs, this.#onTimer, KEEP_ALIVE);
  }
}
