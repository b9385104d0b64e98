/** Pure: figures of samples. */

/** Returns the value below which the share `part` of the samples lies. NaN without samples. */
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
 * Returns the ratio of a driver's value to the base's value *of the same round*, for each round. A machine whose speed
 * changes from minute to minute changes both values.
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

/** Returns Jain's index of fairness: 1 if all shares are equal, 1/n if one of n receives everything. */
export function fairness(shares: readonly number[]): number {
  const sum = shares.reduce((total, share) => total + share, 0);
  const squares = shares.reduce((total, share) => total + share * share, 0);
  return squares === 0 ? Number.NaN : (sum * sum) / (shares.length * squares);
}

/** Returns the items in another order for each round, so that no item always runs after the same other item. */
export function rotated<Item>(items: readonly Item[], round: number): readonly Item[] {
  const start = items.length === 0 ? 0 : round % items.length;
  return [...items.slice(start), ...items.slice(0, start)];
}
