import { createRequire } from "node:module";
import { Redis } from "ioredis";
import type { LockSystem } from "./system.ts";

interface Lock4 {
  extend(ttlMs: number): Promise<Lock4>;
  unlock(): Promise<unknown>;
}

type Redlock4 = new (
  clients: readonly Redis[],
) => {
  on(event: "clientError", listener: () => void): unknown;
  lock(resource: string, ttlMs: number): Promise<Lock4>;
};

// The types of redlock 4 do not resolve here.
const NodeRedlock = createRequire(import.meta.url)("redlock4") as Redlock4;

export const system: LockSystem = {
  kind: "locks",
  package: "redlock4",
  title: "redlock 4",
  configuration: `new Redlock([new Redis(…), new Redis(…), new Redis(…)])  // the defaults
lock = await redlock.lock(key, lease); …; await lock.unlock()`,
  question: "`lock = await lock.extend(lease)`, which rejects if the lock is lost",
  promises: "Documents that a lock can be extended as long as it never expires. Offers no fencing tokens.",
  open: (nodes, leaseMs) => {
    const redlock = new NodeRedlock(nodes.map(({ host, port }) => new Redis(port, host).on("error", () => undefined)));
    redlock.on("clientError", () => undefined);
    return async (key, work) => {
      let lock = await redlock.lock(key, leaseMs);
      const isHeld = async (): Promise<boolean> => {
        try {
          lock = await lock.extend(leaseMs);
          return true;
        } catch {
          return false;
        }
      };
      try {
        await work({ isHeld });
      } finally {
        await lock.unlock();
      }
    };
  },
};
