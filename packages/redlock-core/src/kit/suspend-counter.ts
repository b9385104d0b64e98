/**
 * This file counts for how long the machine has been suspended: the uptime runs on meanwhile, the monotonic clock does
 * not.
 *
 * A suspend is counted within 20 ms of running again. To read the uptime takes 3 µs, so it is read once in 10 ms, which
 * is its own resolution. Nothing is ever counted that was no suspend, but for the resolution.
 */

const RESOLUTION_MS = 10;

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
