/** Pure: the pause after a failure. */

export interface BackOff {
  /** The failures in a row. The pause after the first one is `delayMs`, as it is after none. */
  readonly failures: number;
  readonly delayMs: number;
  readonly maxDelayMs: number;
}

/** Returns `delayMs`, doubled with each further failure, and at most `maxDelayMs`. */
export function backOffMs({ failures, delayMs, maxDelayMs }: BackOff): number {
  // 2^30 of any delay exceeds every maximum; beyond 2^1023 there is no number.
  return Math.min(delayMs * 2 ** Math.min(Math.max(failures - 1, 0), 30), maxDelayMs);
}

/**
 * Returns the pause before the next attempt, when nodes did not answer or refuse without a hint. It is the back-off,
 * plus a random share of `jitterMs` (`fraction` in [0, 1)).
 *
 * The random share keeps two clients that split the nodes between them from meeting again. (Redis' page: "a random
 * delay, to desynchronize".)
 */
export function retryDelayMs(input: BackOff & { readonly jitterMs: number; readonly fraction: number }): number {
  return backOffMs(input) + input.fraction * input.jitterMs;
}
