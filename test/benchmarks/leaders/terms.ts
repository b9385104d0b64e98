/** Pure: what is made of observed terms. */

/** From the moment at which a program learned that it leads to the last one at which it believed so. */
export interface TermInterval {
  readonly fromMs: number;
  readonly toMs: number;
}

/** How many terms began while another one lasted. */
export function countTwoLeaders(terms: readonly TermInterval[]): number {
  let count = 0;
  let untilMs = Number.NEGATIVE_INFINITY;
  for (const { fromMs, toMs } of terms.toSorted((a, b) => a.fromMs - b.fromMs)) {
    if (fromMs < untilMs) count += 1;
    untilMs = Math.max(untilMs, toMs);
  }
  return count;
}
