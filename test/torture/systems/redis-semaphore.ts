import { Redis } from "ioredis";
import { RedlockMutex } from "redis-semaphore";
import type { LockSystem } from "./system.ts";

export const system: LockSystem = {
  kind: "locks",
  package: "redis-semaphore",
  title: "redis-semaphore",
  configuration: `new RedlockMutex([new Redis(…), new Redis(…), new Redis(…)], key, { lockTimeout: lease, onLockLost })
await mutex.acquire(); …; await mutex.release()  // refreshed every 0.8 leases, its default`,
  question: "`mutex.isAcquired`",
  promises:
    "Documents a distributed mutex by the Redlock algorithm, and `onLockLost` when a refresh finds it lost. Offers no fencing tokens.",
  open: (nodes, leaseMs) => {
    const clients = nodes.map(({ host, port }) => new Redis(port, host).on("error", () => undefined));
    return async (key, work) => {
      const mutex = new RedlockMutex(clients, key, { lockTimeout: leaseMs, onLockLost: () => undefined });
      await mutex.acquire();
      try {
        await work({ isHeld: () => mutex.isAcquired });
      } finally {
        await mutex.release();
      }
    };
  },
};
