/** Pure: what the options of this package have in common, and the one place that makes `Date` objects. */
import { type Check, integer, text } from "@x/redlock-core/protocol";

/**
 * The limit is in UTF-16 units. Redis Pub/Sub messages and side keys carry the text; more belongs into a store of its
 * own.
 */
const LONGEST_TEXT = 4_096;

export const name: Check<string> = text({ min: 1, max: LONGEST_TEXT });
export const proclaimedValue: Check<string> = text({ max: LONGEST_TEXT });
export const durationMs: Check<number> = integer({ min: 1 });
export const durationOrNoneMs: Check<number> = integer({ min: 0 });

/**
 * Returns the `Date` of a number of milliseconds since the Unix epoch. The number is one that a clock or a calendar
 * gave, never the current time.
 */
export function dateOf(ms: number): Date {
  // oxlint-disable-next-line eslint/no-restricted-globals -- a value for the caller; the time in it is an argument
  return new Date(ms);
}
