/** Acquires and releases locks forever. */
import { setTimeout as delay } from "node:timers/promises";
import { Redlock, RedlockError } from "@x/redlock-core";
import { processArguments, RESOURCES } from "./arguments.ts";
import { Holding, tell } from "./tell.ts";

const { lockNodes, maxTtl } = processArguments();
const redlock = new Redlock(lockNodes, { ttl: maxTtl, maxTtl, nodeTimeout: 150 });

async function work(resource: string): Promise<void> {
  const ttl = Math.round(maxTtl * (0.3 + 0.7 * Math.random()));
  const lock = await redlock.acquire(resource, { ttl, timeout: 3_000, autoExtend: Math.random() < 0.5 });
  const holding = new Holding(resource, lock.fencingToken, () => lock.isHeld());
  const steps = Math.floor(Math.random() * 30);
  for (let step = 0; step < steps && holding.see(); step += 1) {
    if (Math.random() < 0.3) holding.write();
    if (Math.random() < 0.1) await lock.extend().catch(() => undefined);
    await delay(Math.random() * 20);
  }
  holding.write();
  holding.see("end");
  await lock.release();
}

for (;;) {
  try {
    await work(RESOURCES[Math.random() < 0.7 ? 0 : 1]);
  } catch (error) {
    if (!(error instanceof RedlockError)) tell({ type: "trouble", message: String(error) });
  }
  await delay(Math.random() * 30);
}
