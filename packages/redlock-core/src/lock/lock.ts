/**
 * A lock that is held.
 *
 * `isHeld()`, `remaining()`, `assertHeld()` and `signal` read all clocks when called. The first check after a blocked
 * event loop or a frozen process therefore detects the end of the lease.
 *
 * The holder learns of a loss at the latest when the validity ends, even if no node answers. If the validity ended
 * while the machine was suspended, the holder learns of the loss at most a second after the machine resumes.
 *
 * Code that does not check is not guaranteed to stop in time. Pass `fencingToken` to the store that the lock protects,
 * and let the store refuse smaller tokens.
 */
import { type LockLossReason, LockLostError } from "../api/errors.ts";
import { traces } from "../api/events.ts";
import type { Instant } from "../kit/clock.ts";
import { number } from "../kit/schema/check.ts";
import type { RenewalPolicy } from "../rules/renewal.ts";
import type { LeaseEnd } from "../rules/validity.ts";

/**
 * Symbol by which the sibling packages access the members of a `Redlock` and a `Lock` that users do not need. The
 * symbol is registered, so that two copies of this package in one program work together.
 */
export const PROTOCOL: unique symbol = Symbol.for("@x/redlock-core/protocol");

/**
 * The lease behind a lock, for the lock's handle and for the sibling packages. A lease is held until a certain time,
 * renewed or not, lost or released.
 */
export interface Lease {
  /** See `Lock` for all members with the same name. */
  readonly token: string;
  readonly fencingToken: number;
  /**
   * All clocks, read before the request that granted or last renewed the lease was sent. A client that counts the TTL
   * from here never trusts the lease longer than a node does.
   */
  readonly start: Instant;
  /**
   * Time by each clock at which the lock must not be trusted any more unless it is extended. In the past for a lost
   * lock.
   */
  readonly validUntil: LeaseEnd;
  /** Length of the lease that is requested at the next renewal. */
  readonly ttlMs: number;
  readonly signal: AbortSignal;
  readonly lossReason: LockLossReason | undefined;
  /**
   * Returns the remaining validity, and marks a lease that is over as lost. `now` is a reading that the caller has just
   * made; by default the clocks are read.
   */
  remaining(now?: Instant): number;
  extend(ttl: number | undefined): Promise<void>;
  release(): Promise<boolean>;
  /**
   * Renews the lease according to `policy`, for work that may continue after a loss. The lease also counts as left, see
   * `leave()`. If the lease is lost, its signal aborts.
   */
  keep(policy: RenewalPolicy): void;
  /**
   * Leaves the lock to its lease, for work that may continue under the lock. The lease is neither renewed automatically
   * nor released by `close()`, so the nodes expire it. `release()` still releases the lock.
   */
  leave(): void;
  /**
   * Releases the lock by a script, if `RedlockProtocol.embedded` is defined. `perform` sends the script and calls
   * `settle` of the answer with the result of `unlockIfUnwanted`, or with false if the result is unknown. Further calls
   * of `settle` do nothing.
   *
   * In the following cases the lock is released as by `release()`. The call always resolves like `release()`:
   * - `settle` was called with false, or not within `nodeTimeout`.
   * - A script cannot release the lock: there are several nodes, or an extension may still be under way.
   */
  releaseBy(perform: (answer: { settle(isDeleted: boolean): void }) => void): Promise<boolean>;
  /** Calls `run` when the held lock is lost or released. Returns a function that cancels the call. */
  onEnd(run: () => void): () => void;
  lostError(reason: LockLossReason): LockLostError;
}

/** Returns the lease behind a lock. */
export function leaseOf(lock: Lock): Lease {
  return (lock as unknown as { readonly [PROTOCOL]: Lease })[PROTOCOL];
}

const MIN_REMAINING = number({ min: 0, unit: "ms" });

export class Lock implements AsyncDisposable {
  /** Names of the locked resources, in the order of the call. */
  readonly resources: readonly string[];
  /** Random value of the lock's keys. A secret between this handle and the nodes. */
  readonly token: string;
  /**
   * Fencing token, strictly greater than the token of every earlier grant of each of the resources.
   *
   * Send the token with every write that the lock protects. Let the store keep the largest token it has seen, and
   * refuse smaller tokens.
   */
  readonly fencingToken: number;
  readonly #lease: Lease;

  static {
    Object.defineProperty(Lock.prototype, PROTOCOL, {
      get(this: Lock): Lease {
        return this.#lease;
      },
    });
  }

  /** Only `Redlock` calls this constructor. */
  constructor(resources: readonly string[], lease: Lease) {
    this.resources = resources;
    this.token = lease.token;
    this.fencingToken = lease.fencingToken;
    this.#lease = lease;
  }

  /**
   * Aborts with a `LockLostError` when the lock is lost, at the latest when its validity ends, or when its `Redlock` is
   * closed. Does not abort when the holder releases the lock.
   *
   * Timers that were due before a freeze run before the abort. After a suspend of the machine, other timers may run for
   * up to a second before the abort. Check `isHeld()` before a side effect.
   */
  get signal(): AbortSignal {
    return this.#lease.signal;
  }

  /**
   * Returns the milliseconds for which the lock may be trusted, with the drift already subtracted. 0 if the lock is
   * lost or released.
   */
  remaining(): number {
    return this.#lease.remaining();
  }

  /** Reports whether the lock may be trusted now: `remaining()` is greater than 0. */
  isHeld(): boolean {
    return this.remaining() > 0;
  }

  /**
   * Throws `LockLostError` unless the lock is held for at least `minRemaining` more ms (default 0). Call this method
   * right before a side effect.
   *
   * The error's `reason` is `too-short` if the lock is held, but for less time.
   */
  assertHeld(minRemaining = 0): void {
    MIN_REMAINING.of("minRemaining", minRemaining);
    const leftMs = this.remaining();
    if (leftMs <= 0) throw this.#lease.lostError(this.#lease.lossReason ?? "expired");
    if (leftMs >= minRemaining) return;
    throw new LockLostError({ ...this.#facts, reason: "too-short", leftMs, neededMs: minRemaining });
  }

  /**
   * Extends the lease of this handle to `ttl` ms from now, and never shortens the lease. `ttl` is at least 50 and at
   * most `maxTtl`. Default: the length of the last lease that was granted.
   *
   * Rejects with `LockLostError` if the lock is lost, and with `QuorumUnreachableError` if too few nodes answered while
   * the old validity continues.
   */
  extend(ttl?: number): Promise<void> {
    const lease = this.#lease;
    return traces.extend.isHeard ? traces.extend.run(this.#facts, lease.extend.bind(lease, ttl)) : lease.extend(ttl);
  }

  /**
   * Releases the lock on all nodes and hands it over to the next waiter. Idempotent; never rejects.
   *
   * Resolves with true if a quorum confirms that the lock was held until now. Resolves with false if the lock had
   * expired, or too few nodes answered.
   */
  release(): Promise<boolean> {
    const lease = this.#lease;
    return traces.release.isHeard ? traces.release.run(this.#facts, lease.release.bind(lease)) : lease.release();
  }

  get #facts(): { readonly resources: readonly string[]; readonly fencingToken: number } {
    return { resources: this.resources, fencingToken: this.fencingToken };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }
}
