/** Deadline of a call: combines its timeout, its signal and the closing of the `Redlock`. */

import type { Clock } from "../kit/clock.ts";
import { onAbort } from "../kit/signals.ts";

export type CallEnd = "timeout" | "signal" | "closed";

export class CallDeadline {
  readonly #clock: Clock;
  readonly #endMs: number;
  readonly #signal: AbortSignal | undefined;
  readonly #closed: AbortSignal;
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
    this.#signal = given.signal;
    this.#closed = given.closed;
  }

  /** Reads the clock and returns why the call must end. Undefined if the call may continue. */
  get reason(): CallEnd | undefined {
    return this.reasonAt(this.#clock.monotonicMs());
  }

  reasonAt(nowMs: number): CallEnd | undefined {
    if (this.#signal?.aborted === true) return "signal";
    if (this.#closed.aborted) return "closed";
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
    this.#cancels = [onAbort(this.#closed, reach)];
    if (this.#signal !== undefined) this.#cancels.push(onAbort(this.#signal, reach));
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
