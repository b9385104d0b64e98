/** Pure: the errors of redis-semaphore, by its names. */

/** The lock is lost: a node says that it is not ours any more, or its time is over. */
export class LostLockError extends Error {}

/** The lock was not free within `acquireTimeout`, or `acquireAttemptsLimit`. */
export class TimeoutError extends Error {}
