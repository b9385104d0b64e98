import { ExclusiveWorker } from "@x/workers";
import { Queue } from "bullmq";
import { CONCURRENCY, type JobData, QUEUE, type QueueSystem } from "./system.ts";

export const system: QueueSystem = {
  kind: "queue",
  server: "redis",
  package: "@x/workers",
  title: "@x/workers on BullMQ",
  configuration: `new ExclusiveWorker(queue, process, { connection, concurrency: ${CONCURRENCY}, key: "key", withoutKey: "fail", resource: "account:",
  onFailure: "block", lockDuration: lease, stalledInterval: lease / 2, maxStalledCount: 1000 })
queue.add("task", data, { jobId, attempts: 1000, backoff: { type: "fixed", delay: 100 } })`,
  question: "`lock.isHeld()`; the store compares `lock.fencingToken`",
  promises:
    "Promises one job per key at a time, in order through retries, and no lost job while Redis keeps its data. Runs a job at least once.",
  openProducer: async (address) => {
    const queue = new Queue<JobData>(QUEUE, { connection: { ...address, maxRetriesPerRequest: null } });
    queue.on("error", () => undefined);
    await queue.waitUntilReady();
    return {
      add: async (data, id) => {
        await queue.add("task", data, { jobId: id, attempts: 1_000, backoff: { type: "fixed", delay: 100 } });
      },
      close: () => queue.close(),
    };
  },
  startWorker: (address, leaseMs, process) => {
    const worker = new ExclusiveWorker<JobData, void>(
      QUEUE,
      ({ data }, _token, _signal, lock) =>
        process(data, { isHeld: () => lock.isHeld(), fencingToken: lock.fencingToken }),
      {
        connection: { ...address, maxRetriesPerRequest: null },
        concurrency: CONCURRENCY,
        key: "key",
        withoutKey: "fail",
        resource: "account:",
        onFailure: "block",
        lockDuration: leaseMs,
        stalledInterval: leaseMs / 2,
        maxStalledCount: 1_000,
      },
    );
    worker.on("error", () => undefined);
  },
};
