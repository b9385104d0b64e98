/** The lock of the method that runs now, for code that is called by it. */
import { AsyncLocalStorage } from "node:async_hooks";
import type { Lock } from "@x/redlock-core";

const locks = new AsyncLocalStorage<Lock>();

/**
 * Returns the lock of the innermost `@Locked` method that this code was called by: for its `signal`, its
 * `fencingToken` and `assertHeld()`.
 *
 * Code that outlives its method, because nobody awaited it, gets a lock that is no longer held.
 * @throws Error outside of a `@Locked` method
 */
export function currentLock(): Lock {
  const lock = locks.getStore();
  if (lock === undefined) throw new Error("currentLock() must be called inside a @Locked method");
  return lock;
}

export function runWith<Result>(lock: Lock, run: () => Result): Result {
  return locks.run(lock, run);
}
