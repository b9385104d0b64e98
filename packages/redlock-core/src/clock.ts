/**
 * Time as a port. This is the only file of the package that touches it, so a simulator can pass in a virtual clock.
 *
 * Two clocks are read side by side: the monotonic one never jumps but stands still while the machine is suspended (Linux),
 * the wall clock runs through a suspend but may be stepped. Whoever ends a lease ends it by the earlier of the two.
 */
export interface Clock {
  /** Milliseconds since an arbitrary start; never goes backwards. May have fractions. */
  monotonicMs(): number;
  /** Milliseconds since the Unix epoch; may be stepped by an operator or NTP. */
  wallMs(): number;
  /**
   * Calls `run` once, not before `afterMs`; returns a function that cancels it. The timer does not keep the process
   * alive unless `keepAlive` is true. Delays above 2^31-1 ms are cut to that: callers read the clock again when called.
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

/** Both clocks, read once: every step of the protocol works with one such reading. */
export interface Instant {
  readonly monotonicMs: number;
  readonly wallMs: number;
}

export function readClock(clock: Clock): Instant {
  return { monotonicMs: clock.monotonicMs(), wallMs: clock.wallMs() };
}
