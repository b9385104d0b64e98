/**
 * One concurrency for the workers of all partitions. A job has a slot from before it is fetched until it has ended.
 *
 * Slots are given in the order of asking. A partition that fetches its next job with the end of another keeps the slot,
 * which saves a request. It gives it up where another partition has waited for more than `PATIENCE_MS`. So none
 * starves, however long the backlogs of the others are.
 */
import type { Clock } from "@x/redlock-core";

/** This is long beside a round trip, and short beside what a user notices. */
export const PATIENCE_MS = 50;

/** A slot is others' meanwhile if Redis takes longer than this to answer: a server that hangs keeps none. */
const LATE_MS = 1_000;

interface Waiter {
  readonly owner: object;
  readonly sinceMs: number;
  readonly resolve: (hasSlot: boolean) => void;
}

export class Slots {
  readonly #clock: Clock;
  #free: number;
  #waiting: Waiter[] = [];

  constructor(count: number, clock: Clock) {
    this.#free = count;
    this.#clock = clock;
  }

  /** Whether `take` would resolve at once. */
  get isFree(): boolean {
    return this.#free > 0 && this.#waiting.length === 0;
  }

  /** Resolves true when `owner` has a slot, or false when its wait was cancelled. */
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

  /** Takes a slot, also if none is free. */
  takeAnyway(): void {
    this.#free -= 1;
  }

  give(): void {
    const next = this.#free < 0 ? undefined : this.#waiting.shift();
    if (next === undefined) this.#free += 1;
    else next.resolve(true);
  }

  /** Tells whether `owner` may use a slot of its own for its next job. */
  mayKeep(owner: object): boolean {
    if (this.#free < 0) return false;
    const other = this.#waiting.find((waiter) => waiter.owner !== owner);
    return other === undefined || this.#clock.monotonicMs() - other.sinceMs <= PATIENCE_MS;
  }

  /** Ends what `owner` waits for, without a slot. */
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

  /** Redis is asked now, and nothing of the job runs. */
  lend(): void {
    this.#cancelTimer = this.#clock.schedule(LATE_MS, () => {
      this.#isLent = true;
      this.#slots.give();
    });
  }

  /** Redis has answered. If others have the slot meanwhile, there is one job more than `concurrency` for a moment. */
  takeBack(): void {
    this.#cancelTimer();
    if (this.#isLent) this.#slots.takeAnyway();
    this.#isLent = false;
  }

  give(): void {
    this.takeBack();
    this.#slots.give();
  }
}
