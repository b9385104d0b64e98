/**
 * One driver in its own process, which performs the jobs of the measurements. Arguments: driver, nodes and options as
 * JSON.
 */
import { performance } from "node:perf_hooks";
import { setTimeout as delay } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { machineMs } from "../../support/src/clock.ts";
import { commandsSent, countCommands } from "../support/commands.ts";
import { cpuMsSince } from "../support/cpu.ts";
import { serveJobs } from "../support/jobs.ts";
import { type Profile, profiled } from "../support/profile.ts";
import { type DriverName, type DriverOptions, type NodeAddress, openDriver } from "./drivers.ts";

export interface ChildArguments {
  readonly driver: DriverName;
  readonly nodes: readonly NodeAddress[];
  readonly options: DriverOptions;
}

/** Runs `callers` loops of acquire and release for a time, each on its own resources. */
export interface PairsJob {
  readonly kind: "pairs";
  readonly callers: number;
  readonly durationMs: number;
  readonly warmUpMs: number;
  readonly isProfiled?: boolean;
}

export interface PairsResult {
  readonly pairs: number;
  readonly elapsedMs: number;
  /** User and system time of the client process. */
  readonly cpuMs: number;
  readonly commands: number;
  readonly errors: number;
  readonly profile?: Profile | undefined;
}

/** Runs `waiters` loops on one resource: acquire, hold, release, wait. */
export interface ContendJob {
  readonly kind: "contend";
  readonly resource: string;
  readonly waiters: number;
  readonly holdMs: number;
  readonly thinkMs: number;
  /** By the wall clock, which is the same in all processes. */
  readonly startMs: number;
  readonly endMs: number;
  readonly isProfiled?: boolean;
}

export interface ContendResult {
  /**
   * For each grant: the waiter, and the wall-clock times (ms with fractions) of the call, the grant and the call of the
   * release.
   */
  readonly grants: readonly (readonly [waiter: number, calledMs: number, grantedMs: number, releasedMs: number])[];
  readonly commands: number;
  readonly cpuMs: number;
  readonly errors: number;
  readonly profile?: Profile | undefined;
}

/** Runs single pairs, one after the other, each cut off after `cutOffMs`. */
export interface LatencyJob {
  readonly kind: "latency";
  readonly count: number;
  readonly cutOffMs: number;
}

export interface LatencyResult {
  /** Milliseconds of each acquisition that ended. */
  readonly acquireMs: readonly number[];
  readonly releaseMs: readonly number[];
  readonly cutOff: number;
  readonly errors: number;
}

/** Holds `count` locks with automatic extension for a time. */
export interface HoldJob {
  readonly kind: "hold";
  readonly count: number;
  readonly settleMs: number;
  readonly durationMs: number;
}

export interface HoldResult {
  readonly commands: number;
  readonly elapsedMs: number;
  readonly cpuMs: number;
}

/** Requests `count` locks in one turn, holds them together, and releases them. */
export interface MemoryJob {
  readonly kind: "memory";
  readonly count: number;
  /** Distinguishes the resources of this run from other runs. */
  readonly run: number;
}

export interface MemoryResult {
  /** Bytes for each lock. */
  readonly pendingBytes: number;
  readonly heldBytes: number;
}

export type LockJob = PairsJob | ContendJob | LatencyJob | HoldJob | MemoryJob;

const resourcesPerCaller = 50;
const graceMs = 3_000;

countCommands();
const { driver: name, nodes, options } = JSON.parse(process.argv[2] ?? "") as ChildArguments;
const driver = await openDriver(name, nodes, options);
let jobs = 0;

serveJobs(async (job: LockJob) => {
  jobs += 1;
  if (job.kind === "pairs") return await pairs(job);
  if (job.kind === "contend") return await contend(job);
  if (job.kind === "latency") return await latency(job);
  return job.kind === "memory" ? await memory(job) : await hold(job);
});

