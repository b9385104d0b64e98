/** Ways to run one job per key at a time on BullMQ, the floor without exclusion, and groupmq, behind one interface. */
import { randomUUID } from "node:crypto";
import { ExclusiveWorker } from "@x/workers";
import { DelayedError, type Job, Queue, Worker } from "bullmq";
import { Queue as GroupQueue, Worker as GroupWorker } from "groupmq";
import { Redis } from "ioredis";
import { NodeRedlock5 } from "../support/redlock5.ts";
import { startAlone } from "./key-alone.ts";

export interface Task {
  readonly key: string;
  /** Place among the tasks of the key. */
  readonly place: number;
}

export type SystemName =
  | "BullMQ, no exclusion"
  | "BullMQ, one at a time"
  | "BullMQ, ends together"
  | "BullMQ, ends together, the key alone"
  | "BullMQ + redlock 5 in the processor"
  | "BullMQ + moveToDelayed"
  | "groupmq"
  | "ExclusiveWorker"
  | "ExclusiveWorker, in rotation";

export const systemNames: readonly SystemName[] = [
  "BullMQ, no exclusion",
  "BullMQ, one at a time",
  "BullMQ, ends together",
  "BullMQ, ends together, the key alone",
  "BullMQ + redlock 5 in the processor",
  "BullMQ + moveToDelayed",
  "groupmq",
  "ExclusiveWorker",
];

export interface System {
  add(tasks: readonly Task[]): Promise<void>;
  /** Starts to work. Jobs are added before. */
  start(process: (task: Task) => Promise<void>): Promise<void>;
  close(): Promise<void>;
}

interface Address {
  readonly host: string;
  readonly port: number;
}

const queueName = "bench";
const defaultConcurrency = 50;
const batch = 1_000;
const lockTtlMs = 30_000;
const busyDelayMs = 100;

export function openSystem(name: SystemName, address: Address, concurrency: number = defaultConcurrency): System {
  if (name === "groupmq") return openGroupmq(address, concurrency);
  const queue = new Queue<Task>(queueName, { connection: address });
  const client = new Redis(address);
  const redlock = new NodeRedlock5([client], { retryCount: -1, retryDelay: 10, retryJitter: 5 });
  let worker: Worker<Task> | undefined;
  const connection = { ...address, maxRetriesPerRequest: null };
  const start: Record<Exclude<SystemName, "groupmq">, (process: (task: Task) => Promise<void>) => Worker<Task>> = {
    "BullMQ, no exclusion": (process) =>
      new Worker<Task>(queueName, (job) => process(job.data), { connection, concurrency }),
    "BullMQ, one at a time": (process) =>
      new Worker<Task>(queueName, (job) => process(job.data), { connection, concurrency: 1 }),
    "BullMQ, ends together": (process) => startAlone(queueName, process, { connection, concurrency, hasKeys: false }),
    "BullMQ, ends together, the key alone": (process) =>
      startAlone(queueName, process, { connection, concurrency, hasKeys: true }),
    "BullMQ + redlock 5 in the processor": (process) =>
      new Worker<Task>(
        queueName,
        (job) => redlock.using([`lock:${job.data.key}`], lockTtlMs, {}, () => process(job.data)),
        { connection, concurrency },
      ),
    "BullMQ + moveToDelayed": (process) =>
      new Worker<Task>(queueName, (job, token) => orDelay(client, job, token, process), { connection, concurrency }),
    ExclusiveWorker: (process) =>
      new ExclusiveWorker<Task, void>(queueName, (job) => process(job.data), {
        connection,
        concurrency,
        key: "key",
      }) as never,
    "ExclusiveWorker, in rotation": (process) =>
      new ExclusiveWorker<Task, void>(queueName, (job) => process(job.data), {
        connection,
        concurrency,
        key: "key",
        between: "rotate",
      }) as never,
  };
  return {
    add: async (tasks) => {
      for (let first = 0; first < tasks.length; first += batch) {
        await queue.addBulk(
          tasks
            .slice(first, first + batch)
            .map((data) => ({ name: "task", data, opts: { removeOnComplete: true, removeOnFail: true } })),
        );
      }
    },
    start: async (process) => {
      worker = start[name](process);
      worker.on("error", () => undefined);
      await worker.waitUntilReady();
    },
    close: async () => {
      await worker?.close(true);
      await queue.close();
      client.disconnect();
    },
  };
}

const releaseScript = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`;

/** The way that BullMQ's documentation shows for "not now": SET NX, and back to delayed if the key is busy. */
async function orDelay(
  client: Redis,
  job: Job<Task>,
  token: string | undefined,
  process: (task: Task) => Promise<void>,
): Promise<void> {
  const key = `lock:${job.data.key}`;
  const value = randomUUID();
  if ((await client.set(key, value, "PX", lockTtlMs, "NX")) !== "OK") {
    await job.moveToDelayed(Date.now() + busyDelayMs, token);
    throw new DelayedError();
  }
  try {
    await process(job.data);
  } finally {
    await client.eval(releaseScript, 1, key, value);
  }
}

function openGroupmq(address: Address, concurrency: number): System {
  const redis = new Redis({ ...address, maxRetriesPerRequest: null });
  const queue = new GroupQueue<Task>({ redis: redis as never, namespace: queueName });
  let worker: GroupWorker<Task> | undefined;
  return {
    add: async (tasks) => {
      for (let first = 0; first < tasks.length; first += batch) {
        await Promise.all(
          tasks
            .slice(first, first + batch)
            .map((task) => queue.add({ groupId: task.key, data: task, orderMs: task.place })),
        );
      }
    },
    start: async (process) => {
      worker = new GroupWorker<Task>({ queue, concurrency, handler: (job) => process(job.data) });
      void worker.run();
      await Promise.resolve();
    },
    close: async () => {
      await worker?.close(0);
      redis.disconnect();
    },
  };
}
