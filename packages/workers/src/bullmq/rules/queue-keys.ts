/** Pure: the Redis keys of a queue that are passed to a script. */

/**
 * Names of the keys that a fetch receives, in BullMQ's order. The script that ends many jobs receives the same keys,
 * because it also fetches. BullMQ's script for a single end has the keys of its job between the last two.
 */
const KEY_NAMES = [
  "wait",
  "active",
  "prioritized",
  "events",
  "stalled",
  "limiter",
  "delayed",
  "paused",
  "meta",
  "pc",
  "marker",
];
export const QUEUE_KEY_COUNT: number = KEY_NAMES.length;

export function queueKeys(prefix: string): string[] {
  return KEY_NAMES.map((name) => `${prefix}${name}`);
}
