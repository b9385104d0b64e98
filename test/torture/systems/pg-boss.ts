import { createRequire } from "node:module";
import { type Address, CONCURRENCY, type JobData, QUEUE, type QueueSystem } from "./system.ts";

interface Job {
  readonly data: JobData;
  readonly signal: AbortSignal;
}

interface PgBoss {
  on(event: "error", listener: () => void): unknown;
  start(): Promise<PgBoss>;
  stop(options: { readonly graceful: boolean }): Promise<void>;
  createQueue(name: string, options: object): Promise<void>;
  send(name: string, data: JobData, options: object): Promise<string | null>;
  work(name: string, options: object, handler: (jobs: readonly Job[]) => Promise<void>): Promise<string>;
}

// Its declarations are written for Node.js 22, so the few that are used here are above.
const { PgBoss: Boss } = createRequire(import.meta.url)("pg-boss") as {
  readonly PgBoss: new (options: object) => PgBoss;
};

async function startBoss(address: Address, leaseMs: number): Promise<PgBoss> {
  const boss = new Boss({
    ...address,
    user: "tester",
    database: "postgres",
    superviseIntervalSeconds: leaseMs / 2_000,
    monitorIntervalSeconds: leaseMs / 2_000,
  });
  boss.on("error", () => undefined);
  return await boss.start();
}

export const system: QueueSystem = {
  kind: "queue",
  server: "postgres",
  package: "pg-boss",
  title: "pg-boss, key_strict_fifo",
  configuration: `new PgBoss({ …, superviseIntervalSeconds: lease / 2, monitorIntervalSeconds: lease / 2 })
boss.createQueue(queue, { policy: "key_strict_fifo", heartbeatSeconds: lease, retryLimit: 1000 })
boss.work(queue, { localConcurrency: ${CONCURRENCY}, pollingIntervalSeconds: 0.5 }, ([job]) => …)
boss.send(queue, data, { id, singletonKey: key })`,
  question: "`job.signal.aborted`",
  promises:
    "Documents that successors are held back while a job of their key is active, in retry or failed. Does not promise that a job's effects outside of its transaction happen only once.",
  without: ["replica promoted"],
  openProducer: async (address, leaseMs) => {
    const boss = await startBoss(address, leaseMs);
    await boss.createQueue(QUEUE, { policy: "key_strict_fifo", heartbeatSeconds: leaseMs / 1_000, retryLimit: 1_000 });
    return {
      add: async (data, id) => {
        await boss.send(QUEUE, data, { id, singletonKey: data.key });
      },
      close: () => boss.stop({ graceful: false }),
    };
  },
  startWorker: async (address, leaseMs, process) => {
    const boss = await startBoss(address, leaseMs);
    const options = { localConcurrency: CONCURRENCY, pollingIntervalSeconds: 0.5 };
    await boss.work(QUEUE, options, async ([job]) => {
      if (job !== undefined) await process(job.data, { isHeld: () => !job.signal.aborted });
    });
  },
};
