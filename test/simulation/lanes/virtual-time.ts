/**
 * The time of a schedule. BullMQ reads `Date.now()` and passes the time to its scripts, and the lane reads its clock.
 * Both are set by hand, so delays cost nothing and a seed replays exactly. The expiries of Redis (BullMQ's locks of
 * jobs) are real, and longer than any schedule.
 */
import type { Clock } from "@x/redlock-core";

const START_MS = 1_700_000_000_000;

export class VirtualTime implements Disposable {
  readonly #realNow = Date.now;
  #nowMs = START_MS;

  constructor() {
    Date.now = () => this.#nowMs;
  }

  get nowMs(): number {
    return this.#nowMs;
  }

  pass(ms: number): void {
    this.#nowMs += ms;
  }

  get clock(): Clock {
    const unused = (): never => {
      throw new Error("the lane sets no timers");
    };
    const now = (): number => this.#nowMs;
    return { monotonicMs: now, wallMs: now, suspendedMs: () => 0, schedule: unused, defer: unused };
  }

  [Symbol.dispose](): void {
    Date.now = this.#realNow;
  }
}
