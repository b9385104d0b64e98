/**
 * One timer serves the deadlines of all rounds under way. Nearly all rounds have the same timeout, so their deadlines
 * are due in the order in which the rounds started. A timer per round took a tenth of the client's time for a lock.
 */
import type { Clock } from "./clock.ts";

const KEEP_ALIVE = { keepAlive: true } as const;

/** The owner of a deadline. */
export interface Timed {
  /** Called when the deadline is reached. */
  onDeadline(): void;
}

/** The deadline of one owner, as an entry of `Deadlines`, which alone changes the fields. */
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
  #isStopPlanned = false;

  constructor(clock: Clock, timeoutMs: number) {
    this.#clock = clock;
    this.#timeoutMs = timeoutMs;
  }

  /** Calls the owner of `deadline` after the timeout. The running deadline keeps the process alive. */
  start(deadline: Deadline, nowMs: number = this.#clock.monotonicMs()): void {
    deadline.dueMs = nowMs + this.#timeoutMs;
    deadline.isRunning = true;
    deadline.earlier = this.#last;
    if (this.#last === undefined) this.#first = deadline;
    else this.#last.later = deadline;
    this.#last = deadline;
    this.#startTimer(nowMs);
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
    if (this.#first !== undefined || this.#isStopPlanned || this.#cancel === undefined) return;
    // The next round probably starts in the same turn, so the timer is not cancelled until the end of the turn.
    this.#isStopPlanned = true;
    this.#clock.defer(this.#onTurnEnd);
  }

  readonly #onTurnEnd = (): void => {
    this.#isStopPlanned = false;
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
    this.#startTimer(nowMs);
  };

  /**
   * Starts the timer for the first deadline. A running timer is kept, so that a new deadline does not postpone an
   * earlier one.
   */
  #startTimer(nowMs: number): void {
    if (this.#cancel !== undefined || this.#first === undefined) return;
    this.#cancel = this.#clock.schedule(this.#first.dueMs - nowMs, this.#onTimer, KEEP_ALIVE);
  }
}
