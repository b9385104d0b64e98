/** A process with a worker of one queue whose keys all have jobs in line. */
import { until } from "@x/test-support";
import { ExclusiveQueue, ExclusiveWorker } from "@x/workers";
import { Redis } from "ioredis";
import { cpuMsSince } from "../support/cpu.ts";
import { serveJobs } from "../support/jobs.ts";

export type KeysJob =
  /** Adds `backlog` jobs of each key. */
  | { readonly kind: "add"; readonly keys: number; readonly backlog: number }
  /** Parks all jobs while their keys are paused. */
  | { readonly kind: "park" }
  /** Examines all keys, as a worker does once in `recheckInterval`. */
  | { readonly kind: "look" }
  /** Ends the pauses. */
  | { readonly kind: "resume"; readonly keys: number }
  /** Runs this number of jobs. */
  | { readonly kind: "run"; readonly jobs: number };

export interface KeysResult {
  readonly elapsedMs: number;
  readonly cpuMs: number;
}

const BULK = 1_000;
/** As long as the parent waits. */
const SLOWEST_MS = 600_000;

const connection = new Redis({ ...(JSON.parse(process.argv[2] ?? "") as object), maxRetriesPerRequest: null });
const queue = new ExclusiveQueue("q", { connection });
let left = 0;
let allDone = (): void => {};
const worker = new ExclusiveWorker(
  "q",
  async () => {
    left -= 1;
    if (left === 0) allDone();
  },
  { connection, key: "k", concurrency: 50, autorun: false, removeOnComplete: { count: 100 } },
);
worker.on("error", (error) => {
  throw error;
});

async function measured(work: () => Promise<unknown>): Promise<KeysResult> {
  const cpuBefore = process.cpuUsage();
  const startMs = performance.now();
  await work();
  return { elapsedMs: performance.now() - startMs, cpuMs: cpuMsSince(cpuBefore) };
}

const keyOf = (index: number): string => `key${index}`;

async function forAllKeys(count: number, step: (key: string) => Promise<unknown>): Promise<void> {
  for (let first = 0; first < count; first += BULK) {
    const keys = Array.from({ length: Math.min(BULK, count - first) }, (_, i) => keyOf(first + i));
    await Promise.all(keys.map(step));
  }
}

async function add(keys: number, backlog: number): Promise<void> {
  await forAllKeys(keys, (key) => queue.pauseKey(key));
  const tasks = Array.from({ length: keys * backlog }, (_, i) => ({ name: "job", data: { k: keyOf(i % keys) } }));
  for (let i = 0; i < tasks.length; i += BULK) await queue.addBulk(tasks.slice(i, i + BULK));
}

let running: Promise<void> | undefined;

async function goOn(): Promise<void> {
  if (running === undefined) running = worker.run();
  else await worker.resume();
}

/** Jobs that have begun run to their end. */
async function stop(): Promise<void> {
  await worker.pause();
  await until(async () => (await queue.getActiveCount()) === 0, SLOWEST_MS);
}

async function run(jobs: number): Promise<void> {
  left = jobs;
  const done = new Promise<void>((resolve) => {
    allDone = resolve;
  });
  await goOn();
  await done;
}

async function park(): Promise<void> {
  await goOn();
  await until(async () => (await queue.getWaitingCount()) === 0, SLOWEST_MS);
}

async function measuredAlone(work: () => Promise<unknown>): Promise<KeysResult> {
  const result = await measured(work);
  await stop();
  return result;
}

serveJobs(async (job: KeysJob): Promise<KeysResult> => {
  switch (job.kind) {
    case "add":
      return await measured(() => add(job.keys, job.backlog));
    case "park":
      return await measuredAlone(park);
    case "look":
      return await measured(() => queue.counts());
    case "resume":
      return await measured(() => forAllKeys(job.keys, (key) => queue.resumeKey(key)));
    case "run":
      return await measuredAlone(() => run(job.jobs));
  }
});
