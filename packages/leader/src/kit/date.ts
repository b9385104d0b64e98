/** The only file that makes `Date` objects: from numbers that a clock or a calendar gave, never from the current time. */

/** @param ms milliseconds since the Unix epoch */
export function dateOf(ms: number): Date {
  // oxlint-disable-next-line eslint/no-restricted-globals -- a value for the caller; the time in it is an argument
  return new Date(ms);
}
