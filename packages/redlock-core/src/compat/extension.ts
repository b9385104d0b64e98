/**
 * While the routine of `using` runs, this file extends the lock when its time comes, and aborts the signal when it is
 * lost.
 *
 * The signal aborts at the latest when the validity ends, even if no client answers. If the validity ended while the
 * machine was suspended, the signal aborts within a second of running again. It never aborts after the routine has
 * ended, and no timer outlives `stop()`.
 */
import type { Clock } from "../kit/clock.ts";
import { WALL_CLOCK_LOOK_MS } from "../rules/validity.ts";

export interface Lease {
  /** Returns the milliseconds for which the lock may be trusted. */
  remaining(): number;
  /** Makes one try. After `lost`, trying again is pointless. */
  extend(): Promise<{ readonly kind: "extended" } | { readonly kind: "failed" | "lost"; readonly error: Error }>;
  /** Returns the error for a time that ran out without an answer. */
  expiredError(): Error;
}

/** Tries that failed are repeated after a share of the time that is left, so that there are several before the end. */
const RETRY_SHARE = 1 / 8;
const MIN_RETRY_MS = 10;

export class AutoExtension {
  readonly #clock: Clock;
  readonly #lease: Lease;
  readonly #thresholdMs: number;
  readonly #onLost: (error: Error) => void;
  #cancelEnd: () => void = () => undefined;
  #cancelExtension: () => void = () => undefined;
  #isStopped = false;
  #lastError: Error | undefined;

  constructor(clock: Clock, lease: Lease, thresholdMs: number, onLost: (error: Error) => void) {
    this.#clock = clock;
    this.#lease = lease;
    this.#thresholdMs = thresholdMs;
    this.#onLost = onLost;
    this.#armEnd();
    this.#armExtension(lease.remaining() - thresholdMs);
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancelEnd();
    this.#cancelExtension();
  }

  #armEnd(): void {
    this.#cancelEnd();
    this.#cancelEnd = this.#clock.schedule(
      Math.min(this.#lease.remaining(), WALL_CLOCK_LOOK_MS),
      () => {
        if (this.#isStopped) return;
        if (this.#lease.remaining() > 0) this.#armEnd();
        else this.#lose(this.#lastError ?? this.#lease.expiredError());
      },
      { keepAlive: true },
    );
  }

  #armExtension(afterMs: number): void {
    this.#cancelExtension = this.#clock.schedule(afterMs, () => void this.#extend(), { keepAlive: true });
  }

  async #extend(): Promise<void> {
    const result = await this.#lease.extend();
    if (this.#isStopped) return;
    if (result.kind === "lost") {
      this.#lose(result.error);
      return;
    }
    if (result.kind === "extended") {
      this.#lastError = undefined;
      this.#armEnd();
      this.#armExtension(this.#lease.remaining() - this.#thresholdMs);
      return;
    }
    this.#lastError = result.error;
    this.#armExtension(Math.max(this.#lease.remaining() * RETRY_SHARE, MIN_RETRY_MS));
  }

  #lose(error: Error): void {
    this.stop();
    this.#onLost(error);
  }
}
