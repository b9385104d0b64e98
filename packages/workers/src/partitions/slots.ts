/**
 * Limits the number of running jobs over the workers of all partitions. A job has a slot from before its fetch until
 * its end.
 *
 * Slots are assigned in the order of the requests. A partition that fetches its next job together with the end of
 * another job keeps the slot, which saves a request. If another partition has waited longer than `PATIENCE_MS`, the
 * slot is released instead. No partition starves, regardless of the others' backlogs.
 */
import type { Clock } from "@x/redlock-core";

/** Long compared with a round trip, and short compared with delays that users notice. */
export const PATIENCE_MS = 50;

/**
 * If Redis takes longer than this to reply, the slot is lent to other partitions. A server that hangs keeps no slots.
 */
const LATE_MS = 1_000;

interface SlotWaiter {
  readonly owner: object;
  readonly sinceMs: number;
  readonly resolve: (hasSlot: boolean) => void;
}

export class Slots {
  readonly #clock: Clock;
  #free: number;
  #waiting: SlotWaiter[] = [];

  constructor(count: number, clock: Clock) {
    this.#free = count;
    this.#clock = clock;
  }

  /** Whether `take` would resolve immediately. */
  get isFree(): boolean {
    return this.#free > 0 && this.#waiting.length === 0;
  }

  /** Resolves with true when `owner` has a slot, or with false when its wait was cancelled. */
  take(owner: object): Promise<boolean> {
    if (this.isFree) {
      this.#free -= 1;
      return Promise.resolve(true);
    }
    const sinceMs = this.#clock.monotonicMs();
    return new Promise((resolve) => {
      this.#waiting.push({ owner, sinceMs, resolve });
    });
  }

  /** Takes a slot even if none is free. */
  takeAnyway(): void {
    this.#free -= 1;
  }

  release(): void {
    const next = this.#free < 0 ? undefined : this.#waiting.shift();
    if (next === undefined) this.#free += 1;
    else next.resolve(true);
  }

  /** Reports whether `owner` may use one of its slots for its next job. */
  mayKeep(owner: object): boolean {
    if (this.#free < 0) return false;
    const other = this.#waiting.find((waiter) => waiter.owner !== owner);
    return other === undefined || this.#clock.monotonicMs() - other.sinceMs <= PATIENCE_MS;
  }

  /** Ends the waits of `owner`, which receive no slot. */
  cancel(owner: object): void {
    const own = this.#waiting.filter((waiter) => waiter.owner === owner);
    this.#waiting = this.#waiting.filter((waiter) => waiter.owner !== owner);
    for (const { resolve } of own) resolve(false);
  }
}

/** The slot of one job, from its fetch to its end. */
export class Slot {
  readonly #slots: Slots;
  readonly #clock: Clock;
  #isLent = false;
  #cancelTimer: () => void = () => {};

  constructor(slots: Slots, clock: Clock) {
    this.#slots = slots;
    this.#clock = clock;
  }

  /** Called when Redis is asked while the job is not running. After `LATE_MS` the slot is lent to others. */
  lend(): void {
    this.#cancelTimer = this.#clock.schedule(LATE_MS, () => {
      this.#isLent = true;
      this.#slots.release();
    });
  }

  /**
   * Called when Redis has replied. If the slot was lent in the meantime, one more job than `concurrency` runs for a
   * moment.
   */
  takeBack(): void {
    this.#cancelTimer();
    if (this.#isLent) this.#slots.takeAnyway();
    this.#isLent = false;
  }

  release(): void {
    this.takeBack();
    this.#slots.release();
  }
}
