/**
 * The port to time. No other file of the package reads a clock or sets a timer, so a simulator can pass in a virtual
 * clock.
 *
 * Three clocks are read together, because none of them is sufficient alone. The monotonic clock never jumps, but on
 * Linux it stops while the machine is suspended. The wall clock continues during a suspend, but may be stepped. The
 * time spent suspended is known with a resolution of 10 ms.
 */
import { uptime } from "node:os";

export const DAY_MS = 86_400_000;

export interface Clock {
  /** Returns the milliseconds since an arbitrary start. The number never decreases and may have a fraction. */
  monotonicMs(): number;
  /** Returns the milliseconds since the Unix epoch. An operator or NTP may step this clock. */
  wallMs(): number;
  /**
   * Returns the milliseconds for which the machine has been suspended since an arbitrary start and that `monotonicMs`
   * did not count. The number never decreases. `nowMs` is a current reading of `monotonicMs`.
   */
  suspendedMs(nowMs: number): number;
  /**
   * Calls `run` once, after `afterMs` or later. Returns a function that cancels the call. The timer does not keep the
   * process alive unless `keepAlive` is true.
   *
   * Delays are cut to 2^31-1 ms, so callers must read the clock again when `run` is called.
   */
  schedule(afterMs: number, run: () => void, options?: { readonly keepAlive?: boolean }): () => void;
  /**
   * Calls `run` at the end of the current turn of the event loop. If called in a promise continuation, `run` follows
   * all continuations that are due.
   */
  defer(run: () => void): void;
}

const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** Resolution of the uptime. Reading the uptime takes 3 µs, so it is read at most once per interval of this length. */
const RESOLUTION_MS = 10;

/**
 * Counts how long the machine has been suspended: the uptime continues during a suspend, the monotonic clock does not.
 * A suspend is counted at most 20 ms after the machine resumes. Apart from the limited resolution, nothing else is
 * counted.
 */
export class SuspendCounter {
  readonly #uptimeMs: () => number;
  readonly #monotonicMs: () => number;
  #readAtMs = Number.NEGATIVE_INFINITY;
  /** How far the uptime was ahead of the monotonic clock at the first reading. */
  #firstAheadMs: number | undefined;
  #suspendedMs = 0;

  constructor(uptimeMs: () => number, monotonicMs: () => number) {
    this.#uptimeMs = uptimeMs;
    this.#monotonicMs = monotonicMs;
  }

  /** Returns the integer milliseconds counted so far. `nowMs` is a reading of the monotonic clock. */
  read(nowMs: number): number {
    if (nowMs - this.#readAtMs >= RESOLUTION_MS) this.#count(nowMs);
    return this.#suspendedMs;
  }

  /**
   * Reads the monotonic clock last. If the process freezes between both readings, too little is counted until the next
   * reading, and never too much.
   */
  #count(nowMs: number): void {
    this.#readAtMs = nowMs;
    const aheadMs = this.#uptimeMs() - this.#monotonicMs();
    this.#firstAheadMs ??= aheadMs;
    this.#suspendedMs = Math.max(this.#suspendedMs, Math.floor(aheadMs - this.#firstAheadMs));
  }
}

const suspends = new SuspendCounter(
  () => uptime() * 1_000,
  () => performance.now(),
);

/**
 * The clock of this process.
 *
 * On Linux a suspend is detected by the uptime, which libuv reads from /proc/uptime. On macOS the monotonic clock is
 * `mach_continuous_time`, which continues during a suspend. On other systems only the wall clock reveals a suspend.
 */
export const systemClock: Clock = Object.freeze({
  monotonicMs: (): number => performance.now(),
  wallMs: (): number => Date.now(),
  suspendedMs: process.platform === "linux" ? (nowMs: number): number => suspends.read(nowMs) : (): number => 0,
  schedule(afterMs: number, run: () => void, options?: { readonly keepAlive?: boolean }): () => void {
    const timer = setTimeout(run, Math.min(Math.max(afterMs, 0), LONGEST_TIMER_MS));
    if (options?.keepAlive !== true) timer.unref();
    return () => clearTimeout(timer);
  },
  defer: (run: () => void): void => process.nextTick(run),
});

/** One reading of all clocks. Every step of the protocol works with a single reading. */
export interface Instant {
  readonly monotonicMs: number;
  readonly wallMs: number;
  readonly suspendedMs: number;
}

export function readClock(clock: Clock): Instant {
  const monotonicMs = clock.monotonicMs();
  return { monotonicMs, wallMs: clock.wallMs(), suspendedMs: clock.suspendedMs(monotonicMs) };
}
