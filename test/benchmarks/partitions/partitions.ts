/** A queue in partitions, on one server and on several: measures the cost of a job, and of partitions without jobs. */
import { type RedisServer, startRedisNodes } from "@x/test-support";
import { compileChild } from "../support/compile.ts";
import { JobChild } from "../support/jobs.ts";
import { readServers } from "../support/servers.ts";
import { rotated, type Spread, spread } from "../support/statistics.ts";
import type { PartitionsArguments, PartitionsJob, PartitionsResult } from "./child.ts";

export interface PartitionsSettings {
  readonly rounds: number;
  readonly jobs: number;
  readonly idleMs: number;
  readonly layouts: readonly { readonly servers: number; readonly partitions: number }[];
}

export interface PartitionsRow {
  readonly servers: number;
  readonly partitions: number;
  readonly jobsPerSecond: Spread;
  readonly clientCpuUs: Spread;
  /** CPU of all servers. */
  readonly serverCpuUs: Spread;
  readonly idleCommandsPerSecond: Spread;
  /** Connections of one process to all servers. */
  readonly connections: number;
  /** Bytes of all keys of a partition without jobs. */
  readonly partitionBytes: number;
  /** Memory of the servers without jobs, beyond the memory of empty servers: keys, scripts and connections. */
  readonly idleBytes: number;
}

type Sample = Readonly<
  Record<
    | "jobsPerSecond"
    | "clientCpuUs"
    | "serverCpuUs"
    | "idleCommandsPerSecond"
    | "connections"
    | "partitionBytes"
    | "idleBytes",
    number
  >
>;

const KEYS = 1_000;

export async function measurePartitions(settings: PartitionsSettings): Promise<readonly PartitionsRow[]> {
  const child = await compileChild(new URL("./child.ts", import.meta.url), "partitions");
  const samples = new Map<object, Sample[]>(settings.layouts.map((layout) => [layout, []]));
  for (let round = 0; round < settings.rounds; round += 1) {
    for (const layout of rotated(settings.layouts, round)) {
      samples.get(layout)?.push(await measureRound(child, layout, settings));
    }
  }
  return settings.layouts.map((layout) => {
    const own = samples.get(layout) ?? [];
    const of = (name: keyof Sample): Spread => spread(own.map((sample) => sample[name]));
    return {
      ...layout,
      jobsPerSecond: of("jobsPerSecond"),
      clientCpuUs: of("clientCpuUs"),
      serverCpuUs: of("serverCpuUs"),
      idleCommandsPerSecond: of("idleCommandsPerSecond"),
      connections: of("connections").median,
      partitionBytes: of("partitionBytes").median,
      idleBytes: of("idleBytes").median,
    };
  });
}

async function measureRound(
  file: URL,
  { servers: count, partitions }: { readonly servers: number; readonly partitions: number },
  { jobs, idleMs }: PartitionsSettings,
): Promise<Sample> {
  const servers = await startRedisNodes(count);
  const info = async (section: string, name: string): Promise<number> => {
    let sum = 0;
    for (const server of servers) {
      sum += Number(new RegExp(`^${name}:(\\d+)`, "m").exec(String(await server.call("INFO", section)))?.[1]);
    }
    return sum;
  };
  const clientsBefore = await info("clients", "connected_clients");
  const memoryBefore = await info("memory", "used_memory");
  const args: PartitionsArguments = { servers: servers.map(({ host, port }) => ({ host, port })), partitions };
  const child = new JobChild(file, `${count} servers, ${partitions} partitions`, [JSON.stringify(args)]);
  try {
    const idle = await child.ask<PartitionsResult>({ kind: "idle", durationMs: idleMs } satisfies PartitionsJob);
    const connections = (await info("clients", "connected_clients")) - clientsBefore;
    const idleBytes = (await info("memory", "used_memory")) - memoryBefore;
    const partitionBytes = (await bytesOfKeys(servers)) / partitions;
    // Compiling code and connecting at first do not belong to the cost of a job.
    const work: PartitionsJob = { kind: "work", jobs: Math.ceil(jobs / 10), keys: KEYS, workMs: 0 };
    await child.ask<PartitionsResult>(work);
    const before = await readServers(servers);
    const done = await child.ask<PartitionsResult>({ ...work, jobs });
    const after = await readServers(servers);
    return {
      jobsPerSecond: (jobs / done.elapsedMs) * 1_000,
      clientCpuUs: (done.cpuMs / jobs) * 1_000,
      // Includes the cost of adding the jobs.
      serverCpuUs: ((after.cpuMs - before.cpuMs) / jobs) * 1_000,
      idleCommandsPerSecond: (idle.commands / idle.elapsedMs) * 1_000,
      connections,
      partitionBytes,
      idleBytes,
    };
  } finally {
    await child.stop();
    await Promise.all(servers.map((server) => server.stop()));
  }
}

async function bytesOfKeys(servers: readonly RedisServer[]): Promise<number> {
  let sum = 0;
  for (const server of servers) {
    for (const key of (await server.call("KEYS", "*")) as readonly string[]) {
      sum += Number(await server.call("MEMORY", "USAGE", key));
    }
  }
  return sum;
}
