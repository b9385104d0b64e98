/** Names of the queue, and prefixes of its keys and of the locks of keys. */
export const QUEUE = "lanes";
export const PREFIX = `bull:${QUEUE}:`;
/** Prefix of a lock's name, in front of the key. */
export const LOCK_PREFIX = "lock:";