async function pairs(job: PairsJob): Promise<PairsResult> {
  let done = 0;
  let errors = 0;
  let endMs = performance.now() + job.warmUpMs;
  const loop = async (caller: number): Promise<void> => {
    for (let index = 0; performance.now() < endMs; index += 1) {
      try {
        await (await driver.acquire(`${name}:${process.pid}:${caller}:${index % resourcesPerCaller}`))();
        done += 1;
      } catch {
        errors += 1;
      }
    }
  };
  const run = (): Promise<unknown> => Promise.all(Array.from({ length: job.callers }, (_, caller) => loop(caller)));
  await run();
  done = 0;
  errors = 0;
  const commands = commandsSent();
  const cpu = process.cpuUsage();
  const startMs = performance.now();
  endMs = startMs + job.durationMs;
  const [, profile] = job.isProfiled === true ? await profiled(run) : [await run()];
  return {
    pairs: done,
    elapsedMs: performance.now() - startMs,
    cpuMs: cpuMsSince(cpu),
    commands: commandsSent() - commands,
    errors,
    profile,
  };
}

async function contend(job: ContendJob): Promise<ContendResult> {
  const grants: [number, number, number, number][] = [];
  let errors = 0;
  await delay(Math.max(0, job.startMs - machineMs()));
  const commands = commandsSent();
  const cpu = process.cpuUsage();
  const loop = async (waiter: number): Promise<void> => {
    while (machineMs() < job.endMs) {
      const calledMs = machineMs();
      try {
        const release = await driver.acquire(job.resource);
        const grantedMs = machineMs();
        await delay(job.holdMs);
        grants.push([waiter, calledMs, grantedMs, machineMs()]);
        await release();
      } catch {
        errors += 1;
      }
      await delay(job.thinkMs);
    }
  };
  const run = (): Promise<unknown> => {
    const loops = Promise.all(Array.from({ length: job.waiters }, (_, waiter) => loop(waiter)));
    // Some libraries block themselves forever. Their grants until then count.
    return Promise.race([loops, delay(job.endMs + graceMs - machineMs())]);
  };
  const [, profile] = job.isProfiled === true ? await profiled(run) : [await run()];
  return { grants, commands: commandsSent() - commands, cpuMs: cpuMsSince(cpu), errors, profile };
}

async function latency(job: LatencyJob): Promise<LatencyResult> {
  const acquireMs: number[] = [];
  const releaseMs: number[] = [];
  let cutOff = 0;
  let errors = 0;
  for (let index = 0; index < job.count && cutOff < 3; index += 1) {
    const step = async (): Promise<void> => {
      const startMs = performance.now();
      const release = await driver.acquire(`${name}:latency:${process.pid}:${jobs}:${index}`);
      const grantedMs = performance.now();
      await release();
      acquireMs.push(grantedMs - startMs);
      releaseMs.push(performance.now() - grantedMs);
    };
    const late = delay(job.cutOffMs, "late" as const);
    const end = await Promise.race([step().catch(() => "error" as const), late]);
    if (end === "late") cutOff += 1;
    if (end === "error") errors += 1;
  }
  return { acquireMs, releaseMs, cutOff, errors };
}

async function hold(job: HoldJob): Promise<HoldResult> {
  const releases = await Promise.all(
    Array.from({ length: job.count }, (_, index) => driver.hold(`${name}:held:${process.pid}:${jobs}:${index}`)),
  );
  await delay(job.settleMs);
  const commands = commandsSent();
  const cpu = process.cpuUsage();
  const startMs = performance.now();
  await delay(job.durationMs);
  const result = {
    commands: commandsSent() - commands,
    elapsedMs: performance.now() - startMs,
    cpuMs: cpuMsSince(cpu),
  };
  await Promise.all(releases.map((release) => release()));
  return result;
}

async function memory(job: MemoryJob): Promise<MemoryResult> {
  setFlagsFromString("--expose-gc");
  const collectGarbage = runInNewContext("gc") as () => void;
  const usedBytes = (): number => {
    collectGarbage();
    const { heapUsed, external } = process.memoryUsage();
    return heapUsed + external;
  };
  const resources = Array.from({ length: job.count }, (_, index) => `${name}:memory:${job.run}:${index}`);
  const emptyBytes = usedBytes();
  const asked = resources.map((resource) => driver.acquire(resource));
  const pendingBytes = usedBytes() - emptyBytes;
  const releases = await Promise.all(asked);
  asked.length = 0;
  // After some turns, the replies have left the buffers and queues.
  await delay(100);
  const heldBytes = usedBytes() - emptyBytes;
  await Promise.all(releases.map((release) => release()));
  return { pendingBytes: pendingBytes / job.count, heldBytes: heldBytes / job.count };
}
