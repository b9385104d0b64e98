import { Queue, Worker } from "groupmq";
import { Redis } from "ioredis";
import { type Address, CONCURRENCY, type JobData, QUEUE, type QueueSystem } from "./system.ts";

function queueOn(address: Address, leaseMs: number): { readonly queue: Queue<JobData>; readonly redis: Redis } {
  const redis = new Redis({ ...address, maxRetriesPerRequest: null });
  redis.on("error", () => undefined);
  return { queue: new Queue<JobData>({ redis: redis as never, namespace: QUEUE, jobTimeoutMs: leaseMs }), redis };
}

export const system: QueueSystem = {
  kind: "queue",
  server: "redis",
  package: "groupmq",
  title: "groupmq",
  configuration: `new Queue({ redis, namespace, jobTimeoutMs: lease })
new Worker({ queue, concurrency: ${CONCURRENCY}, handler, stalledInterval: lease / 2, maxStalledCount: 1000 })
queue.add({ groupId: key, data, jobId, orderMs: Date.now(), maxAttempts: 1000 })`,
  question: "nothing: it documents no way to ask",
  promises:
    "Documents that one job per group is active at a time, in strict order, and that stalled jobs are recovered. Does not promise that a job runs only once.",
  openProducer: async (address, leaseMs) => {
    const { queue, redis } = queueOn(address, leaseMs);
    await redis.ping();
    return {
      add: async (data, id) => {
        await queue.add({ groupId: data.key, data, jobId: id, orderMs: Date.now(), maxAttempts: 1_000 });
      },
      close: async () => redis.disconnect(),
    };
  },
  startWorker: (address, leaseMs, process) => {
    const { queue } = queueOn(address, leaseMs);
    const worker = new Worker<JobData>({
      queue,
      concurrency: CONCURRENCY,
      handler: ({ data }) => process(data, { isHeld: () => true }),
      stalledInterval: leaseMs / 2,
      maxStalledCount: 1_000,
    });
    worker.on("error", () => undefined);
    void worker.run();
  },
};
