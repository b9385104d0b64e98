/** A process with a worker of one queue. The jobs of a hot tenant are in front of single jobs of many other tenants. */
import { setTimeout as delay } from "node:timers/promises";
import { cpuMsSince } from "../support/cpu.ts";
import { serveJobs } from "../support/jobs.ts";
import { openSystem, type SystemName, type Task } from "../workers/systems.ts";

export interface FairnessArguments {
  readonly system: SystemName;
  readonly slots: number;
  readonly host: string;
  readonly port: number;
}

export type FairnessJob =
  | { readonly kind: "add"; readonly hot: number; readonly quiet: number }
  /** Works until the last of the quiet tenants is served. */
  | { readonly kind: "work"; readonly quiet: number };

export interface FairnessResult {
  /** Number of jobs that started until then, and how many of them were the hot tenant's. */
  readonly starts: number;
  readonly hotStarts: number;
  /** When half of the quiet tenants were served (`halfMs`), and when all were served. */
  readonly halfMs: number;
  readonly lastMs: number;
  readonly cpuMs: number;
}

const HOT_KEY = "hot";
const WORK_MS = 1;

const { system: name, slots, host, port } = JSON.parse(process.argv[2] ?? "") as FairnessArguments;
const system = openSystem(name, { host, port }, slots);

async function add(hot: number, quiet: number): Promise<void> {
  await system.add(Array.from({ length: hot }, (_, place): Task => ({ key: HOT_KEY, place })));
  await system.add(Array.from({ length: quiet }, (_, index): Task => ({ key: `quiet${index}`, place: hot + index })));
}

async function work(quiet: number): Promise<FairnessResult> {
  let starts = 0;
  let hotStarts = 0;
  let served = 0;
  let halfMs = 0;
  const cpuBefore = process.cpuUsage();
  const startMs = performance.now();
  return await new Promise((resolve, reject) => {
    const perform = async ({ key }: Task): Promise<void> => {
      starts += 1;
      if (key === HOT_KEY) hotStarts += 1;
      await delay(WORK_MS);
      if (key === HOT_KEY) return;
      served += 1;
      const atMs = performance.now() - startMs;
      if (served === Math.ceil(quiet / 2)) halfMs = atMs;
      if (served < quiet) return;
      resolve({ starts, hotStarts, halfMs, lastMs: atMs, cpuMs: cpuMsSince(cpuBefore) });
    };
    system.start(perform).catch(reject);
  });
}

serveJobs(async (job: FairnessJob): Promise<FairnessResult | undefined> => {
  if (job.kind === "work") return await work(job.quiet);
  await add(job.hot, job.quiet);
  return undefined;
});
