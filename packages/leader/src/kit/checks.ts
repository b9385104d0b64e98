/** Pure: what the options of this package have in common. */
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
