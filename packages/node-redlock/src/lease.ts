/** The common part of the locks of versions 4 and 5. */
import { systemClock } from "@x/redlock-core";
import { readClock } from "@x/redlock-core/kit";
import { type LeaseEnd, remainingMs } from "@x/redlock-core/protocol";

let read: (lock: HeldLock) => LeaseEnd | undefined;
let write: (lock: HeldLock, end: LeaseEnd) => void;

/** A lock that knows its end by all clocks. A lock of another copy of this package does not. */
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
  #end: LeaseEnd | undefined;

  static {
    read = (lock) => (#end in lock ? lock.#end : undefined);
    write = (lock, end) => {
      if (#end in lock) lock.#end = end;
    };
  }

  constructor(value: string, expiration: number, fencingToken: number | undefined) {
    this.value = value;
    this.expiration = expiration;
    this.fencingToken = fencingToken;
  }
}

/** Sets the end of a lock, and its `expiration`, which only contains the wall clock. */
export function withEnd<Lock extends HeldLock>(lock: Lock, end: LeaseEnd): Lock {
  lock.expiration = end.wallMs;
  write(lock, end);
  return lock;
}

/** Returns the end of a lock. If the caller has set `expiration`, the end is known by the wall clock only. */
export function endOf(lock: HeldLock): LeaseEnd {
  const known = read(lock);
  if (known?.wallMs === lock.expiration) return known;
  const now = readClock(systemClock);
  return { ...now, wallMs: lock.expiration, monotonicMs: now.monotonicMs + (lock.expiration - now.wallMs) };
}

export function leftMs(end: LeaseEnd): number {
  return remainingMs(end, readClock(systemClock));
}
