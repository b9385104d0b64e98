/** Jobs with and without contention for their keys, beside the floor and the ways in use. */
import { startRedis } from "@x/test-support";
import { compileChild } from "../support/compile.ts";
import { JobChild } from "../support/jobs.ts";
import { readServers } from "../support/servers.ts";
import { median, medianRatio, rotated } from "../support/statistics.ts";
import type { WorkersArguments, WorkersJob, WorkersResult } from "./child.ts";
import { type SystemName, systemNames, type Task } from "./systems.ts";

export interface WorkersSettings {
  readonly rounds: number;
  /** Jobs of a run on free and on a hundred keys; a fourth of it stands on the hot key, a twentieth behind it. */
  readonly jobs: number;
  readonly limitMs: number;
}

export type LoadName = "a key per job" | "100 keys" | "hot key";

export interface WorkersRow {
  readonly load: LoadName;
  readonly system: SystemName;
  readonly jobs: number;
  readonly doneShare: number;
  readonly jobsPerSecond: number;
  readonly timesPlain: number;
  readonly lastOtherSeconds: number;
  readonly commands: number;
  readonly serverCalls: number;
  readonly clientCpuUs: number;
  readonly overlaps: number;
  readonly orderViolations: number;
}

const hotKey = "hot";
const workMs = 1;
const plain: SystemName = "BullMQ, no exclusion";
/** What BullMQ itself needs for jobs that must run one after the other. */
const sequential: SystemName = "BullMQ, one at a time";

function tasksOf(load: LoadName, jobs: number): readonly Task[] {
  if (load === "a key per job") return Array.from({ length: jobs }, (_, index) => ({ key: `k${index}`, place: 0 }));
  if (load === "100 keys") {
    return Array.from({ length: jobs }, (_, index) => ({ key: `k${index % 100}`, place: Math.floor(index / 100) }));
  }
  const hot = Array.from({ length: Math.ceil(jobs / 4) }, (_, place) => ({ key: hotKey, place }));
  const others = Array.from({ length: Math.ceil(jobs / 20) }, (_, index) => ({ key: `k${index}`, place: 0 }));
  return [...hot, ...others];
}

interface Sample extends WorkersResult {
  readonly jobs: number;
  readonly serverCalls: number;
}

export async function measureWorkers(
  settings: WorkersSettings,
  chosen: readonly SystemName[] = systemNames,
): Promise<readonly WorkersRow[]> {
  const child = await compileChild(new URL("./child.ts", import.meta.url), "workers");
  const rows: WorkersRow[] = [];
  for (const load of ["a key per job", "100 keys", "hot key"] as const) {
    const systems = chosen.filter((system) => load === "hot key" || system !== sequential);
    const samples = new Map<SystemName, Sample[]>(systems.map((system) => [system, []]));
    for (let round = 0; round < settings.rounds; round += 1) {
      for (const system of rotated(systems, round)) {
        samples.get(system)?.push(await measureRound(child, system, { load, ...settings }));
      }
    }
    for (const system of systems) rows.push(rowOf(load, system, samples));
  }
  return rows;
}

async function measureRound(
  file: URL,
  system: SystemName,
  settings: { readonly load: LoadName; readonly jobs: number; readonly limitMs: number },
): Promise<Sample> {
  const server = await startRedis();
  const args: WorkersArguments = { system, host: server.host, port: server.port };
  const child = new JobChild(file, system, [JSON.stringify(args)]);
  try {
    const tasks = tasksOf(settings.load, settings.jobs);
    const job: WorkersJob = { tasks, workMs, limitMs: settings.limitMs, hotKey };
    const before = await readServers([server]);
    const result = await child.ask<WorkersResult>(job);
    const after = await readServers([server]);
    return { ...result, jobs: tasks.length, serverCalls: after.calls - before.calls };
  } finally {
    await child.stop();
    await server.stop();
  }
}

function rowOf(load: LoadName, system: SystemName, samples: ReadonlyMap<SystemName, readonly Sample[]>): WorkersRow {
  const own = samples.get(system) ?? [];
  const perSecond = (sample: Sample): number => (sample.done / sample.elapsedMs) * 1_000;
  const sum = (value: (sample: Sample) => number): number => own.reduce((total, sample) => total + value(sample), 0);
  return {
    load,
    system,
    jobs: own[0]?.jobs ?? 0,
    doneShare: median(own.map((sample) => sample.done / sample.jobs)),
    jobsPerSecond: median(own.map(perSecond)),
    timesPlain: medianRatio(own.map(perSecond), (samples.get(plain) ?? []).map(perSecond)),
    lastOtherSeconds: median(own.map((sample) => sample.lastOtherMs / 1_000)),
    commands: median(own.map((sample) => sample.commands / sample.done)),
    serverCalls: median(own.map((sample) => sample.serverCalls / sample.done)),
    clientCpuUs: median(own.map((sample) => (sample.cpuMs * 1_000) / sample.done)),
    overlaps: sum((sample) => sample.overlaps),
    orderViolations: sum((sample) => sample.orderViolations),
  };
}
