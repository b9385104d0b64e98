/**
 * Keeps a lease whose keys and requests belong to another implementation, such as node-redlock or redis-semaphore.
 * Extends the lease when due, and calls `onLost` if the lease is lost.
 *
 * The call comes at the latest when the validity ends, even if no client answers. If the validity ended while the
 * machine was suspended, the call comes at most a second after the machine resumes. After `stop()` no call is made, and
 * no timer remains.
 */
import type { Clock } from "../kit/clock.ts";
import { asError } from "../kit/thrown.ts";
import type { RenewalPolicy } from "../rules/renewal.ts";
import { type Renewable, Renewal } from "./renewal.ts";

export interface ExtendedLease {
  /** Returns the milliseconds for which the lock may be trusted. 0 or less if the lock is known to be lost. */
  remaining(): number;
  /** Attempts one extension. Rejects if the attempt fails. */
  extend(): Promise<void>;
  /** Returns the error for a lease that ended without an answer. */
  expiredError(): Error;
  /** Whether the timer keeps the process alive. */
  readonly keepAlive: boolean;
}

/** `ttlMs` is the length of the lease from `sinceMs` or `startedMs` on. */
type Policy = Pick<RenewalPolicy, "dueMs" | "retryMs">;

export class AutoExtension implements Renewable {
  index = -1;
  readonly windowMs = 0;
  readonly #clock: Clock;
  readonly #lease: ExtendedLease;
  readonly #policy: Policy;
  readonly #onLost: (error: Error) => void;
  readonly #renewal: Renewal<AutoExtension>;
  #renewAtMs: number;
  #isExtending = false;
  #isStopped = false;
  #lastError: Error | undefined;

  constructor(clock: Clock, lease: ExtendedLease, policy: Policy, onLost: (error: Error) => void) {
    this.#clock = clock;
    this.#lease = lease;
    this.#policy = policy;
    this.#onLost = onLost;
    this.#renewAtMs = policy.dueMs(clock.monotonicMs(), lease.remaining());
    this.#renewal = new Renewal(clock, { keepAlive: lease.keepAlive });
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
    const startedMs = this.#clock.monotonicMs();
    this.#lastError = await this.#lease.extend().then(() => undefined, asError);
    this.#isExtending = false;
    if (this.remaining() <= 0) return;
    const isExtended = this.#lastError === undefined;
    const [leftMs, now] = [this.#lease.remaining(), this.#clock.monotonicMs()];
    const ttlMs = now + leftMs - startedMs;
    this.#renewAtMs = isExtended ? this.#policy.dueMs(startedMs, ttlMs) : this.#policy.retryMs(startedMs, now, ttlMs);
    this.#renewal.reschedule(this);
  }

  #lose(error: Error): void {
    if (this.#isStopped) return;
    this.stop();
    this.#onLost(error);
  }
}
