/** Pure: checks that several options share, and the only function that makes `Date` objects. */
import { type Check, integer, text, textLike } from "@x/redlock-core/kit";
import { MAX_RESOURCE_BYTES } from "@x/redlock-core/protocol";

/**
 * The limit counts UTF-16 units. Messages of Redis Pub/Sub and side keys contain the text. Longer texts belong in a
 * separate store.
 */
const LONGEST_TEXT = 4_096;

/** The resource of an election's lock is its name after this text. */
export const LEADER = "leader:";
const LONGEST_ELECTION = MAX_RESOURCE_BYTES - LEADER.length;

export const electionName: Check<string> = textLike(
  `a string of 1 to ${LONGEST_ELECTION} bytes`,
  (given) => given !== "" && Buffer.byteLength(given) <= LONGEST_ELECTION,
);
export const name: Check<string> = text({ min: 1, max: LONGEST_TEXT });
export const proclaimedValue: Check<string> = text({ max: LONGEST_TEXT });
export const durationMs: Check<number> = integer({ min: 1 });
export const durationOrNoneMs: Check<number> = integer({ min: 0 });

/**
 * Returns the `Date` of a number of milliseconds since the Unix epoch. The number comes from a clock or a calendar. The
 * function never reads the current time.
 */
export function dateOf(ms: number): Date {
  // oxlint-disable-next-line eslint/no-restricted-globals -- a value for the caller; the time in it is an argument
  return new Date(ms);
}

/** The greatest time that a `Date` can hold, in ms. */
const GREATEST_TIME_MS = 8_640_000_000_000_000;

/** Reports whether a value from a node is a time in ms that a `Date` can hold. */
export function isTime(value: unknown): value is number {
  return typeof value === "number" && Math.abs(value) <= GREATEST_TIME_MS;
}
