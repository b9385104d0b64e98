/**
 * This entry is redis-semaphore 5 with its classes, options, keys and errors. A migration is one changed import:
 *
 * ```ts
 * import { LostLockError, Mutex, Semaphore } from "@x/semaphore/redis-semaphore";
 * ```
 *
 * Its locks exclude, and are excluded by, those of redis-semaphore on the same keys, so a fleet may change process by
 * process. It differs in the following:
 * - The server's clock decides which permits of a semaphore are over, not the clocks of the clients.
 * - `isAcquired` is false when the lock is over by this process's own clocks, though no node answers.
 * - A refresh that fails decides nothing, and is no unhandled rejection. The lock is lost when a node says so, or at
 *   its end. There are three refreshes in `lockTimeout` by default, not one.
 * - `RedlockMutex` counts what the acquisition took, and waits for no node that hangs.
 * - `RedlockSemaphore` and `RedlockMultiSemaphore` take one client. With several they would admit more than `limit`.
 */
export {
  defaultTimeoutOptions,
  type Lock,
  type LockLostCallback,
  type LockOptions,
  LostLockError,
  TimeoutError,
  type TimeoutOptions,
} from "./redis-semaphore/lock.ts";
export { Mutex, RedlockMutex } from "./redis-semaphore/mutex.ts";
export type { RedisClient } from "./redis-semaphore/scripts.ts";
export {
  MultiSemaphore,
  RedlockMultiSemaphore,
  RedlockSemaphore,
  Semaphore,
} from "./redis-semaphore/semaphores.ts";
