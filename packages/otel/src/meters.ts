/** The kinds of metrics that there are: durations, shares, and what is up or down. */
import type { Histogram, Meter, ObservableResult } from "@opentelemetry/api";

/** Seconds: from a local grant to a lease of minutes. */
const BUCKETS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300];
/** A third is a bound, since the alerts ask for it. */
const SHARES = [0, 0.1, 0.2, 0.33, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1];

export function durations(meter: Meter, name: string, description = ""): Histogram {
  return meter.createHistogram(name, { description, unit: "s", advice: { explicitBucketBoundaries: BUCKETS } });
}

export function shares(meter: Meter, name: string, description: string): Histogram {
  return meter.createHistogram(name, { description, unit: "1", advice: { explicitBucketBoundaries: SHARES } });
}

/** A gauge that is 1 or 0 for each of several things, which the attribute names, from the first change of each on. */
export class Switches {
  /** From when each is on, by `performance.now()`. */
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

  /** Turns it off, and on again after this time. */
  pause(which: string, ms: number): void {
    this.#onFromMs.set(which, nowMs() + ms);
  }
}

function nowMs(): number {
  // oxlint-disable-next-line eslint/no-restricted-globals -- no Clock: only what is exported depends on it
  return performance.now();
}
