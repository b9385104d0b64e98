/** Pairs of acquire and release without contention: measures the cost of a lock. */
import { type RedisServer, startRedisNodes } from "@x/test-support";
import type { JobChild } from "../support/jobs.ts";
import { readServers } from "../support/servers.ts";
import { median, ratios, rotated, type Spread, spread } from "../support/statistics.ts";
import type { PairsJob, PairsResult } from "./child.ts";
import { type DriverName, floor, pairDriverNames } from "./drivers.ts";
import { startDriver } from "./start-driver.ts";

export interface ThroughputSettings {
  readonly rounds: number;
  readonly durationMs: number;
  readonly warmUpMs: number;
  /** Number of concurrent loops of acquire and release. */
  readonly callers: readonly number[];
}

export interface ThroughputRow {
  readonly driver: DriverName;
  readonly nodes: number;
  readonly callers: number;
  readonly rounds: number;
  readonly pairsPerSecond: Spread;
  /** Ratios to plain ioredis, and to redlock 5, in the same round. */
  readonly timesFloor: Spread;
  readonly timesRedlock5: Spread;
  readonly clientCpuUs: Spread;
  readonly clientCpuTimesFloor: Spread;
  readonly serverCpuUs: Spread;
  readonly serverCpuTimesFloor: Spread;
  /** Commands that were sent for each pair, to all nodes together. */
  readonly commands: number;
  /** Commands that were executed for each pair, including commands inside scripts. */
  readonly serverCalls: number;
  readonly errors: number;
}

interface Sample extends PairsResult {
  readonly serverCpuMs: number;
  readonly serverCalls: number;
}

const ttlMs = 30_000;

/** Measures all drivers with every number of nodes and callers, in turn within each round. */
export async function measureThroughput(
  settings: ThroughputSettings,
  drivers: readonly DriverName[] = pairDriverNames,
): Promise<readonly ThroughputRow[]> {
  const rows: ThroughputRow[] = [];
  for (const nodeCount of [1, 5]) {
    const servers = await startRedisNodes(nodeCount);
    try {
      rows.push(...(await measureOn(servers, settings, drivers)));
    } finally {
      await Promise.all(servers.map((server) => server.stop()));
    }
  }
  return rows;
}

async function measureOn(
  servers: readonly RedisServer[],
  settings: ThroughputSettings,
  drivers: readonly DriverName[],
): Promise<readonly ThroughputRow[]> {
  const children = new Map<DriverName, JobChild>();
  try {
    for (const driver of drivers) children.set(driver, await startDriver(driver, servers, { ttl: ttlMs }));
    return await measureWith(children, servers, settings);
  } finally {
    await Promise.all([...children.values()].map((child) => child.stop()));
  }
}

async function measureWith(
  children: ReadonlyMap<DriverName, JobChild>,
  servers: readonly RedisServer[],
  settings: ThroughputSettings,
): Promise<readonly ThroughputRow[]> {
  const drivers = [...children.keys()];
  const rows: ThroughputRow[] = [];
  for (const callers of settings.callers) {
    const samples = new Map<DriverName, Sample[]>(drivers.map((driver) => [driver, []]));
    const job: PairsJob = { kind: "pairs", callers, durationMs: settings.durationMs, warmUpMs: settings.warmUpMs };
    for (let round = 0; round < settings.rounds; round += 1) {
      for (const driver of rotated(drivers, round)) {
        const child = children.get(driver);
        if (child === undefined) continue;
        if (round === 0) await child.ask<PairsResult>({ ...job, durationMs: settings.warmUpMs });
        const before = await readServers(servers);
        const result = await child.ask<PairsResult>({ ...job, warmUpMs: 0 });
        const after = await readServers(servers);
        samples.get(driver)?.push({
          ...result,
          serverCpuMs: after.cpuMs - before.cpuMs,
          serverCalls: after.calls - before.calls,
        });
      }
    }
    for (const driver of drivers) rows.push(rowOf(driver, { nodes: servers.length, callers }, samples));
  }
  return rows;
}

function rowOf(
  driver: DriverName,
  setting: { readonly nodes: number; readonly callers: number },
  samples: ReadonlyMap<DriverName, readonly Sample[]>,
): ThroughputRow {
  const valuesOf = (name: DriverName, value: (sample: Sample) => number): number[] =>
    (samples.get(name) ?? []).map(value);
  const perSecond = (sample: Sample): number => (sample.pairs / sample.elapsedMs) * 1_000;
  const cpuUs = (sample: Sample): number => (sample.cpuMs * 1_000) / sample.pairs;
  const serverCpuUs = (sample: Sample): number => (sample.serverCpuMs * 1_000) / sample.pairs;
  const own = valuesOf(driver, perSecond);
  return {
    driver,
    ...setting,
    rounds: own.length,
    pairsPerSecond: spread(own),
    timesFloor: spread(ratios(own, valuesOf(floor, perSecond))),
    timesRedlock5: spread(ratios(own, valuesOf("redlock 5", perSecond))),
    clientCpuUs: spread(valuesOf(driver, cpuUs)),
    clientCpuTimesFloor: spread(ratios(valuesOf(driver, cpuUs), valuesOf(floor, cpuUs))),
    serverCpuUs: spread(valuesOf(driver, serverCpuUs)),
    serverCpuTimesFloor: spread(ratios(valuesOf(driver, serverCpuUs), valuesOf(floor, serverCpuUs))),
    commands: median(valuesOf(driver, (sample) => sample.commands / sample.pairs)),
    serverCalls: median(valuesOf(driver, (sample) => sample.serverCalls / sample.pairs)),
    errors: valuesOf(driver, (sample) => sample.errors).reduce((sum, each) => sum + each, 0),
  };
}
