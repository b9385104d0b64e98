/** Pure: the pause before the next attempt, when nodes did not answer or refuse without a hint. */

/**
 * Returns `delayMs`, doubled per failed attempt up to `maxDelayMs`, plus a random share of `jitterMs` (`fraction` in
 * [0, 1)).
 *
 * The random share keeps two clients that split the nodes between them from meeting again. (Redis' page: "a random
 * delay, to desynchronize".)
 */
export function retryDelayMs(input: {
  readonly failures: number;
  readonly delayMs: number;
  readonly maxDelayMs: number;
  readonly jitterMs: number;
  readonly fraction: number;
}): number {
  const backedOff = input.delayMs * 2 ** Math.min(Math.max(input.failures - 1, 0), 30);
  return Math.min(backedOff, input.maxDelayMs) + input.fraction * input.jitterMs;
}
