/**
 * A process with a worker of all partitions of a queue on a Cluster. argv[2]: JSON `ClusterTask`. Writes its runs to a
 * list on a Redis outside the Cluster.
 */
import { setTimeout as delay } from "node:timers/promises";
import { PartitionedWorker } from "@x/workers/partitions";
import { Cluster, Redis } from "ioredis";
import type { Event } from "../support/history.ts";
import type { Data } from "../support/lab.ts";

export interface ClusterTask {
  readonly nodes: readonly { readonly host: string; readonly port: number }[];
  readonly partitions: number;
  readonly historyPath: string;
  /** In ms. Default 4,000. */
  readonly lockDuration?: number;
}

const task = JSON.parse(process.argv[2] ?? "{}") as ClusterTask;
const history = new Redis({ path: task.historyPath });
const cluster = new Cluster([...task.nodes], {
  redisOptions: { maxRetriesPerRequest: null },
  clusterRetryStrategy: () => 100,
});
cluster.on("error", () => {});

const worker = new PartitionedWorker<Data>(
  "q",
  async (job, _token, _signal, lock) => {
    const tell = async (what: Event["what"]): Promise<void> => {
      const { k, i } = job.data;
      const { pid } = process;
      const { fencingToken } = lock;
      const jobId = `${job.queueName}:${String(job.id)}`;
      const ns = String(process.hrtime.bigint());
      await history.rpush("history", JSON.stringify({ what, key: String(k), i, jobId, pid, fencingToken, ns }));
    };
    await tell("start");
    await delay(job.data.ms ?? 2);
    await tell("end");
  },
  {
    partitions: task.partitions,
    key: "k",
    connection: cluster,
    concurrency: 10,
    lockDuration: task.lockDuration ?? 4_000,
    stalledInterval: 1_000,
  },
);
worker.on("error", () => {});
await worker.waitUntilReady();
process.send?.("ready");
