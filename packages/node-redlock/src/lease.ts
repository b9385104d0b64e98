/** Facts about a lock that its public fields do not show. Locks of version 4 and 5 keep them in a private field. */
import { systemClock } from "@x/redlock-core";
import { readClock } from "@x/redlock-core/kit";
import type { LeaseEnd } from "@x/redlock-core/protocol";

export interface Lease {
  /** End of the lease by all clocks. `expiration` only contains the wall clock. */
  readonly end: LeaseEnd;
  /** Longest duration requested for the lock's value, with or without an answer. The keys may live for this long. */
  longestMs: number;
}

/** A lock, possibly an object of another class, which has no private field. */
interface AnyLock {
  expiration: number;
}

let read: (lock: AnyLock) => Lease | undefined;
let write: (lock: AnyLock, lease: Lease | undefined) => void;

/** Base class of locks. */
export class Leased {
  #lease: Lease | undefined;

  static {
    read = (lock) => (#lease in lock ? lock.#lease : undefined);
    write = (lock, lease) => {
      if (#lease in lock) lock.#lease = lease;
    };
  }
}

/** Sets the lease of a lock, and its `expiration`. */
export function withLease<Lock extends AnyLock>(lock: Lock, lease: Lease): Lock {
  lock.expiration = lease.end.wallMs;
  write(lock, lease);
  return lock;
}

/** Lets `lock` share the lease of another lock. */
export function withLeaseOf<Lock extends AnyLock>(other: AnyLock, lock: Lock): Lock {
  lock.expiration = other.expiration;
  write(lock, read(other));
  return lock;
}

/**
 * Returns the lease of a lock. If the caller has constructed the lock or set `expiration`, the end is known by the wall
 * clock only. `unknownMs`: longest duration of a lock that the caller has constructed.
 */
export function leaseOf(lock: AnyLock, unknownMs: number): Lease {
  const known = read(lock);
  if (known?.end.wallMs === lock.expiration) return known;
  const now = readClock(systemClock);
  const end = { ...now, wallMs: lock.expiration, monotonicMs: now.monotonicMs + (lock.expiration - now.wallMs) };
  const lease = { end, longestMs: known?.longestMs ?? unknownMs };
  write(lock, lease);
  return lease;
}
