/** What stands before the names of the queue's keys, and of the keys of locks. */
export const QUEUE = "lanes";
export const PREFIX = `bull:${QUEUE}:`;
/** Stands before the key in the name of its lock. */
export const LOCK_PREFIX = "lock:";
