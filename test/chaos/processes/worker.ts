/** Processes jobs, one per key at a time. */
import { setTimeout as delay } from "node:timers/promises";
import { Redlock } from "@x/redlock-core";
import { machineMs } from "@x/test-support";
import { ExclusiveWorker } from "@x/workers";
import { processArguments, QUEUE } from "./arguments.ts";
import { Holding, tell } from "./tell.ts";

const { lockNodes, queue, maxTtl } = processArguments();
const redlock = new Redlock(lockNodes, { ttl: maxTtl, maxTtl, nodeTimeout: 150 });

const worker = new ExclusiveWorker<{ key: string; seq: number }, string>(
  QUEUE,
  async (job, _token, _signal, lock) => {
    const { key, seq } = job.data;
    tell({ type: "job", key, seq, atMs: machineMs() });
    const holding = new Holding(key, lock.fencingToken, () => lock.isHeld());
    for (let step = 0; step < 3; step += 1) {
      await delay(Math.random() * 15);
      const isHeld = holding.see();
      holding.write();
      if (!isHeld) throw new Error("lost");
    }
    holding.see("end");
    return "done";
  },
  {
    connection: { ...queue, maxRetriesPerRequest: null },
    key: "key",
    redlock,
    concurrency: 5,
    lockDuration: maxTtl,
    stalledInterval: 700,
    maxStalledCount: 1_000,
    onFailure: "block",
    recheckInterval: 1_000,
  },
);
worker.on("error", () => undefined);
