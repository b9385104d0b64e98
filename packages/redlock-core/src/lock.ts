/**
 * A held lock.
 *
 * Guaranteed: `isHeld()`, `remaining()`, `assertHeld()` and `signal` read both clocks when asked, so a blocked event loop or a
 * frozen process is noticed by the first check after it. The holder learns of a loss at the latest when the validity
 * ends, even if no node answers; within a second of running again when it ended while the machine was suspended. Not guaranteed:
 * that code which does not check stops in time. Give `fencingToken` to whatever the lock protects and let that refuse smaller ones.
 */
import { LockLostError, type LossReason } from "./errors.ts";
import { callback, number } from "./schema/check.ts";

const MIN_REMAINING = number({ min: 0, unit: "ms" });
const PERFORM = callback<(settle: (isDeleted: boolean) => void) => void>();

/** What a handle needs of the `Redlock` that made it. */
export interface LockKeeper {
  remaining(): number;
  extend(ttl: number | undefined): Promise<void>;
  release(): Promise<boolean>;
  releaseBy(perform: (settle: (isDeleted: boolean) => void) => void): Promise<boolean>;
  leave(): void;
  readonly signal: AbortSignal;
  readonly lossReason: LossReason | undefined;
  lostError(reason: LossReason): LockLostError;
}

export class Lock implements AsyncDisposable {
  /** What is locked, in the order of the call. */
  readonly resources: readonly string[];
  /** The random value that the lock's keys hold. A secret between this handle and the nodes. */
  readonly token: string;
  /**
   * Strictly greater than that of every earlier grant of each of the resources. Send it with every write that the lock
   * protects; let the store keep the largest it has seen and refuse smaller ones.
   */
  readonly fencingToken: number;
  readonly #keeper: LockKeeper;

  /** Made by `Redlock` only. */
  constructor(
    facts: {
      readonly target: { readonly resources: readonly string[] };
      readonly token: string;
      readonly fencingToken: number;
    },
    keeper: LockKeeper,
  ) {
    this.resources = facts.target.resources;
    this.token = facts.token;
    this.fencingToken = facts.fencingToken;
    this.#keeper = keeper;
  }

  /**
   * Aborts with a `LockLostError` when the lock is lost, at the latest when its validity ends, or when its `Redlock` is closed. It
   * does not abort when the holder releases it. Timers that were due before a freeze run before the abort, and others for up to a second
   * after a suspend of the machine: check `isHeld()` before a side effect.
   */
  get signal(): AbortSignal {
    return this.#keeper.signal;
  }

  /** Milliseconds for which the lock may be trusted, drift already taken off; 0 when it is lost or released. */
  remaining(): number {
    return this.#keeper.remaining();
  }

  isHeld(): boolean {
    return this.remaining() > 0;
  }

  /**
   * Throws `LockLostError` unless the lock is held for at least `minRemaining` ms more (default 0). Its `reason` is `too-short` if
   * the lock is held, but for less. For use right before a side effect.
   */
  assertHeld(minRemaining = 0): void {
    MIN_REMAINING.of("minRemaining", minRemaining);
    const leftMs = this.remaining();
    if (leftMs <= 0) throw this.#keeper.lostError(this.#keeper.lossReason ?? "expired");
    if (leftMs >= minRemaining) return;
    const { resources, fencingToken } = this;
    throw new LockLostError({ resources, fencingToken, reason: "too-short", leftMs, neededMs: minRemaining });
  }

  /**
   * Prolongs the lease of this same handle to `ttl` ms from now (default: the lease that was asked for last; at most `maxTtl`);
   * never shortens it. Rejects with `LockLostError` if the lock is lost, with `QuorumUnreachableError` if the nodes did not
   * answer but the old validity still runs.
   */
  extend(ttl?: number): Promise<void> {
    return this.#keeper.extend(ttl);
  }

  /**
   * Releases the lock on all nodes and hands it to the next waiter. Resolves true if a quorum confirms that it was ours
   * until now, else false (it had expired, or the nodes did not answer). Idempotent; never rejects.
   */
  release(): Promise<boolean> {
    return this.#keeper.release();
  }

  /**
   * Releases the lock by a script, where `Redlock.embedded` is defined: `perform` sends it, and calls `settle` with what
   * `unlockIfUnwanted` returned, false if that is not known. Then, if `settle` is not called within `nodeTimeout`, and where a
   * script cannot do it (several nodes, an extension that may still be on its way), the lock is released as by `release()`.
   * Resolves as that does. Further calls of `settle` do nothing.
   */
  async releaseBy(perform: (settle: (isDeleted: boolean) => void) => void): Promise<boolean> {
    return await this.#keeper.releaseBy(PERFORM.of("perform", perform));
  }

  /**
   * Leaves the lock to its lease, for work that may still go on under it: it is not extended by itself any more, and not released
   * by `close()`; the nodes expire it. `release()` still releases it.
   */
  leave(): void {
    this.#keeper.leave();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }
}
