/** A process that leads many elections: measures the cost of keeping them. */
import { startRedisNodes } from "@x/test-support";
import { compileChild } from "../support/compile.ts";
import { JobChild } from "../support/jobs.ts";
import { readServers } from "../support/servers.ts";
import { rotated, type Spread, spread } from "../support/statistics.ts";
import type { Durations } from "./ballot.ts";
import type { IdleResult, LeaderArguments, LeaderJob } from "./child.ts";
import type { WayName } from "./ways.ts";

export interface ManySettings {
  readonly nodeCounts: readonly number[];
  readonly rounds: number;
  readonly elections: number;
  readonly durations: Durations;
  readonly idleMs: number;
}

export interface ManyRow {
  readonly way: WayName;
  readonly nodes: number;
  readonly elections: number;
  readonly durations: Durations;
  /** Commands to all nodes. */
  readonly commandsPerSecond: Spread;
  readonly serverCallsPerSecond: Spread;
  /** Share of one core. */
  readonly clientCpuPercent: Spread;
}

type Sample = Readonly<Record<"commandsPerSecond" | "serverCallsPerSecond" | "clientCpuPercent", number>>;

/** The floor, and this project's package. */
const measured: readonly WayName[] = ["SET NX PX", "ours"];

export async function measureMany(
  settings: ManySettings,
  names: readonly WayName[] = measured,
): Promise<readonly ManyRow[]> {
  const child = await compileChild(new URL("./child.ts", import.meta.url), "leaders");
  const rows: ManyRow[] = [];
  for (const nodes of settings.nodeCounts) {
    const samples = new Map<WayName, Sample[]>(names.map((way) => [way, []]));
    for (let round = 0; round < settings.rounds; round += 1) {
      for (const way of rotated(names, round)) samples.get(way)?.push(await measureRound(child, way, nodes, settings));
    }
    for (const way of names) {
      const own = samples.get(way) ?? [];
      rows.push({
        way,
        nodes,
        elections: settings.elections,
        durations: settings.durations,
        commandsPerSecond: spread(own.map(({ commandsPerSecond }) => commandsPerSecond)),
        serverCallsPerSecond: spread(own.map(({ serverCallsPerSecond }) => serverCallsPerSecond)),
        clientCpuPercent: spread(own.map(({ clientCpuPercent }) => clientCpuPercent)),
      });
    }
  }
  return rows;
}

async function measureRound(child: URL, way: WayName, nodes: number, settings: ManySettings): Promise<Sample> {
  const { durations, elections, idleMs } = settings;
  const servers = await startRedisNodes(nodes);
  const args: LeaderArguments = { way, nodes: servers.map(({ host, port }) => ({ host, port })), durations };
  const leader = new JobChild(child, way, [JSON.stringify(args)]);
  try {
    const lead: LeaderJob = { kind: "lead", elections };
    await leader.ask<number>(lead);
    const idle: LeaderJob = { kind: "idle", durationMs: idleMs };
    const before = await readServers(servers);
    const { commands, elapsedMs, cpuMs } = await leader.ask<IdleResult>(idle);
    const after = await readServers(servers);
    return {
      commandsPerSecond: (commands / elapsedMs) * 1_000,
      serverCallsPerSecond: ((after.calls - before.calls) / elapsedMs) * 1_000,
      clientCpuPercent: (cpuMs / elapsedMs) * 100,
    };
  } finally {
    await leader.stop();
    await Promise.all(servers.map((server) => server.stop()));
  }
}
