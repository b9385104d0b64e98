/**
 * While the routine of `using` runs, this file extends the lock when its time comes, and aborts the signal when it is
 * lost.
 *
 * The signal aborts at the latest when the validity ends, even if no client answers. If the validity ended while the
 * machine was suspended, the signal aborts within a second of running again. It never aborts after the routine has
 * ended, and no timer outlives `stop()`.
 */
import type { Clock } from "../kit/clock.ts";
import { type Renewable, Renewal } from "../lock/renewal.ts";

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

export class AutoExtension implements Renewable {
  index = -1;
  readonly windowMs = 0;
  readonly #clock: Clock;
  readonly #lease: Lease;
  readonly #thresholdMs: number;
  readonly #onLost: (error: Error) => void;
  readonly #renewal: Renewal<AutoExtension>;
  #renewAtMs: number;
  #isExtending = false;
  #isStopped = false;
  #lastError: Error | undefined;

  constructor(clock: Clock, lease: Lease, thresholdMs: number, onLost: (error: Error) => void) {
    this.#clock = clock;
    this.#lease = lease;
    this.#thresholdMs = thresholdMs;
    this.#onLost = onLost;
    this.#renewAtMs = clock.monotonicMs() + lease.remaining() - thresholdMs;
    this.#renewal = new Renewal(clock, { keepAlive: true });
    this.#renewal.add(this);
  }

  stop(): void {
    this.#isStopped = true;
    this.#renewal.delete(this);
    this.#renewal.close();
  }

  remaining(): number {
    const leftMs = this.#isStopped ? 0 : this.#lease.remaining();
    if (leftMs <= 0) this.#lose(this.#lastError ?? this.#lease.expiredError());
    return leftMs;
  }

  nextDueMs(): number {
    if (this.#isStopped) return Number.POSITIVE_INFINITY;
    const endMs = this.#clock.monotonicMs() + this.#lease.remaining();
    return this.#isExtending ? endMs : Math.min(this.#renewAtMs, endMs);
  }

  tick(dueMs: number): void {
    if (this.remaining() > 0 && !this.#isExtending && this.#renewAtMs <= dueMs) void this.#extend();
  }

  async #extend(): Promise<void> {
    this.#isExtending = true;
    const result = await this.#lease.extend().catch((error: Error) => ({ kind: "failed" as const, error }));
    this.#isExtending = false;
    if (this.#isStopped) return;
    if (result.kind === "lost") {
      this.#lose(result.error);
      return;
    }
    const isExtended = result.kind === "extended";
    this.#lastError = isExtended ? undefined : result.error;
    const leftMs = this.#lease.remaining();
    const afterMs = isExtended ? leftMs - this.#thresholdMs : Math.max(leftMs * RETRY_SHARE, MIN_RETRY_MS);
    this.#renewAtMs = this.#clock.monotonicMs() + afterMs;
    this.#renewal.reschedule(this);
  }

  #lose(error: Error): void {
    if (this.#isStopped) return;
    this.stop();
    this.#onLost(error);
  }
}
