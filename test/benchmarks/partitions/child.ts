/** A process with a divided queue, which adds jobs and runs them, or idles for a while. */

import { setTimeout as delay } from "node:timers/promises";
import { PartitionedQueue, PartitionedWorker } from "@x/workers/partitions";
import { Redis } from "ioredis";
import { commandsSent, countCommands } from "../support/commands.ts";
import { cpuMsSince } from "../support/cpu.ts";
import { serveJobs } from "../support/jobs.ts";

export interface PartitionsArguments {
  readonly servers: readonly { readonly host: string; readonly port: number }[];
  readonly partitions: number;
}

export type PartitionsJob =
  | { readonly kind: "work"; readonly jobs: number; readonly keys: number; readonly workMs: number }
  | { readonly kind: "idle"; readonly durationMs: number };

export interface PartitionsResult {
  readonly commands: number;
  readonly elapsedMs: number;
  readonly cpuMs: number;
}

countCommands();
const { servers, partitions } = JSON.parse(process.argv[2] ?? "") as PartitionsArguments;
const clients = servers.map((server) => new Redis({ ...server, maxRetriesPerRequest: null }));
const division = { partitions, key: "k", connection: clients };

async function measured(work: () => Promise<unknown>): Promise<PartitionsResult> {
  const commandsBefore = commandsSent();
  const cpuBefore = process.cpuUsage();
  const startMs = performance.now();
  await work();
  return {
    commands: commandsSent() - commandsBefore,
    elapsedMs: performance.now() - startMs,
    cpuMs: cpuMsSince(cpuBefore),
  };
}

let left = 0;
let allDone = (): void => {};
let workMs = 0;
const worker = new PartitionedWorker(
  "q",
  async () => {
    if (workMs > 0) await delay(workMs);
  },
  { ...division, concurrency: 50, autorun: false, removeOnComplete: { count: 100 } },
);
worker.on("completed", () => {
  left -= 1;
  if (left === 0) allDone();
});
worker.on("error", (error) => {
  throw error;
});
let running: Promise<void> | undefined;

serveJobs(async (job: PartitionsJob): Promise<PartitionsResult> => {
  if (job.kind === "idle") {
    running ??= worker.run();
    await worker.waitUntilReady();
    await delay(2_000);
    return await measured(async () => await delay(job.durationMs));
  }
  await worker.pause();
  await using queue = new PartitionedQueue("q", division);
  const tasks = Array.from({ length: job.jobs }, (_, i) => ({ name: "job", data: { k: `key${i % job.keys}` } }));
  for (let i = 0; i < tasks.length; i += 1_000) await queue.addBulk(tasks.slice(i, i + 1_000));
  [left, workMs] = [job.jobs, job.workMs];
  return await measured(async () => {
    const done = new Promise<void>((resolve) => {
      allDone = resolve;
    });
    await worker.resume();
    await done;
  });
});
