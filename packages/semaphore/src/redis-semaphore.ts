/**
 * This entry exports the classes, options, keys and errors of redis-semaphore 5. A migration is one changed import:
 *
 * ```ts
 * import { LostLockError, Mutex, Semaphore } from "@x/semaphore/redis-semaphore";
 * ```
 *
 * On the same keys, locks of this entry and locks of redis-semaphore exclude each other, so a fleet may migrate process
 * by process. Differences to redis-semaphore:
 * - The server's clock decides when permits of a semaphore expire, not the clocks of the clients.
 * - `isAcquired` becomes false when the lease ends by this process's own clocks, even if no node answers.
 * - A failed refresh decides nothing, and causes no unhandled rejection. The lock is lost when a node reports the loss,
 *   or when the lease ends. By default the lock is refreshed three times per `lockTimeout`, not once.
 * - `RedlockMutex` subtracts the time of the acquisition from the lease, and does not wait for a node that hangs.
 * - `RedlockSemaphore` and `RedlockMultiSemaphore` take one client. Several clients would admit more than `limit`.
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
