/** Pure: how long a candidate stays out after a failure, and how long it waits before it tries again. */

export interface Cooldown {
  /** After the first failure, in ms. */
  readonly initial: number;
  /** Never longer than this, in ms. */
  readonly max: number;
}

/** Doubles with each failure in a row, up to `max`; 0 failures: `initial`. */
export function cooldownMs(cooldown: Cooldown, failures: number): number {
  const doublings = Math.min(Math.max(failures - 1, 0), 30);
  return Math.min(cooldown.max, cooldown.initial * 2 ** doublings);
}

/** `ms` spread by ± `share`, by a random number in [0, 1). Never negative. */
export function jitteredMs(ms: number, share: number, random: number): number {
  return Math.max(0, ms * (1 + share * (2 * random - 1)));
}

/** A task that ran this long without failing has recovered: its earlier failures are forgotten. */
export function hasRecovered(cooldown: Cooldown, ranMs: number): boolean {
  return ranMs >= cooldown.max;
}
