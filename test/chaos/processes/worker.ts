/** Processes jobs, one per key at a time. */
import { setTimeout as delay } from "node:timers/promises";
import { Redlock } from "@x/redlock-core";
import { machineMs } from "@x/test-support";
import { type ExclusiveProcessorFunction, ExclusiveWorker } from "@x/workers";
import { PAYMENTS, processArguments, REFUNDS } from "./arguments.ts";
import { Holding, tell } from "./tell.ts";

const { lockNodes, queue, maxTtl } = processArguments();
const redlock = new Redlock(lockNodes, { ttl: maxTtl, maxTtl, nodeTimeout: 150 });

type Job = { readonly key: string; readonly seq: number };

const work: ExclusiveProcessorFunction<Job, string, string> = async (job, _token, _signal, lock) => {
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
};
const options = {
  connection: { ...queue, maxRetriesPerRequest: null },
  key: "key",
  concurrency: 5,
  lockDuration: maxTtl,
  stalledInterval: 700,
  maxStalledCount: 1_000,
  onFailure: "block",
  recheckInterval: 1_000,
} as const;

for (const worker of [
  new ExclusiveWorker(PAYMENTS, work, { ...options, redlock }),
  new ExclusiveWorker(REFUNDS, work, options),
]) {
  worker.on("error", () => undefined);
}
