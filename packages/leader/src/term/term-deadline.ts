/**
 * The deadline of a term: `renewDeadline` after the start of the last successful renewal, by the clock that sees it
 * first, and at the latest the end of the lease's validity.
 */
import type { Clock } from "@x/redlock-core";
import { type Instant, readClock } from "@x/redlock-core/kit";
import { elapsedMs, remainingMs, SUSPEND_LOOK_MS } from "@x/redlock-core/protocol";
import { reasonOfDeadline } from "../rules/deadline.ts";
import type { TermLease } from "./lease.ts";

export class TermDeadline {
  readonly #clock: Clock;
  readonly #renewDeadlineMs: number;
  readonly #lease: Pick<TermLease, "start" | "validUntil">;
  #cancel: () => void = () => undefined;

  constructor(clock: Clock, renewDeadlineMs: number, lease: Pick<TermLease, "start" | "validUntil">) {
    this.#clock = clock;
    this.#renewDeadlineMs = renewDeadlineMs;
    this.#lease = lease;
  }

  /** Time since the start of the last successful renewal, in ms. */
  get sinceRenewalMs(): number {
    return elapsedMs(this.#lease.start, readClock(this.#clock));
  }

  /** Returns the time until the deadline in ms, 0 or less if the deadline has passed. */
  leftMs(now: Instant = readClock(this.#clock)): number {
    const { start, validUntil } = this.#lease;
    return Math.min(this.#renewDeadlineMs - elapsedMs(start, now), remainingMs(validUntil, now));
  }

  /** Returns which clock has passed the deadline. Undefined if only the lease's validity is over. */
  reasonAt(now: Instant): ReturnType<typeof reasonOfDeadline> | undefined {
    const { start } = this.#lease;
    const isLate = elapsedMs(start, now) >= this.#renewDeadlineMs;
    return isLate ? reasonOfDeadline(start, this.#renewDeadlineMs, now) : undefined;
  }

  /**
   * Calls `isCurrent` at the deadline, and again as long as `isCurrent` returns true. The timer also fires before the
   * deadline, at least every `SUSPEND_LOOK_MS`. Timers stand still while the machine is suspended, so after a suspend
   * past the deadline no timer would be due.
   */
  watch(isCurrent: () => boolean): void {
    const afterMs = Math.max(0, Math.min(this.leftMs(), SUSPEND_LOOK_MS));
    this.#cancel = this.#clock.schedule(Math.ceil(afterMs), () => {
      if (isCurrent()) this.watch(isCurrent);
    });
  }

  stop(): void {
    this.#cancel();
  }
}
