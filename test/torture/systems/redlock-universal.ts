import { Redis } from "ioredis";
import { createRedlock, IoredisAdapter } from "redlock-universal";
import type { LockSystem } from "./system.ts";

export const system: LockSystem = {
  kind: "locks",
  package: "redlock-universal",
  title: "redlock-universal",
  configuration: `createRedlock({ adapters: [new IoredisAdapter(new Redis(…)), …], key, ttl: lease })  // 3 adapters, else the defaults
lock.using(async (signal) => …)`,
  question: "`signal.aborted`",
  promises:
    "Documents that locks of several nodes are safe even if nodes crash, and a signal that is aborted when the lock is lost. Offers no fencing tokens.",
  open: (nodes, leaseMs) => {
    const adapters = nodes.map(
      ({ host, port }) => new IoredisAdapter(new Redis(port, host).on("error", () => undefined)),
    );
    return (key, work) =>
      createRedlock({ adapters, key, ttl: leaseMs }).using((signal) => work({ isHeld: () => !signal.aborted }));
  },
};
