/** Metrics of locks. */

import type { Attributes, Meter } from "@opentelemetry/api";
import type { RedlockEvents, RedlockTraces } from "@x/redlock-core";
import { allOf, listen, listenToCalls } from "./channels.ts";
import { durations, Switches, shares } from "./meters.ts";
import { idOf, type NameOf, nameOfAll } from "./names.ts";

export function lockMetrics(meter: Meter, nameOf: NameOf): () => void {
  const waited = durations(meter, "x.lock.wait.duration", "From the call to its end");
  const heldFor = durations(meter, "x.lock.hold.duration", "From the grant to the release or the loss");
  const validity = durations(
    meter,
    "x.lock.validity.remaining",
    "What is left of a lock's validity after a renewal succeeded or failed: the early warning",
  );
  const share = shares(meter, "x.lock.validity.share", "The same as a share of the lock's ttl");
  const held = meter.createUpDownCounter("x.lock.held", { description: "Locks that are held", unit: "{lock}" });
  const waiting = meter.createUpDownCounter("x.lock.waiting", { description: "Calls under way", unit: "{call}" });
  const lost = meter.createCounter("x.lock.lost", { description: "Locks lost under their holder", unit: "{lock}" });
  const nodeUp = new Switches(meter, "x.lock.node", {
    name: "x.lock.node.up",
    description: "1: it votes. 0: it is down, or in quarantine. From its first change on",
  });
  const name = (resources: readonly string[]) => ({ "x.lock.name": nameOfAll(resources, nameOf) });
  /**
   * Attributes of the held locks, and of the calls under way: the counters go down with the attributes with which they
   * went up.
   */
  const holders = new Map<string, Attributes>();
  const begun = new Map<RedlockTraces["acquire"], Attributes>();

  const ended = (message: RedlockEvents["released"] | RedlockEvents["lost"]): void => {
    const { heldMs } = message;
    // A lost lock is reported a second time at its release. A lock that was acquired before `instrument` is not
    // counted.
    const id = idOf(message);
    const attributes = holders.get(id);
    if (!holders.delete(id)) return;
    held.add(-1, attributes);
    heldFor.record(heldMs / 1_000, attributes);
  };
  const onExtension = ({ resources, remainingMs, ttlMs }: RedlockEvents["extended"], isExtended: boolean): void => {
    const attributes = { ...name(resources), "x.lock.extended": isExtended };
    validity.record(remainingMs / 1_000, attributes);
    // A renewal with a shorter ttl does not shorten the current validity.
    share.record(Math.min(1, remainingMs / ttlMs), attributes);
  };
  return allOf([
    nodeUp.stop,
    listen("x.redlock.acquired", ({ resources, waitMs, fencingToken }) => {
      const attributes = name(resources);
      waited.record(waitMs / 1_000, { ...attributes, "x.lock.outcome": "acquired" });
      holders.set(idOf({ resources, fencingToken }), attributes);
      held.add(1, attributes);
    }),
    listen("x.redlock.acquireFailed", ({ resources, reason, waitMs }) =>
      waited.record(waitMs / 1_000, { ...name(resources), "x.lock.outcome": reason }),
    ),
    listen("x.redlock.released", ended),
    listen("x.redlock.lost", (message) => {
      lost.add(1, { ...name(message.resources), "x.lock.loss_reason": message.reason });
      ended(message);
    }),
    listen("x.redlock.extended", (message) => onExtension(message, true)),
    listen("x.redlock.extendFailed", (message) => onExtension(message, false)),
    // The end of a quarantine is not reported.
    listen("x.redlock.nodeChanged", ({ node, state, quarantineLeftMs }) => {
      if (quarantineLeftMs === undefined) nodeUp.set(node, state === "ready");
      else nodeUp.pause(node, quarantineLeftMs);
    }),
    listenToCalls<RedlockTraces["acquire"]>("x.redlock:acquire", {
      begins: (facts) => {
        const attributes = name(facts.resources);
        begun.set(facts, attributes);
        waiting.add(1, attributes);
      },
      ends: (facts) => {
        const attributes = begun.get(facts);
        if (begun.delete(facts)) waiting.add(-1, attributes);
      },
    }),
    () => {
      for (const attributes of holders.values()) held.add(-1, attributes);
      for (const attributes of begun.values()) waiting.add(-1, attributes);
    },
  ]);
}
