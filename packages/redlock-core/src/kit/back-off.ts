/** Pure: the pause after a failure. */

export interface BackOff {
  /** Number of successive failures. The pause is `delayMs` for both 0 and 1. */
  readonly failures: number;
  readonly delayMs: number;
  readonly maxDelayMs: number;
}

/** Returns `delayMs`, doubled with each further failure, and at most `maxDelayMs`. */
export function backOffMs({ failures, delayMs, maxDelayMs }: BackOff): number {
  // 2^30 times any delay exceeds every maximum. The limit keeps the power from becoming Infinity, which times 0 is NaN.
  return Math.min(delayMs * 2 ** Math.min(Math.max(failures - 1, 0), 30), maxDelayMs);
}

/**
 * Returns the pause before the next attempt if nodes did not answer, or refused without a hint: the back-off plus a
 * random share of `jitterMs`. `fraction` is a random number in [0, 1).
 *
 * If two clients split the nodes between them, the random share keeps them from colliding again. (Redis' page: "a
 * random delay, to desynchronize".)
 */
export function retryDelayMs(input: BackOff & { readonly jitterMs: number; readonly fraction: number }): number {
  return backOffMs(input) + input.fraction * input.jitterMs;
}
