/** One process of a system: adds the jobs if it is asked to, runs jobs, and notes each run. */
import { setTimeout as delay } from "node:timers/promises";
import { machineMs } from "../../support/src/clock.ts";
import { commandsSent, countCommands } from "../support/commands.ts";
import { cpuMsSince, mainThreadCpuMs } from "../support/cpu.ts";
import { serveJobs } from "../support/jobs.ts";
import { type Profile, profiled } from "../support/profile.ts";
import type { Ran } from "./history.ts";
import { openSystem, type System, type SystemName, type Task } from "./systems.ts";

export interface WorkersArguments {
  readonly system: SystemName;
  readonly host: string;
  readonly port: number;
}

export type WorkersJob =
  | { readonly kind: "add"; readonly tasks: readonly Task[] }
  | {
      readonly kind: "work";
      readonly workMs: number;
      /** The run ends after this number of jobs in this process, after `idleMs` without a job, or after `limitMs`. */
      readonly jobs: number;
      readonly idleMs: number;
      readonly limitMs: number;
      readonly isProfiled?: boolean;
    };

export interface WorkersResult {
  /** When the work began, by the clock that all processes of the machine share. */
  readonly startedMs: number;
  readonly ran: readonly Ran[];
  readonly commands: number;
  readonly cpuMs: number;
  /** CPU time of the main thread. */
  readonly mainCpuMs: number;
  readonly profile?: Profile | undefined;
}

/** Interval between two readings of the CPU time. The last reading after a job was done counts. */
const sampleMs = 20;

countCommands();
const { system: name, host, port } = JSON.parse(process.argv[2] ?? "") as WorkersArguments;

serveJobs(async (job: WorkersJob): Promise<WorkersResult | undefined> => {
  const system = openSystem(name, { host, port });
  if (job.kind === "work" && job.isProfiled === true) {
    const [result, profile] = await profiled(() => work(system, job));
    return { ...result, profile };
  }
  if (job.kind === "work") return await work(system, job);
  await system.add(job.tasks);
  await system.close();
  return undefined;
});

async function work(system: System, job: WorkersJob & { readonly kind: "work" }): Promise<WorkersResult> {
  const ran: Ran[] = [];
  const commandsBefore = commandsSent();
  const cpuBefore = process.cpuUsage();
  const mainBeforeMs = mainThreadCpuMs();
  const startedMs = machineMs();
  const used = (): Pick<WorkersResult, "commands" | "cpuMs" | "mainCpuMs"> => ({
    commands: commandsSent() - commandsBefore,
    cpuMs: cpuMsSince(cpuBefore),
    mainCpuMs: mainThreadCpuMs() - mainBeforeMs,
  });
  await system.start(async ({ key, place }) => {
    const fromMs = machineMs();
    await delay(job.workMs);
    ran.push([key, place, fromMs, machineMs()]);
  });
  let last = used();
  let seen = 0;
  for (let idleSinceMs = machineMs(); ran.length < job.jobs; await delay(sampleMs)) {
    const atMs = machineMs();
    if (ran.length > seen) [last, seen, idleSinceMs] = [used(), ran.length, atMs];
    if (atMs - idleSinceMs > job.idleMs || atMs - startedMs > job.limitMs) break;
  }
  if (ran.length > seen) last = used();
  await Promise.race([system.close(), delay(2_000)]);
  return { startedMs, ran, ...last };
}
