import type { LockSystem, QueueSystem, SystemName } from "./system.ts";

/** Loads one driver, and with it the library of that system alone. */
export const loadSystem: Readonly<Record<SystemName, () => Promise<LockSystem | QueueSystem>>> = {
  "x-locks": async () => (await import("./x-locks.ts")).system,
  "x-workers": async () => (await import("./x-workers.ts")).system,
  redlock5: async () => (await import("./redlock5.ts")).system,
  redlock4: async () => (await import("./redlock4.ts")).system,
  "redis-semaphore": async () => (await import("./redis-semaphore.ts")).system,
  "redlock-universal": async () => (await import("./redlock-universal.ts")).system,
  groupmq: async () => (await import("./groupmq.ts")).system,
  "pg-boss": async () => (await import("./pg-boss.ts")).system,
};
