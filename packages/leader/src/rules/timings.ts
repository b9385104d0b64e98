/** Pure: the durations of an election, and the cooldown of a candidate. */
import { backOffMs } from "@x/redlock-core/kit";

/** The three durations of an election, in integer milliseconds. */
export interface Durations {
  readonly leaseDuration: number;
  readonly renewDeadline: number;
  readonly retryPeriod: number;
}

/**
 * Kubernetes has the same default. The durations of Kubernetes are 15 s, 10 s and 2 s:
 * https://pkg.go.dev/k8s.io/client-go/tools/leaderelection
 */
const DEFAULT_LEASE_MS = 15_000;
const DEADLINE_SHARE = 2 / 3;
const RETRY_SHARE = 2 / 15;

export function defaultDurations(given: { readonly [Name in keyof Durations]: number | undefined }): Durations {
  const leaseDuration = given.leaseDuration ?? DEFAULT_LEASE_MS;
  return {
    leaseDuration,
    renewDeadline: given.renewDeadline ?? Math.floor(leaseDuration * DEADLINE_SHARE),
    retryPeriod: given.retryPeriod ?? Math.max(1, Math.floor(leaseDuration * RETRY_SHARE)),
  };
}

/** Pause of a candidate after a failure, and before it runs its task again. */
export interface Cooldown {
  /** The time after the first failure, in ms. */
  readonly initial: number;
  /** The longest time, in ms. */
  readonly max: number;
}

/** Returns the cooldown after a number of failures in a row. The cooldown doubles with each failure, up to `max`. */
export function cooldownMs({ initial, max }: Cooldown, failures: number): number {
  return backOffMs({ failures, delayMs: initial, maxDelayMs: max });
}

/** Returns `ms` spread by ± `share`, by a random number in [0, 1). The result is never negative. */
export function jitteredMs(ms: number, share: number, random: number): number {
  return Math.max(0, ms * (1 + share * (2 * random - 1)));
}

/** Reports whether a task that ran this long has recovered, so that its earlier failures do not count any more. */
export function hasRecovered(cooldown: Cooldown, ranMs: number): boolean {
  return ranMs >= cooldown.max;
}
