/** Pure: which keys of a queue a script is given. */

/**
 * The keys of a queue that a fetch is given, in BullMQ's order. The script for many ends has the same, to fetch with;
 * BullMQ's end has those of its one job between the last two.
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

/** Returns the keys of the queue whose keys begin with this. */
export function queueKeys(prefix: string): string[] {
  return KEY_NAMES.map((name) => `${prefix}${name}`);
}
