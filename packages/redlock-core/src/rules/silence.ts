/** Pure: decides how long a connection may stay silent, and how long its server may stay read-only. */

/**
 * Returns how long a connection may be silent before it counts as dead. The time starts with a request that was not
 * answered in time, with the opening of the connection, or with the request for a sign of life.
 */
export function deadConnectionMs(nodeTimeoutMs: number): number {
  return Math.max(20 * nodeTimeoutMs, 15_000);
}

/**
 * Returns how often connections for messages are checked while a caller waits. Without traffic a dead connection looks
 * the same as an idle one.
 */
export function messageCheckMs(nodeTimeoutMs: number): number {
  return Math.min(Math.max(20 * nodeTimeoutMs, 1_000), 15_000);
}

/**
 * A node that refuses writes as a replica for this long is reconnected. A demoted primary keeps its connections, while
 * its name may already lead to the new primary.
 */
export const READ_ONLY_MS = 3_000;
