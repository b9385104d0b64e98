/** Metrics of locks. */

import type { Meter, MetricOptions } from "@opentelemetry/api";
import type { RedlockEvents, RedlockTraces } from "@x/redlock-core";
import { listen, listenToCalls } from "./channels.ts";
import { idOf, type NameOf, nameOfAll } from "./names.ts";

/** Seconds: from a local grant to a lease of minutes. */
const BUCKETS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300];

/** Options of every histogram of durations. */
export const SECONDS: MetricOptions = { unit: "s", advice: { explicitBucketBoundaries: BUCKETS } };

/** Options of every histogram of shares. A third is a bound, since the alerts ask for it. */
export const SHARE: MetricOptions = {
  unit: "1",
  advice: { explicitBucketBoundaries: [0, 0.1, 0.2, 0.33, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1] },
};

export function lockMetrics(meter: Meter, nameOf: NameOf): () => void {
  const waited = meter.createHistogram("x.lock.wait.duration", {
    description: "From the call to its end",
    ...SECONDS,
  });
  const heldFor = meter.createHistogram("x.lock.hold.duration", {
    description: "From the grant to the release or the loss",
    ...SECONDS,
  });
  const validity = meter.createHistogram("x.lock.validity.remaining", {
    description: "What is left of a lock's validity after a renewal succeeded or failed: the early warning",
    ...SECONDS,
  });
  const share = meter.createHistogram("x.lock.validity.share", {
    description: "The same as a share of the lock's ttl",
    ...SHARE,
  });
  const held = meter.createUpDownCounter("x.lock.held", { description: "Locks that are held", unit: "{lock}" });
  const waiting = meter.createUpDownCounter("x.lock.waiting", { description: "Calls under way", unit: "{call}" });
  const lost = meter.createCounter("x.lock.lost", { description: "Locks lost under their holder", unit: "{lock}" });
  const nodeUp = meter.createObservableGauge("x.lock.node.up", {
    description: "1: it votes. 0: it is down, or in quarantine. From its first change on",
  });
  const name = (resources: readonly string[]) => ({ "x.lock.name": nameOfAll(resources, nameOf) });
  const holders = new Set<string>();
  const begun = new WeakSet<RedlockTraces["acquire"]>();
  const nodes = new Map<string, number>();

  const ended = (message: RedlockEvents["release"] | RedlockEvents["lost"]): void => {
    const { resources, heldMs } = message;
    // A lock that was lost is told again when it is released, and one that was held before is not counted.
    if (!holders.delete(idOf(message))) return;
    held.add(-1, name(resources));
    heldFor.record(heldMs / 1_000, name(resources));
  };
  const observeNodes = (result: { observe(value: number, attributes: { "x.lock.node": string }): void }): void => {
    for (const [node, up] of nodes) result.observe(up, { "x.lock.node": node });
  };
  nodeUp.addCallback(observeNodes);
  const stops = [
    listen("x.redlock.acquire", ({ resources, outcome, waitMs, fencingToken }) => {
      waited.record(waitMs / 1_000, { ...name(resources), "x.lock.outcome": outcome });
      if (fencingToken === undefined) return;
      holders.add(idOf({ resources, fencingToken }));
      held.add(1, name(resources));
    }),
    listen("x.redlock.release", ended),
    listen("x.redlock.lost", (message) => {
      lost.add(1, { ...name(message.resources), "x.lock.loss_reason": message.reason });
      ended(message);
    }),
    listen("x.redlock.extend", ({ resources, extended, remainingMs, ttlMs }) => {
      const attributes = { ...name(resources), "x.lock.extended": extended };
      validity.record(remainingMs / 1_000, attributes);
      // A shorter ttl at a renewal does not shorten what was had.
      share.record(Math.min(1, remainingMs / ttlMs), attributes);
    }),
    listen("x.redlock.node", ({ node, state }) => {
      nodes.set(node, state === "ready" ? 1 : 0);
    }),
    listenToCalls<RedlockTraces["acquire"]>("x.redlock:acquire", {
      begins: (facts) => {
        begun.add(facts);
        waiting.add(1, name(facts.resources));
      },
      ends: (facts) => {
        if (begun.delete(facts)) waiting.add(-1, name(facts.resources));
      },
    }),
  ];
  return () => {
    for (const stop of stops) stop();
    nodeUp.removeCallback(observeNodes);
  };
}
