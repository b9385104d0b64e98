/**
 * Deadlines of rounds and of calls. One timer serves the deadlines of all rounds under way. Nearly all rounds have the
 * same timeout, so their deadlines are due in the order in which the rounds started. A timer per round took a tenth of
 * the client's time for a lock.
 */
import type { Clock } from "./clock.ts";
import { onAbort } from "./signals.ts";

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

export type CallEnd = "timeout" | "signal" | "closed";

/** Deadline of a call: combines its timeout, its signal and the closing of the `Redlock`. */
export class CallDeadline {
  readonly timeoutMs: number;
  readonly signal: AbortSignal | undefined;
  /** Signal that aborts when the `Redlock` is closed. */
  readonly closed: AbortSignal;
  readonly #clock: Clock;
  readonly #endMs: number;
  /** Callbacks of the current waits. Created by the first wait, because most calls never wait. */
  #waiting: Set<() => void> | undefined;
  #cancels: (() => void)[] | undefined;

  constructor(
    clock: Clock,
    given: {
      /** Start of the call by the monotonic clock. Default: now. */
      readonly startMs?: number;
      readonly timeoutMs: number;
      readonly signal?: AbortSignal | undefined;
      readonly closed: AbortSignal;
    },
  ) {
    this.#clock = clock;
    this.#endMs = (given.startMs ?? clock.monotonicMs()) + given.timeoutMs;
    this.timeoutMs = given.timeoutMs;
    this.signal = given.signal;
    this.closed = given.closed;
  }

  /** Reads the clock and returns why the call must end. Undefined if the call may continue. */
  get reason(): CallEnd | undefined {
    return this.reasonAt(this.#clock.monotonicMs());
  }

  reasonAt(nowMs: number): CallEnd | undefined {
    if (this.signal?.aborted === true) return "signal";
    if (this.closed.aborted) return "closed";
    return this.leftAtMs(nowMs) <= 0 ? "timeout" : undefined;
  }

  get leftMs(): number {
    return this.leftAtMs(this.#clock.monotonicMs());
  }

  leftAtMs(nowMs: number): number {
    return this.#endMs - nowMs;
  }

  /** Resolves with the result of `wait`, or with undefined when the deadline is reached. Leaves no callback behind. */
  async until<Result>(wait: Promise<Result>): Promise<Result | undefined> {
    let reached: () => void = () => undefined;
    try {
      return await new Promise<Result | undefined>((resolve, reject) => {
        reached = () => resolve(undefined);
        if (this.reason === undefined) this.#listen(reached);
        else reached();
        wait.then(resolve, reject);
      });
    } finally {
      this.#waiting?.delete(reached);
    }
  }

  /**
   * Calls `start`, and resolves when `start` has called its argument, or when the deadline is reached. Then calls the
   * function that `start` returned.
   */
  async untilCalled(start: (wake: () => void) => () => void): Promise<void> {
    let stop: () => void = () => undefined;
    await this.until(
      new Promise<void>((resolve) => {
        stop = start(resolve);
      }),
    );
    stop();
  }

  dispose(): void {
    for (const cancel of this.#cancels ?? []) cancel();
    this.#cancels = undefined;
    this.#waiting?.clear();
  }

  /** Adds a callback for the deadline. The timer and the listeners exist from the first wait until `dispose`. */
  #listen(reached: () => void): void {
    this.#waiting ??= new Set();
    this.#waiting.add(reached);
    if (this.#cancels !== undefined) return;
    const reach = (): void => {
      for (const run of [...(this.#waiting ?? [])]) run();
    };
    this.#cancels = [onAbort(this.closed, reach)];
    if (this.signal !== undefined) this.#cancels.push(onAbort(this.signal, reach));
    this.#startTimer(reach);
  }

  /** A timer may fire early, and its delay is limited, so the clock decides. */
  #startTimer(reach: () => void): void {
    const { leftMs } = this;
    if (leftMs <= 0) reach();
    else if (Number.isFinite(leftMs)) {
      this.#cancels?.push(this.#clock.schedule(leftMs, () => this.#startTimer(reach), { keepAlive: true }));
    }
  }
}
