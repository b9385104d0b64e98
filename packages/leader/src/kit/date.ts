/**
 * No other file makes `Date` objects. They are made of numbers that a clock or a calendar gave, never of the current
 * time.
 */

/** Returns the `Date` of a number of milliseconds since the Unix epoch. */
export function dateOf(ms: number): Date {
  // oxlint-disable-next-line eslint/no-restricted-globals -- a value for the caller; the time in it is an argument
  return new Date(ms);
}
