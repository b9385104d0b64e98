/** Pure: what is made of samples. */

/** The value below which the share `part` of the samples lies; NaN without samples. */
export function quantile(samples: readonly number[], part: number): number {
  if (samples.length === 0) return Number.NaN;
  const sorted = samples.toSorted((a, b) => a - b);
  const position = part * (sorted.length - 1);
  const below = sorted[Math.floor(position)] ?? Number.NaN;
  const above = sorted[Math.ceil(position)] ?? Number.NaN;
  return below + (above - below) * (position - Math.floor(position));
}

export function median(samples: readonly number[]): number {
  return quantile(samples, 0.5);
}

/** The middle of the samples, and the quartiles around it. */
export interface Spread {
  readonly median: number;
  readonly low: number;
  readonly high: number;
}

export function spread(samples: readonly number[]): Spread {
  return { median: median(samples), low: quantile(samples, 0.25), high: quantile(samples, 0.75) };
}

/**
 * Of each round, a driver's value against the base's value *of the same round*. A machine whose speed changes from minute to minute
 * changes both.
 */
export function ratios(values: readonly number[], base: readonly number[]): readonly number[] {
  return values.flatMap((value, round) => {
    const other = base[round];
    return other === undefined || !(other > 0) ? [] : [value / other];
  });
}

export function medianRatio(values: readonly number[], base: readonly number[]): number {
  return median(ratios(values, base));
}

/** Jain's index of fairness: 1 when all got the same, 1/n when one got everything. */
export function fairness(shares: readonly number[]): number {
  const sum = shares.reduce((total, share) => total + share, 0);
  const squares = shares.reduce((total, share) => total + share * share, 0);
  return squares === 0 ? Number.NaN : (sum * sum) / (shares.length * squares);
}

/** Another order in each round, so that nobody always runs after the same other. */
export function rotated<Item>(items: readonly Item[], round: number): readonly Item[] {
  const start = items.length === 0 ? 0 : round % items.length;
  return [...items.slice(start), ...items.slice(0, start)];
}
