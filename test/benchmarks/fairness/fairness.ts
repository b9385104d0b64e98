/**
 * A hot tenant in front of many quiet tenants with one job each: measures when the last quiet tenant is served, and the
 * cost of a start.
 */
import { startRedis } from "@x/test-support";
import { compileChild } from "../support/compile.ts";
import { JobChild } from "../support/jobs.ts";
import { readServers } from "../support/servers.ts";
import { rotated, type Spread, spread } from "../support/statistics.ts";
import type { SystemName } from "../workers/systems.ts";
import type { FairnessArguments, FairnessJob, FairnessResult } from "./child.ts";

export interface FairnessLoad {
  readonly slots: number;
  /** Jobs of the hot tenant, which are added first. */
  readonly hot: number;
  /** Tenants with one job each. */
  readonly quiet: number;
}

export interface FairnessSettings {
  readonly rounds: number;
  readonly loads: readonly FairnessLoad[];
}

export interface FairnessRow extends FairnessLoad {
  readonly system: SystemName;
  /** Jobs of the hot tenant that started before the last quiet tenant was served. */
  readonly hotStarts: Spread;
  readonly halfSeconds: Spread;
  readonly lastSeconds: Spread;
  readonly startCalls: Spread;
  readonly startServerUs: Spread;
  readonly startClientUs: Spread;
}

type Sample = Readonly<Record<keyof Omit<FairnessRow, "system" | keyof FairnessLoad>, number>>;

const systems: readonly SystemName[] = [
  "BullMQ, no exclusion",
  "groupmq",
  "ExclusiveWorker",
  "ExclusiveWorker, in rotation",
];
/** A hundred thousand jobs, one after the other, take long. */
const SLOWEST_MS = 600_000;

export async function measureFairness(settings: FairnessSettings): Promise<readonly FairnessRow[]> {
  const child = await compileChild(new URL("./child.ts", import.meta.url), "fairness");
  const rows: FairnessRow[] = [];
  for (const load of settings.loads) {
    const samples = new Map<SystemName, Sample[]>(systems.map((system) => [system, []]));
    for (let round = 0; round < settings.rounds; round += 1) {
      for (const system of rotated(systems, round)) samples.get(system)?.push(await measureRound(child, system, load));
    }
    for (const [system, own] of samples) {
      const of = (name: keyof Sample): Spread => spread(own.map((sample) => sample[name]));
      rows.push({
        ...load,
        system,
        hotStarts: of("hotStarts"),
        halfSeconds: of("halfSeconds"),
        lastSeconds: of("lastSeconds"),
        startCalls: of("startCalls"),
        startServerUs: of("startServerUs"),
        startClientUs: of("startClientUs"),
      });
    }
  }
  return rows;
}

async function measureRound(file: URL, system: SystemName, { slots, hot, quiet }: FairnessLoad): Promise<Sample> {
  await using server = await startRedis();
  const args: FairnessArguments = { system, slots, host: server.host, port: server.port };
  const child = new JobChild(file, system, [JSON.stringify(args)]);
  try {
    await child.ask({ kind: "add", hot, quiet } satisfies FairnessJob, SLOWEST_MS);
    const before = await readServers([server]);
    const done = await child.ask<FairnessResult>({ kind: "work", quiet } satisfies FairnessJob, SLOWEST_MS);
    const after = await readServers([server]);
    return {
      hotStarts: done.hotStarts,
      halfSeconds: done.halfMs / 1_000,
      lastSeconds: done.lastMs / 1_000,
      startCalls: (after.calls - before.calls) / done.starts,
      startServerUs: ((after.cpuMs - before.cpuMs) / done.starts) * 1_000,
      startClientUs: (done.cpuMs / done.starts) * 1_000,
    };
  } finally {
    await child.stop();
  }
}
