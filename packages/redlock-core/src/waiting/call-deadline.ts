/** The deadline of a call makes its timeout, its signal and the closing of the `Redlock` one thing to wait for. */

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

  /** Resolves when `wait` does, or when the deadline is reached. Nothing of the wait stays behind in the deadline. */
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

  /** Resolves when `start` calls its argument, or when the deadline is reached; then calls what `start` returned. */
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
    for (const disarm of this.#disarm ?? []) disarm();
    this.#disarm = undefined;
    this.#waiting?.clear();
  }

  /** Timers and listeners exist from the first wait until `dispose`. */
  #listen(reached: () => void): void {
    this.#waiting ??= new Set();
    this.#waiting.add(reached);
    if (this.#disarm !== undefined) return;
    const reach = (): void => {
      for (const run of [...(this.#waiting ?? [])]) run();
    };
    this.#disarm = [onAbort(this.#closed, reach)];
    if (this.#signal !== undefined) this.#disarm.push(onAbort(this.#signal, reach));
    this.#armTimer(reach);
  }

  /** A timer may fire early, and its delay has a maximum, so the clock decides. */
  #armTimer(reach: () => void): void {
    const { leftMs } = this;
    if (leftMs <= 0) reach();
    else if (Number.isFinite(leftMs)) {
      this.#disarm?.push(this.#clock.schedule(leftMs, () => this.#armTimer(reach), { keepAlive: true }));
    }
  }
}
