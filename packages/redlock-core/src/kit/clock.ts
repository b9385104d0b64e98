/**
 * The clock is the port to time. No other file of the package touches time, so a simulator can pass in a virtual
 * clock.
 *
 * Three clocks are read side by side, because none sees everything. The monotonic clock never jumps, but stands still
 * while the machine is suspended (Linux). The wall clock runs through a suspend, but may be stepped. What the machine
 * was suspended for has a resolution of 10 ms.
 */
import { uptime } from "node:os";

export const DAY_MS = 86_400_000;

export interface Clock {
  /** Returns the milliseconds since an arbitrary start. They never go backwards, and may have fractions. */
  monotonicMs(): number;
  /** Returns the milliseconds since the Unix epoch. An operator or NTP may step them. */
  wallMs(): number;
  /**
   * Returns the milliseconds for which the machine has been suspended since an arbitrary start, as far as
   * `monotonicMs` does not count them. They never go backwards. `nowMs` is what `monotonicMs` returned just now.
   */
  suspendedMs(nowMs: number): number;
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

/** The resolution of the uptime. To read it takes 3 µs, so it is read no more often. */
const RESOLUTION_MS = 10;

/**
 * Counts for how long the machine has been suspended: the uptime runs on meanwhile, the monotonic clock does not. A
 * suspend is counted within 20 ms of running again. Nothing else is ever counted, but for the resolution.
 */
export class SuspendCounter {
  readonly #uptimeMs: () => number;
  readonly #monotonicMs: () => number;
  #readAtMs = Number.NEGATIVE_INFINITY;
  /** The time by which the uptime was ahead of the monotonic clock at first. */
  #firstAheadMs: number | undefined;
  #suspendedMs = 0;

  constructor(uptimeMs: () => number, monotonicMs: () => number) {
    this.#uptimeMs = uptimeMs;
    this.#monotonicMs = monotonicMs;
  }

  /** Returns the milliseconds counted so far, as an integer. `nowMs` is a reading of the monotonic clock. */
  read(nowMs: number): number {
    if (nowMs - this.#readAtMs >= RESOLUTION_MS) this.#count(nowMs);
    return this.#suspendedMs;
  }

  /**
   * The monotonic clock is read last. A process that is frozen in between then counts too little, until the next
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
 * The process's own clock.
 *
 * On Linux a suspend is seen by the uptime, which libuv reads from /proc/uptime. On macOS the monotonic clock is
 * `mach_continuous_time`, which runs through a suspend. On other systems only the wall clock sees one.
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

/** An instant is one reading of all clocks. Every step of the protocol works with one such reading. */
export interface Instant {
  readonly monotonicMs: number;
  readonly wallMs: number;
  readonly suspendedMs: number;
}

export function readClock(clock: Clock): Instant {
  const monotonicMs = clock.monotonicMs();
  return { monotonicMs, wallMs: clock.wallMs(), suspendedMs: clock.suspendedMs(monotonicMs) };
}
