/** The common part of the locks of versions 4 and 5. */
import { systemClock } from "@x/redlock-core";
import { readClock } from "@x/redlock-core/kit";
import { type LeaseEnd, remainingMs } from "@x/redlock-core/protocol";

/** Facts about a lock that its public fields do not show. */
export interface Lease {
  /** End of the lease by all clocks. `expiration` only contains the wall clock. */
  readonly end: LeaseEnd;
  /**
   * Longest duration requested for the lock's value, with or without an answer. The keys may live for this long.
   * Undefined if the lock was constructed by the caller.
   */
  readonly longestMs: number | undefined;
}

let read: (lock: HeldLock) => Lease | undefined;
let write: (lock: HeldLock, lease: Lease) => void;

/** A lock with a private lease. A lock of another copy of this package has none. */
export class HeldLock {
  value: string;
  /**
   * Time until which the lock may be trusted, in ms since the epoch. 0 once the lock was released, once an extension
   * has found another holder, and in version 5 once an extension has replaced the lock.
   */
  expiration: number;
  /**
   * Fencing token, strictly greater than the token of every earlier grant of each of the resources (see
   * `Lock.fencingToken` of the core). Undefined if the lock was constructed by the caller.
   */
  readonly fencingToken: number | undefined;
  #lease: Lease | undefined;

  static {
    read = (lock) => (#lease in lock ? lock.#lease : undefined);
    write = (lock, lease) => {
      if (#lease in lock) lock.#lease = lease;
    };
  }

  constructor(value: string, expiration: number, fencingToken: number | undefined) {
    this.value = value;
    this.expiration = expiration;
    this.fencingToken = fencingToken;
  }
}

/** Sets the lease of a lock, and its `expiration`. */
export function withLease<Lock extends HeldLock>(lock: Lock, lease: Lease): Lock {
  lock.expiration = lease.end.wallMs;
  write(lock, lease);
  return lock;
}

/**
 * Returns the lease of a lock. If the caller has constructed the lock or set `expiration`, the end is known by the wall
 * clock only.
 */
export function leaseOf(lock: HeldLock): Lease {
  const known = read(lock);
  if (known?.end.wallMs === lock.expiration) return known;
  const now = readClock(systemClock);
  const end = { ...now, wallMs: lock.expiration, monotonicMs: now.monotonicMs + (lock.expiration - now.wallMs) };
  return { end, longestMs: known?.longestMs };
}

export function leftMs(end: LeaseEnd): number {
  return remainingMs(end, readClock(systemClock));
}
