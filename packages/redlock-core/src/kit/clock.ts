/**
 * The clock is the port to time. No other file of the package touches time, so a simulator can pass in a virtual
 * clock.
 *
 * Two clocks are read side by side. The monotonic clock never jumps, but stands still while the machine is suspended
 * (Linux). The wall clock runs through a suspend, but may be stepped. A lease ends by the earlier of the two.
 */
export interface Clock {
  /** Returns the milliseconds since an arbitrary start. They never go backwards, and may have fractions. */
  monotonicMs(): number;
  /** Returns the milliseconds since the Unix epoch. An operator or NTP may step them. */
  wallMs(): number;
  /**
   * Calls `run` once, not before `afterMs`, and returns a function that cancels it. The timer does not keep the
   * process alive unless `keepAlive` is true.
   *
   * Delays above 2^31-1 ms are cut to that, so callers read the clock again when they are called.
   */
  schedule(afterMs: number, run: () => void, options?: { readonly keepAlive?: boolean }): () => void;
  /** Calls `run` at the end of the current turn, after the promise continuations that are already due. */
  defer(run: () => void): void;
}

const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** The process's own clock. */
export const systemClock: Clock = Object.freeze({
  monotonicMs: (): number => performance.now(),
  wallMs: (): number => Date.now(),
  schedule(afterMs: number, run: () => void, options?: { readonly keepAlive?: boolean }): () => void {
    const timer = setTimeout(run, Math.min(Math.max(afterMs, 0), LONGEST_TIMER_MS));
    if (options?.keepAlive !== true) timer.unref();
    return () => clearTimeout(timer);
  },
  defer: (run: () => void): void => process.nextTick(run),
});

/** An instant is one reading of both clocks. Every step of the protocol works with one such reading. */
export interface Instant {
  readonly monotonicMs: number;
  readonly wallMs: number;
}

export function readClock(clock: Clock): Instant {
  return { monotonicMs: clock.monotonicMs(), wallMs: clock.wallMs() };
}
