/**
 * This file has the class `Lock`: a lock that is held.
 *
 * `isHeld()`, `remaining()`, `assertHeld()` and `signal` read all clocks when asked. The first check after a blocked
 * event loop or a frozen process therefore notices it.
 *
 * The holder learns of a loss at the latest when the validity ends, even if no node answers. If the validity ended
 * while the machine was suspended, the holder learns of it within a second of running again.
 *
 * It is not guaranteed that code which does not check stops in time. Give `fencingToken` to whatever the lock
 * protects, and let that refuse smaller ones.
 */
import { type LockLossReason, LockLostError } from "../api/errors.ts";
import { traces } from "../api/events.ts";
import type { Instant } from "../kit/clock.ts";
import { number } from "../kit/schema/check.ts";
import type { RenewalPolicy } from "../rules/renewal.ts";
import type { LeaseEnd } from "../rules/validity.ts";

/**
 * The sibling packages use this symbol to reach what users need not know of a `Redlock` and a `Lock`. It is a
 * registered symbol, so that two copies of this package in one program understand each other.
 */
export const PROTOCOL: unique symbol = Symbol.for("@x/redlock-core/protocol");

/**
 * A `Lease` is what stands behind a lock, for its handle and for the sibling packages. It is held until a time, renewed
 * or not, lost or released.
 */
export interface Lease {
  /** See `Lock`, as for all members that have the name of one of its. */
  readonly token: string;
  readonly fencingToken: number;
  /**
   * All clocks, read before the request was sent that granted the lease, or last renewed it. Who counts the TTL from
   * here never believes longer than a node.
   */
  readonly start: Instant;
  /** When the lock can be trusted no more, by each clock, unless it is extended. It is past for one that is lost. */
  readonly validUntil: LeaseEnd;
  /** How long a lease is asked for when it is renewed. */
  readonly ttlMs: number;
  readonly signal: AbortSignal;
  readonly lossReason: LockLossReason | undefined;
  /** `now` is what the caller has just read; by default the clocks are read. A lease that is over then is lost. */
  remaining(now?: Instant): number;
  extend(ttl: number | undefined): Promise<void>;
  release(): Promise<boolean>;
  /**
   * Renews the lease as `policy` says, for work that may go on when it is lost. It is then left to its end, as by
   * `leave()`. A lease that is lost tells it by its signal.
   */
  keep(policy: RenewalPolicy): void;
  /**
   * Leaves the lock to its lease, for work that may still go on under it. It is not renewed by itself any more and
   * not released by `close()`, so the nodes expire it. `release()` still releases it.
   */
  leave(): void;
  /**
   * Releases the lock by a script, where `RedlockProtocol.embedded` is defined. `perform` sends the script and calls
   * `settle` of the answer with what `unlockIfUnwanted` returned, or with false if that is not known. Further calls of
   * `settle` do nothing.
   *
   * The lock is released as by `release()` in the following cases, and the call always resolves as that does:
   * - `settle` was called with false, or not within `nodeTimeout`.
   * - A script cannot release the lock: there are several nodes, or an extension may still be on its way.
   */
  releaseBy(perform: (answer: { settle(isDeleted: boolean): void }) => void): Promise<boolean>;
  /** Calls `run` when the lock, which is held now, is lost or released. Returns a function that stops that. */
  onEnd(run: () => void): () => void;
  lostError(reason: LockLossReason): LockLostError;
}

/** Returns what stands behind a lock. */
export function leaseOf(lock: Lock): Lease {
  return (lock as unknown as { readonly [PROTOCOL]: Lease })[PROTOCOL];
}

const MIN_REMAINING = number({ min: 0, unit: "ms" });

export class Lock implements AsyncDisposable {
  /** The names of what is locked, in the order of the call. */
  readonly resources: readonly string[];
  /** The random value that the lock's keys hold. It is a secret between this handle and the nodes. */
  readonly token: string;
  /**
   * The fencing token is strictly greater than that of every earlier grant of each of the resources.
   *
   * Send it with every write that the lock protects. Let the store keep the largest token it has seen, and refuse
   * smaller ones.
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

  /** Only `Redlock` calls the constructor. */
  constructor(resources: readonly string[], lease: Lease) {
    this.resources = resources;
    this.token = lease.token;
    this.fencingToken = lease.fencingToken;
    this.#lease = lease;
  }

  /**
   * Aborts with a `LockLostError` when the lock is lost, at the latest when its validity ends, or when its `Redlock`
   * is closed. It does not abort when the holder releases the lock.
   *
   * Timers that were due before a freeze run before the abort. After a suspend of the machine, other timers may run
   * for up to a second before it. Check `isHeld()` before a side effect.
   */
  get signal(): AbortSignal {
    return this.#lease.signal;
  }

  /**
   * Returns the milliseconds for which the lock may be trusted, with the drift already taken off. The result is 0 if
   * the lock is lost or released.
   */
  remaining(): number {
    return this.#lease.remaining();
  }

  isHeld(): boolean {
    return this.remaining() > 0;
  }

  /**
   * Throws `LockLostError` unless the lock is held for at least `minRemaining` ms more (default 0). Call it right
   * before a side effect.
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
   * Prolongs the lease of this same handle to `ttl` ms from now, and never shortens it. `ttl` is at most `maxTtl`. By
   * default it is as long as the last lease that was granted.
   *
   * The call rejects with `LockLostError` if the lock is lost. It rejects with `QuorumUnreachableError` if too few
   * nodes answered but the old validity still runs.
   */
  extend(ttl?: number): Promise<void> {
    const lease = this.#lease;
    return traces.extend.isHeard ? traces.extend.run(this.#facts, lease.extend.bind(lease, ttl)) : lease.extend(ttl);
  }

  /**
   * Releases the lock on all nodes and hands it to the next waiter. The call is idempotent and never rejects.
   *
   * It resolves true if a quorum confirms that the lock was ours until now. It resolves false otherwise: the lock had
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
