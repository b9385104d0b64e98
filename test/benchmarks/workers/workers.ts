/** Jobs with and without contention for their keys, in one process and in two, next to the floor and other ways. */
import { startRedis } from "@x/test-support";
import { SeededRandom } from "../../../packages/testing/src/world.ts";
import { compileChild } from "../support/compile.ts";
import { JobChild } from "../support/jobs.ts";
import type { Profile } from "../support/profile.ts";
import { commandsBetween, readServers, type ServerReading } from "../support/servers.ts";
import { median, ratios, rotated, type Spread, spread } from "../support/statistics.ts";
import type { WorkersArguments, WorkersJob, WorkersResult } from "./child.ts";
import { type History, historyOf } from "./history.ts";
import { type SystemName, systemNames, type Task } from "./systems.ts";

export interface WorkersSettings {
  readonly rounds: number;
  /**
   * Jobs of a run with free keys and with a hundred keys. The run with the hot key has a fourth of this number with the
   * hot key, and a twentieth with free keys.
   */
  readonly jobs: number;
  readonly limitMs: number;
}

const loads = {
  "a key per job": { processes: 1, tasks: freeTasks },
  "100 keys": { processes: 1, tasks: drawnTasks },
  "100 keys, two processes": { processes: 2, tasks: drawnTasks },
  "hot key": { processes: 1, tasks: hotTasks },
} as const;

export type LoadName = keyof typeof loads;
export const loadNames = Object.keys(loads) as LoadName[];

export interface WorkersRow {
  readonly load: LoadName;
  readonly system: SystemName;
  readonly jobs: number;
  readonly doneShare: number;
  readonly jobsPerSecond: Spread;
  readonly timesPlain: Spread;
  readonly lastOtherSeconds: Spread;
  readonly commands: number;
  readonly serverCalls: number;
  readonly clientCpuUs: Spread;
  readonly serverCpuUs: Spread;
  readonly overlaps: number;
  readonly orderViolations: number;
}

const hotKey = "hot";
const workMs = 1;
const plain: SystemName = "BullMQ, no exclusion";
/** BullMQ itself with jobs that must run one after the other. This system is measured on the hot key only. */
const sequential: SystemName = "BullMQ, one at a time";
const keyCount = 100;
/** With several processes, no process knows which job is the last. */
const idleMs = 1_000;

function freeTasks(jobs: number): readonly Task[] {
  return Array.from({ length: jobs }, (_, index) => ({ key: `k${index}`, place: 0 }));
}

/** Draws the keys, so that jobs of the same key also follow each other closely. The draw is the same in every run. */
function drawnTasks(jobs: number): readonly Task[] {
  const random = new SeededRandom("workers");
  const places = Array.from({ length: keyCount }, () => 0);
  return Array.from({ length: jobs }, () => {
    const key = random.integer(0, keyCount - 1);
    const place = places[key] ?? 0;
    places[key] = place + 1;
    return { key: `k${key}`, place };
  });
}

/** Returns a fourth of `jobs` with the hot key, followed by a twentieth with free keys. */
function hotTasks(jobs: number): readonly Task[] {
  const hot = Array.from({ length: Math.ceil(jobs / 4) }, (_, place) => ({ key: hotKey, place }));
  return [...hot, ...freeTasks(Math.ceil(jobs / 20))];
}

export interface WorkersSample extends History {
  readonly jobs: number;
  readonly commands: number;
  readonly cpuMs: number;
  readonly mainCpuMs: number;
  readonly serverCalls: number;
  readonly serverCpuMs: number;
  readonly byCommand: ServerReading["byCommand"];
  /** The profile of each process. */
  readonly profiles: readonly Profile[];
}

export async function measureWorkers(
  settings: WorkersSettings,
  chosen: readonly SystemName[] = systemNames,
): Promise<readonly WorkersRow[]> {
  const child = await compileChild(new URL("./child.ts", import.meta.url), "workers");
  const rows: WorkersRow[] = [];
  for (const load of loadNames) {
    const systems = chosen.filter((system) => load === "hot key" || system !== sequential);
    const samples = new Map<SystemName, WorkersSample[]>(systems.map((system) => [system, []]));
    for (let round = 0; round < settings.rounds; round += 1) {
      for (const system of rotated(systems, round)) {
        samples.get(system)?.push(await measureRound(child, system, { load, ...settings }));
      }
    }
    for (const system of systems) rows.push(rowOf(load, system, samples));
  }
  return rows;
}

export async function measureRound(
  file: URL,
  system: SystemName,
  settings: {
    readonly load: LoadName;
    readonly jobs: number;
    readonly limitMs: number;
    readonly isProfiled?: boolean;
  },
): Promise<WorkersSample> {
  const { processes, tasks: tasksOf } = loads[settings.load];
  const server = await startRedis();
  const args: WorkersArguments = { system, host: server.host, port: server.port };
  const children = Array.from(
    { length: processes },
    (_, n) => new JobChild(file, `${system} ${n}`, [JSON.stringify(args)]),
  );
  try {
    const tasks = tasksOf(settings.jobs);
    await children[0]?.ask({ kind: "add", tasks } satisfies WorkersJob);
    const before = await readServers([server]);
    const { limitMs, isProfiled = false } = settings;
    const work: WorkersJob = { kind: "work", workMs, jobs: tasks.length, idleMs, limitMs, isProfiled };
    const results = await Promise.all(children.map((child) => child.ask<WorkersResult>(work)));
    const after = await readServers([server]);
    const sum = (value: (result: WorkersResult) => number): number =>
      results.reduce((total, result) => total + value(result), 0);
    const startedMs = Math.min(...results.map((result) => result.startedMs));
    const ran = results.flatMap((result) => result.ran);
    return {
      ...historyOf(startedMs, ran, hotKey),
      jobs: tasks.length,
      commands: sum((result) => result.commands),
      cpuMs: sum((result) => result.cpuMs),
      mainCpuMs: sum((result) => result.mainCpuMs),
      serverCalls: after.calls - before.calls,
      serverCpuMs: after.cpuMs - before.cpuMs,
      byCommand: commandsBetween(before, after),
      profiles: results.map(({ profile = {} }) => profile),
    };
  } finally {
    await Promise.all(children.map((child) => child.stop()));
    await server.stop();
  }
}

function rowOf(
  load: LoadName,
  system: SystemName,
  samples: ReadonlyMap<SystemName, readonly WorkersSample[]>,
): WorkersRow {
  const own = samples.get(system) ?? [];
  const perSecond = (sample: WorkersSample): number => (sample.done / sample.elapsedMs) * 1_000;
  const sum = (value: (sample: WorkersSample) => number): number =>
    own.reduce((total, sample) => total + value(sample), 0);
  return {
    load,
    system,
    jobs: own[0]?.jobs ?? 0,
    doneShare: median(own.map((sample) => sample.done / sample.jobs)),
    jobsPerSecond: spread(own.map(perSecond)),
    timesPlain: spread(ratios(own.map(perSecond), (samples.get(plain) ?? []).map(perSecond))),
    lastOtherSeconds: spread(own.map((sample) => sample.lastOtherMs / 1_000)),
    commands: median(own.map((sample) => sample.commands / sample.done)),
    serverCalls: median(own.map((sample) => sample.serverCalls / sample.done)),
    clientCpuUs: spread(own.map((sample) => (sample.cpuMs * 1_000) / sample.done)),
    serverCpuUs: spread(own.map((sample) => (sample.serverCpuMs * 1_000) / sample.done)),
    overlaps: sum((sample) => sample.overlaps),
    orderViolations: sum((sample) => sample.orderViolations),
  };
}
