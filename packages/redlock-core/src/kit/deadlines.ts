/**
 * The deadlines of the rounds under way share one timer. Nearly all rounds have the same timeout, so their deadlines
 * are due in the order in which the rounds started. One timer per round was a tenth of the client's cost of a lock.
 */
import type { Clock } from "./clock.ts";

const KEEP_ALIVE = { keepAlive: true } as const;

/** The owner of a deadline. */
export interface Timed {
  /** Called when the deadline is reached. */
  onDeadline(): void;
}

/** The deadline of one owner, as an entry of `Deadlines`. Only the list changes the fields. */
export class Deadline {
  readonly owner: Timed;
  dueMs = 0;
  isRunning = false;
  earlier: Deadline | undefined;
  later: Deadline | undefined;

  constructor(owner: Timed) {
    this.owner = owner;
  }
}

export class Deadlines {
  readonly #clock: Clock;
  readonly #timeoutMs: number;
  #first: Deadline | undefined;
  #last: Deadline | undefined;
  #cancel: (() => void) | undefined;
  #isLeaving = false;

  constructor(clock: Clock, timeoutMs: number) {
    this.#clock = clock;
    this.#timeoutMs = timeoutMs;
  }

  /** Calls the owner of `deadline` after the timeout. Keeps the process alive until then. */
  start(deadline: Deadline, nowMs: number = this.#clock.monotonicMs()): void {
    deadline.dueMs = nowMs + this.#timeoutMs;
    deadline.isRunning = true;
    deadline.earlier = this.#last;
    if (this.#last === undefined) this.#first = deadline;
    else this.#last.later = deadline;
    this.#last = deadline;
    this.#arm(nowMs);
  }

  /** Stops a deadline. Does nothing if the deadline is not running. */
  stop(deadline: Deadline): void {
    if (!deadline.isRunning) return;
    deadline.isRunning = false;
    if (deadline.earlier === undefined) this.#first = deadline.later;
    else deadline.earlier.later = deadline.later;
    if (deadline.later === undefined) this.#last = deadline.earlier;
    else deadline.later.earlier = deadline.earlier;
    deadline.earlier = undefined;
    deadline.later = undefined;
    if (this.#first !== undefined || this.#isLeaving || this.#cancel === undefined) return;
    // The next round is likely to start in the same turn, so the timer is cancelled at its end.
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
      due.owner.onDeadline();
    }
    this.#arm(nowMs);
  };

  /**
   * Arms the timer for the first deadline. A round that starts when another round ends must not postpone earlier
   * deadlines.
   */
  #arm(nowMs: number): void {
    if (this.#cancel !== undefined || this.#first === undefined) return;
    this.#cancel = this.#clock.schedule(this.#first.dueMs - nowMs, this.#onTimer, KEEP_ALIVE);
  }
}
