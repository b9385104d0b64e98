/** The kinds of metrics: durations, shares, and gauges that are 1 or 0. */
import type { Histogram, Meter, ObservableResult } from "@opentelemetry/api";

/** Bucket boundaries in seconds, from a local grant to a lease of minutes. */
const BUCKETS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300];
/** The alerts compare with a third, so 0.33 is a boundary. */
const SHARES = [0, 0.1, 0.2, 0.33, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1];

export function durations(meter: Meter, name: string, description = ""): Histogram {
  return meter.createHistogram(name, { description, unit: "s", advice: { explicitBucketBoundaries: BUCKETS } });
}

export function shares(meter: Meter, name: string, description: string): Histogram {
  return meter.createHistogram(name, { description, unit: "1", advice: { explicitBucketBoundaries: SHARES } });
}

/**
 * A gauge that is 1 or 0 for each of several subjects. The attribute names the subject, which appears with its first
 * change.
 */
export class Switches {
  /** The time from which a subject is on, by `performance.now()`. */
  readonly #onFromMs = new Map<string, number>();
  readonly stop: () => void;

  constructor(
    meter: Meter,
    attribute: string,
    { name, description }: { readonly name: string; readonly description: string },
  ) {
    const gauge = meter.createObservableGauge(name, { description });
    const observe = (result: ObservableResult): void => {
      const now = nowMs();
      for (const [which, onFromMs] of this.#onFromMs) result.observe(now >= onFromMs ? 1 : 0, { [attribute]: which });
    };
    gauge.addCallback(observe);
    this.stop = () => gauge.removeCallback(observe);
  }

  set(which: string, isOn: boolean): void {
    this.#onFromMs.set(which, isOn ? 0 : Number.POSITIVE_INFINITY);
  }

  /** Turns a subject off, and on again after `ms`. */
  pause(which: string, ms: number): void {
    this.#onFromMs.set(which, nowMs() + ms);
  }
}

function nowMs(): number {
  // oxlint-disable-next-line eslint/no-restricted-globals -- no Clock: only what is exported depends on it
  return performance.now();
}
