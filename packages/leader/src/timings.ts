/** Pure: what a choice of durations means, in numbers. */
import { backOffMs, driftMs, number, Schema, type ShapeOf } from "@x/redlock-core/protocol";
import { durationMs } from "./kit/checks.ts";

/** The three durations of an election, in integer milliseconds. */
export interface Durations {
  readonly leaseDuration: number;
  readonly renewDeadline: number;
  readonly retryPeriod: number;
}

export interface TimingsInput {
  /** The lease; default 15,000. */
  readonly leaseDuration?: number | undefined;
  /** The time without a renewal after which a term ends; default two thirds of the lease. */
  readonly renewDeadline?: number | undefined;
  /** The time between renewals; default 2/15 of the lease. */
  readonly retryPeriod?: number | undefined;
  /** The `driftFactor` of the `Redlock`; default 0.01. */
  readonly driftFactor?: number | undefined;
  /** The `nodeTimeout` of the `Redlock`; default 500. */
  readonly nodeTimeout?: number | undefined;
}

/** What follows from the durations, in milliseconds unless the name says otherwise. */
export interface Timings extends Durations {
  /** The time that clocks may drift apart over one lease: `ceil(lease × driftFactor) + 2`, as in Redlock. */
  readonly drift: number;
  /**
   * A crashed leader is replaced at the latest this long after its crash, plus one round trip. That is the lease which
   * it had just renewed.
   */
  readonly crashTakeoverMax: number;
  /** A crashed leader is replaced at the earliest after this long, if it crashed just before its next renewal. */
  readonly crashTakeoverMin: number;
  /**
   * The leader survives an outage of all nodes of this length, whenever it begins. The last renewal before it was at
   * most `retryPeriod` ago.
   */
  readonly outageSurvived: number;
  /** Nobody else can lead for this long after the term ended here. A task that stops late is still alone meanwhile. */
  readonly stopWindow: number;
  /** Clock rates may differ by this factor, `leaseDuration / renewDeadline`, before two terms can overlap. */
  readonly clockRateTolerated: number;
  /** The number of renewals that are started before the deadline ends a term, the first one included. */
  readonly renewalsPerDeadline: number;
  /**
   * The commands per second that a leader sends to each node: one renewal every `retryPeriod`, and its record once per
   * lease.
   */
  readonly leaderCommandsPerSecond: number;
  /**
   * The commands per second that a waiting candidate sends to each node, about, as measured. It asks again when the
   * lease that it saw would end.
   */
  readonly followerCommandsPerSecond: number;
}

/**
 * The default of Kubernetes, whose durations are 15 s, 10 s and 2 s:
 * https://pkg.go.dev/k8s.io/client-go/tools/leaderelection
 */
export const DEFAULT_LEASE_MS = 15_000;
const DEADLINE_SHARE = 2 / 3;
const RETRY_SHARE = 2 / 15;

const INPUT = new Schema({
  leaseDuration: durationMs.optional(),
  renewDeadline: durationMs.optional(),
  retryPeriod: durationMs.optional(),
  driftFactor: number({ min: 0, max: 0.5 }).default(0.01),
  nodeTimeout: durationMs.default(500),
} satisfies ShapeOf<TimingsInput>);

export function defaultDurations(given: TimingsInput): Durations {
  const leaseDuration = given.leaseDuration ?? DEFAULT_LEASE_MS;
  return {
    leaseDuration,
    renewDeadline: given.renewDeadline ?? Math.floor(leaseDuration * DEADLINE_SHARE),
    retryPeriod: given.retryPeriod ?? Math.max(1, Math.floor(leaseDuration * RETRY_SHARE)),
  };
}

/**
 * Returns the figures that one wants before choosing durations. It does not check how these relate:
 * `new LeaderElection` does.
 * @example deriveTimings({ leaseDuration: 15_000 }).crashTakeoverMax // 15_000
 */
export function deriveTimings(given: TimingsInput = {}): Timings {
  const { driftFactor, nodeTimeout, ...asked } = INPUT.resolve(given);
  const durations = defaultDurations(asked);
  const { leaseDuration, renewDeadline, retryPeriod } = durations;
  const drift = driftMs(leaseDuration, driftFactor);
  return Object.freeze({
    ...durations,
    drift,
    crashTakeoverMax: leaseDuration,
    crashTakeoverMin: Math.max(0, leaseDuration - retryPeriod - nodeTimeout),
    outageSurvived: Math.max(0, renewDeadline - retryPeriod - nodeTimeout),
    stopWindow: leaseDuration - drift - renewDeadline,
    clockRateTolerated: leaseDuration / renewDeadline,
    renewalsPerDeadline: Math.floor(renewDeadline / retryPeriod),
    leaderCommandsPerSecond: 1_000 / retryPeriod + 1_000 / leaseDuration,
    followerCommandsPerSecond: 2_000 / leaseDuration,
  });
}

/** How long a candidate stays out after a failure, and before it runs its task again. */
export interface Cooldown {
  /** The time after the first failure, in ms. */
  readonly initial: number;
  /** The longest time, in ms. */
  readonly max: number;
}

/** Returns the cooldown after so many failures in a row: it doubles with each, up to `max`. */
export function cooldownMs({ initial, max }: Cooldown, failures: number): number {
  return backOffMs({ failures, delayMs: initial, maxDelayMs: max });
}

/** Returns `ms` spread by ± `share`, by a random number in [0, 1). It is never negative. */
export function jitteredMs(ms: number, share: number, random: number): number {
  return Math.max(0, ms * (1 + share * (2 * random - 1)));
}

/** Tells whether a task that ran this long has recovered, so that its earlier failures are forgotten. */
export function hasRecovered(cooldown: Cooldown, ranMs: number): boolean {
  return ranMs >= cooldown.max;
}
