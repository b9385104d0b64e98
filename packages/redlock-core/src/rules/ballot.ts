/**
 * Pure: the fencing token that a client proposes.
 *
 * Every attempt proposes one number to all nodes; a node grants it only if it is above the last one that it granted.
 * Any two grants share a node, which accepted both in increasing order. So tokens increase with one round trip,
 * whatever the clocks do.
 *
 * The clock only makes a first guess that is likely to be above.
 */

/**
 * Ballots count microseconds. A process keeps these low digits for itself, so that two processes rarely propose the
 * same number.
 */
export const DIGITS_PER_PROCESS = 1_000;

/** A node refuses a ballot that is further than this ahead of its own time and of its stored token. */
export const CLAMP_US = 500_000;

/**
 * Returns the next ballot: above everything seen for the resource, and near the (corrected) wall clock. It is at most
 * 2^53 - 1 until the year 2255.
 * @throws if the number is larger, because it would lose its last digit.
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
