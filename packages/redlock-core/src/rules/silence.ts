/** Pure: how long a connection may say nothing, or that its server is read-only. */

/**
 * Returns how long nothing may come from a connection before it is taken for dead. The time counts from a request
 * that was not answered in time, from its opening, or from the question for a sign of life.
 */
export function deadConnectionMs(nodeTimeoutMs: number): number {
  return Math.max(20 * nodeTimeoutMs, 15_000);
}

/**
 * Returns how often the connections for messages are asked for a sign of life while somebody waits. They are idle by
 * design.
 */
export function messageCheckMs(nodeTimeoutMs: number): number {
  return Math.min(Math.max(20 * nodeTimeoutMs, 1_000), 15_000);
}

/**
 * A node that refuses to write as a replica for this long is connected anew. A primary that was demoted keeps its
 * connections, and its name may lead to the new primary.
 */
export const READ_ONLY_MS = 3_000;
