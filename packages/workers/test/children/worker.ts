/**
 * A process with one ExclusiveWorker, for tests that kill or freeze the process. argv[2]: JSON `Task`. Writes its runs
 * to a list on another Redis, which the test's checker reads. Kills itself at the place that the task names.
 */
import { subscribe } from "node:diagnostics_channel";
import { setTimeout as delay } from "node:timers/promises";
import { ExclusiveWorker, type ExclusiveWorkerOptions } from "@x/workers";
import { Redis } from "ioredis";
import type { CrashPoint, Event, Task } from "../support/history.ts";
import type { Data } from "../support/lab.ts";

const task = JSON.parse(process.argv[2] ?? "{}") as Task;
const history = new Redis({ path: task.historyPath });
const die = (): void => process.kill(process.pid, "SIGKILL") as unknown as void;
let isDying = false;

const at = (point: CrashPoint): boolean => {
  if (task.crashAt !== point || isDying) return false;
  isDying = true;
  die();
  return true;
};
const never = new Promise<never>(() => {});

for (const channel of ["locked", "yielded", "parked", "released"] as const) {
  subscribe(`x.workers.${channel}`, () => void at(channel));
}

const options: ExclusiveWorkerOptions<Data> = {
  connection: { path: task.queuePath, maxRetriesPerRequest: null },
  key: task.keyFunction ? (job) => job.data.k as string | undefined : "k",
  autorun: false,
  ...task.options,
};
const worker = new ExclusiveWorker<Data>(
  "q",
  async (job, _token, signal, lock) => {
    const event = (what: Event["what"]): Event => ({
      what,
      key: String(job.data.k),
      i: job.data.i,
      jobId: String(job.id),
      pid: process.pid,
      fencingToken: lock.fencingToken,
      ns: String(process.hrtime.bigint()),
    });
    await history.rpush("history", JSON.stringify(event("start")));
    if (at("processing")) await never;
    await delay(job.data.ms ?? 2);
    if (task.holdsUntilAborted && job.data.i === 0 && !signal.aborted) {
      process.send?.({ kind: "holding", fencingToken: lock.fencingToken });
      await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
      // A frozen process that has just thawed: the store must refuse its write.
      const written = await history.eval(fencedWrite, 1, "store", lock.fencingToken, "zombie");
      process.send?.({ kind: "zombie", written, isHeld: lock.isHeld(), reason: (signal.reason as Error).name });
      return "late";
    }
    if (task.holdsUntilAborted) await history.eval(fencedWrite, 1, "store", lock.fencingToken, `job ${job.data.i}`);
    await history.rpush("history", JSON.stringify(event("end")));
    return "done";
  },
  options,
);
worker.on("error", (error) => process.send?.({ kind: "error", message: error.message }));

/** Keeps the greatest token so far, and refuses smaller tokens. */
const fencedWrite = `
if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'token') or 0) then return 0 end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'value', ARGV[2])
return 1`;

type Exec = (client: unknown, name: string, args: unknown[]) => Promise<unknown>;
const { backend, scripts } = worker as unknown as Record<"backend" | "scripts", { execCommand: Exec }>;
const target = backend ?? scripts;
const exec = target.execCommand;
target.execCommand = async (client, name, args) => {
  if (name === "moveToFinished" && at("before-finish")) return await never;
  if (name === "moveToDelayed" && at("before-delay")) return await never;
  const reply = exec(client, name, args);
  if (name === "moveToFinished" && task.crashAt === "finish-sent") setImmediate(() => at("finish-sent"));
  const settled = await reply;
  if (name === "moveToActive" && Array.isArray(settled) && Array.isArray(settled[0]) && at("fetched"))
    return await never;
  if (name === "moveToFinished" && at("finished")) return await never;
  return settled;
};

void worker.run();
process.on("message", () => void worker.close().then(() => process.exit(0)));
process.send?.({ kind: "ready" });
