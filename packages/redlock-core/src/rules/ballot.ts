/**
 * Pure: computes the fencing token that a client proposes.
 *
 * Every attempt proposes the same number to all nodes. A node grants the number only if it is above all numbers that
 * the node has granted before. Any two granted attempts share at least one node, which accepted their numbers in
 * increasing order. So tokens increase even if clocks are wrong, and need no further round trip.
 *
 * The clock only provides a first guess that is probably above all earlier numbers.
 */

/**
 * Ballots count microseconds. Each process reserves fixed low digits for itself, so that two processes rarely propose
 * the same number.
 */
export const DIGITS_PER_PROCESS = 1_000;

/** A node refuses a ballot that is more than this ahead of both its own clock and its stored token. */
export const CLAMP_US = 500_000;

/**
 * Returns the next ballot: above every number seen for the resource, and close to the corrected wall clock. Until the
 * year 2255 it is at most 2^53 - 1.
 * @throws if the number is larger, because its last digit would be rounded.
 */
export function nextBallot(input: {
  readonly lastSeen: number;
  readonly wallMs: number;
  readonly offsetUs: number;
  readonly processDigits: number;
}): number {
  const wallUs = Math.floor(input.wallMs) * 1_000 + input.processDigits + Math.round(input.offsetUs);
  const ballot = Math.max(input.lastSeen + 1, wallUs, 1);
  if (!Number.isSafeInteger(ballot)) throw new RangeError(`fencing token must be a safe integer, got ${ballot}`);
  return ballot;
}
