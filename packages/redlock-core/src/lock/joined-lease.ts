/**
 * The lease of a nested call of `using` that joined the lock of the outer call. Only the outer call can release the
 * lock.
 */

import type { LockLossReason, LockLostError } from "../api/errors.ts";
import type { Instant } from "../kit/clock.ts";
import type { RenewalPolicy } from "../rules/renewal.ts";
import { type LeaseEnd, OVER } from "../rules/validity.ts";
import type { Lease } from "./lock.ts";

export class JoinedLease implements Lease {
  readonly fencingToken: number;
  readonly #lease: Lease;
  #controller: AbortController | undefined;
  #stopListening: (() => void) | undefined;
  #released: Promise<boolean> | undefined;

  constructor(lease: Lease, fencingToken: number) {
    this.fencingToken = fencingToken;
    this.#lease = lease;
  }

  get token(): string {
    return this.#lease.token;
  }

  get start(): Instant {
    return this.#lease.start;
  }

  get validUntil(): LeaseEnd {
    return this.#released === undefined ? this.#lease.validUntil : OVER;
  }

  get ttlMs(): number {
    return this.#lease.ttlMs;
  }

  get lossReason(): LockLossReason | undefined {
    return this.#released === undefined ? this.#lease.lossReason : "released";
  }

  /**
   * Own signal of the joined call. It also aborts when the outer code releases the lock, and not after this handle's
   * release.
   */
  get signal(): AbortSignal {
    if (this.#controller !== undefined) return this.#controller.signal;
    const controller = new AbortController();
    this.#controller = controller;
    if (this.#released !== undefined) return controller.signal;
    const lose = (): void => controller.abort(this.#lease.lostError(this.#lease.lossReason ?? "expired"));
    if (this.#lease.remaining() > 0) this.#stopListening = this.#lease.onEnd(lose);
    else lose();
    return controller.signal;
  }

  remaining(now?: Instant): number {
    return this.#released === undefined ? this.#lease.remaining(now) : 0;
  }

  async extend(ttl: number | undefined): Promise<void> {
    if (this.#released !== undefined) throw this.lostError("released");
    await this.#lease.extend(ttl);
  }

  /** Ends this handle only, because the lock belongs to the outer code. */
  release(): Promise<boolean> {
    this.#released ??= Promise.resolve(this.#lease.remaining() > 0);
    this.#stopListening?.();
    return this.#released;
  }

  releaseBy(): Promise<boolean> {
    return this.release();
  }

  keep(policy: RenewalPolicy): void {
    this.#lease.keep(policy);
  }

  leave(): void {
    this.#lease.leave();
  }

  onEnd(run: () => void): () => void {
    return this.#lease.onEnd(run);
  }

  lostError(reason: LockLossReason): LockLostError {
    return this.#lease.lostError(reason);
  }
}
