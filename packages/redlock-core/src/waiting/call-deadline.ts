/**
 * The deadline of a call is when it must end. It makes the timeout, the caller's signal and the closing of the
 * `Redlock` one thing to wait for.
 */

import type { Clock } from "../kit/clock.ts";
import { onAbort } from "../kit/signals.ts";

export type CallEnd = "timeout" | "signal" | "closed";

export class CallDeadline {
  readonly #clock: Clock;
  readonly #endMs: number;
  readonly #signal: AbortSignal | undefined;
  readonly #closed: AbortSignal;
  /** The callbacks of the waits. The first wait makes the set, because most calls never wait. */
  #waiting: Set<() => void> | undefined;
  #disarm: (() => void)[] | undefined;

  constructor(
    clock: Clock,
    given: {
      /** When the call began. Default: now. */
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

  /** Returns why the call must end, or undefined while it may go on. It reads the clock. */
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

  /**
   * Resolves when `wait` does, or when the deadline is reached. Nothing of the wait stays behind in the deadline
   * afterwards, however many waits there are.
   */
  async until<Result>(wait: Promise<Result>): Promise<Result | undefined> {
    let stop: () => void = () => undefined;
    try {
      return await new Promise<Result | undefined>((resolve, reject) => {
        stop = this.onReached(() => resolve(undefined));
        wait.then(resolve, reject);
      });
    } finally {
      stop();
    }
  }

  /** Calls `run` when the deadline is reached, or at once if it already is. Returns a function that stops that. */
  onReached(run: () => void): () => void {
    if (this.reason !== undefined) {
      run();
      return () => undefined;
    }
    this.#waiting ??= new Set();
    this.#waiting.add(run);
    if (this.#disarm === undefined) this.#arm();
    return () => this.#waiting?.delete(run);
  }

  dispose(): void {
    for (const disarm of this.#disarm ?? []) disarm();
    this.#disarm = undefined;
    this.#waiting?.clear();
  }

  /** Timers and listeners exist from the first wait until `dispose`. */
  #arm(): void {
    const reach = (): void => {
      for (const run of [...(this.#waiting ?? [])]) run();
    };
    this.#disarm = [onAbort(this.#closed, reach)];
    if (this.#signal !== undefined) this.#disarm.push(onAbort(this.#signal, reach));
    this.#armTimer(reach);
  }

  /**
   * Arms the timer, again if need be. A timer may fire early, and its delay has a maximum, so only the clock decides.
   */
  #armTimer(reach: () => void): void {
    if (!Number.isFinite(this.#endMs)) return;
    const onTimer = (): void => {
      if (this.leftMs <= 0) reach();
      else this.#armTimer(reach);
    };
    this.#disarm?.push(this.#clock.schedule(this.leftMs, onTimer, { keepAlive: true }));
  }
}
