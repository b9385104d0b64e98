/** Acquires and releases locks, some with waits and cancellations, and reports the memory that remains after the first ones. */
import { getEventListeners } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { Redlock } from "@x/redlock-core";

declare const gc: () => void;

const [path = "", measured = "0"] = process.argv.slice(2);
const redlock = new Redlock([{ path }], { timeout: 120_000, nodeTimeout: 30_000 });
const shared = new AbortController();
let operations = 0;

async function pairs(count: number): Promise<void> {
  await Promise.all(
    Array.from({ length: 100 }, async (_, caller) => {
      for (let index = 0; index < count / 100; index += 1) {
        const resource = `r:${(caller * 7_919 + index * 31) % 20_000}`;
        const lock = await redlock.acquire(resource, { signal: shared.signal });
        void lock.signal;
        await lock.release();
        operations += 2;
      }
    }),
  );
  const holder = await redlock.acquire("contended");
  for (let index = 0; index < 200; index += 1) {
    const controller = new AbortController();
    const cancelled = redlock.acquire("contended", { signal: controller.signal }).catch(() => undefined);
    if (index % 10 === 0) await redlock.inspect("contended");
    controller.abort();
    await cancelled;
  }
  await holder.release();
}

async function usedBytes(): Promise<number> {
  for (let round = 0; round < 5; round += 1) {
    gc();
    await delay(50);
  }
  return process.memoryUsage().heapUsed;
}

await pairs(50_000);
operations = 0;
const before = await usedBytes();
await pairs(Number(measured));
const grownBytes = (await usedBytes()) - before;
const timers = process.getActiveResourcesInfo().filter((name) => name === "Timeout").length;
process.send?.({ operations, grownBytes, timers, listeners: getEventListeners(shared.signal, "abort").length });
await redlock.close();
