/** Pure: figures of observed terms. */

/** The time from the moment at which a program learned that it leads to the last moment at which it believed so. */
export interface TermInterval {
  readonly fromMs: number;
  readonly toMs: number;
}

/** Counts the terms that began while another term lasted. */
export function countTwoLeaders(terms: readonly TermInterval[]): number {
  let count = 0;
  let untilMs = Number.NEGATIVE_INFINITY;
  for (const { fromMs, toMs } of terms.toSorted((a, b) => a.fromMs - b.fromMs)) {
    if (fromMs < untilMs) count += 1;
    untilMs = Math.max(untilMs, toMs);
  }
  return count;
}
