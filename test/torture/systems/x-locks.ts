import { Redlock } from "@x/redlock-core";
import type { LockSystem } from "./system.ts";

export const system: LockSystem = {
  kind: "locks",
  package: "@x/redlock-core",
  title: "@x/redlock-core",
  configuration: `new Redlock([url, url, url], { ttl: lease, maxTtl: lease })
redlock.using(key, (lock) => …)`,
  question: "`lock.isHeld()`; the store compares `lock.fencingToken`",
  promises:
    "Promises exclusion while clocks advance at nearly the same rate and no node forgets a lock unnoticed, and that the store can refuse a late write.",
  open: (nodes, leaseMs) => {
    const urls = nodes.map(({ host, port }) => `redis://${host}:${port}`);
    const redlock = new Redlock(urls, { ttl: leaseMs, maxTtl: leaseMs });
    return (key, work) =>
      redlock.using(key, (lock) => work({ isHeld: () => lock.isHeld(), fencingToken: lock.fencingToken }));
  },
};
