/**
 * A worker process of the self-test, which may be killed at any time. Its first message is a `MemberTask`. The process
 * reports the start and the end of each run, and continues when the report is on its way.
 */
import { setTimeout as delay } from "node:timers/promises";
import { systemClock } from "@x/redlock-core";
import { ExclusiveWorker, type ExclusiveWorkerOptions, type JobLock } from "@x/workers";
import { DelayedError, type Job, Queue, WaitingChildrenError } from "bullmq";
import { type ConnectionOptions, Connections } from "../connections.ts";
import type { RunEvent } from "./rules/judge.ts";

/** The data of a job, which says how its runs end. */
export interface JobData {
  /** The key. */
  readonly k?: string | undefined;
  readonly i: number;
  /** Duration of a run in ms. */
  readonly ms?: number;
  /** How many attempts fail. */
  readonly failures?: number;
  /** The first run delays the job by this number of ms. */
  readonly delaysFor?: number;
  /** The first run adds a child with this key, and waits for it. */
  readonly childKey?: string;
}

export interface MemberTask {
  readonly connection: ConnectionOptions;
  readonly queue: string;
  readonly options: Omit<ExclusiveWorkerOptions<JobData>, "connection">;
}

/** An event on its way between processes: JSON has no `bigint`. */
export type SentEvent = Omit<RunEvent, "ns"> & { readonly ns: string };

let runs = 0;

process.once("message", (task: MemberTask) => {
  start(task).catch((error: Error) => {
    process.send?.({ kind: "failed", message: error.message });
    process.exitCode = 1;
  });
});
process.once("disconnect", () => process.exit());

async function start({ connection, queue, options }: MemberTask): Promise<void> {
  const client = await new Connections(connection).queueRedis();
  const children = new Queue<JobData>(queue, { connection: client, prefix: options.prefix ?? "bull" });
  const worker = new ExclusiveWorker<JobData>(
    queue,
    async (job, token = "", _signal, lock) => await run(job, { token, lock, children }),
    { ...options, connection: client, autorun: false },
  );
  worker.on("error", () => undefined);
  children.on("error", () => undefined);
  await worker.waitUntilReady();
  process.send?.({ kind: "ready" });
  await worker.run();
}

async function run(
  job: Job<JobData>,
  parts: { readonly token: string; readonly lock: JobLock; readonly children: Queue<JobData> },
): Promise<string> {
  const { token, lock, children } = parts;
  const { k = "", i, ms = 1, failures = 0, delaysFor, childKey } = job.data;
  runs += 1;
  const facts = { jobId: String(job.id), key: k, i, pid: process.pid, run: runs, fencingToken: lock.fencingToken };
  await report({ ...facts, what: "start" });
  await delay(ms);
  try {
    if (delaysFor !== undefined) {
      await job.updateData({ ...job.data, delaysFor: undefined } as never);
      await job.moveToDelayed(Math.ceil(systemClock.wallMs()) + delaysFor, token);
      throw new DelayedError();
    }
    if (childKey !== undefined) {
      await job.updateData({ ...job.data, childKey: undefined } as never);
      const parent = { id: String(job.id), queue: children.qualifiedName };
      await children.add("child", { k: childKey, i: 0 }, { parent, jobId: `${job.id}-child` });
      if (await job.moveToWaitingChildren(token)) throw new WaitingChildrenError();
    }
    if (job.attemptsMade < failures) throw new Error("this attempt fails on purpose");
    return "done";
  } finally {
    await report({ ...facts, what: "end" });
  }
}

function report(event: Omit<RunEvent, "ns" | "atMs">): Promise<void> {
  // oxlint-disable-next-line eslint/no-restricted-properties -- the clock that all processes share
  const sent: SentEvent = { ...event, ns: String(process.hrtime.bigint()), atMs: systemClock.wallMs() };
  const message = { kind: "event", event: sent };
  return new Promise((resolve) => {
    if (process.send?.(message, () => resolve()) === undefined) resolve();
  });
}
