/** One system in a process of its own: adds the jobs, then works them off and watches order and exclusion. */
import { setTimeout as delay } from "node:timers/promises";
import { commandsSent, countCommands } from "../support/commands.ts";
import { serveJobs } from "../support/jobs.ts";
import { openSystem, type SystemName, type Task } from "./systems.ts";

export interface WorkersArguments {
  readonly system: SystemName;
  readonly host: string;
  readonly port: number;
}

export interface WorkersJob {
  readonly tasks: readonly Task[];
  readonly workMs: number;
  /** When the run is cut off. */
  readonly limitMs: number;
  /** A key that does not count as another. */
  readonly hotKey: string;
}

export interface WorkersResult {
  readonly done: number;
  readonly elapsedMs: number;
  /** When the last job of another key than the hot one was done. */
  readonly lastOtherMs: number;
  readonly overlaps: number;
  readonly orderViolations: number;
  readonly commands: number;
  readonly cpuMs: number;
}

countCommands();
const { system: name, host, port } = JSON.parse(process.argv[2] ?? "") as WorkersArguments;

serveJobs(async (job: WorkersJob): Promise<WorkersResult> => {
  const system = openSystem(name, { host, port });
  await system.add(job.tasks);
  const running = new Set<string>();
  const lastPlace = new Map<string, number>();
  let done = 0;
  let overlaps = 0;
  let orderViolations = 0;
  let lastOtherMs = 0;
  let finish: () => void = () => undefined;
  const finished = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const commands = commandsSent();
  const cpu = process.cpuUsage();
  const startMs = performance.now();
  await system.start(async ({ key, place }) => {
    if (running.has(key)) overlaps += 1;
    running.add(key);
    if (place < (lastPlace.get(key) ?? -1)) orderViolations += 1;
    lastPlace.set(key, place);
    await delay(job.workMs);
    running.delete(key);
    done += 1;
    if (key !== job.hotKey) lastOtherMs = performance.now() - startMs;
    if (done === job.tasks.length) finish();
  });
  await Promise.race([finished, delay(job.limitMs)]);
  const elapsedMs = performance.now() - startMs;
  const { user, system: kernel } = process.cpuUsage(cpu);
  const result = {
    done,
    elapsedMs,
    lastOtherMs,
    overlaps,
    orderViolations,
    commands: commandsSent() - commands,
    cpuMs: (user + kernel) / 1_000,
  };
  await Promise.race([system.close(), delay(2_000)]);
  return result;
});
