/**
 * Many keys of one queue, each with jobs in line: measures the memory of a key and a job, and the cost of a start, by
 * the number of keys.
 */
import { startRedis } from "@x/test-support";
import { compileChild } from "../support/compile.ts";
import { JobChild } from "../support/jobs.ts";
import { readServers } from "../support/servers.ts";
import { rotated, type Spread, spread } from "../support/statistics.ts";
import type { KeysJob, KeysResult } from "./child.ts";

export interface KeysSettings {
  readonly rounds: number;
  readonly keyCounts: readonly number[];
  /** Jobs of each key. */
  readonly backlog: number;
  /** Greatest number of starts that are measured. */
  readonly starts: number;
}

export interface KeysRow {
  readonly keys: number;
  readonly backlog: number;
  /** Bytes of a job that BullMQ stores and no worker has fetched. */
  readonly waitingBytes: Spread;
  /** Additional bytes of a key and its jobs in line. */
  readonly lineBytes: Spread;
  /** CPU time to examine a job whose key is busy, and to put the job in line. */
  readonly parkServerUs: Spread;
  /** CPU time to examine a key, as a worker does once in `recheckInterval`. */
  readonly lookServerUs: Spread;
  readonly startsPerSecond: Spread;
  readonly startServerUs: Spread;
  readonly startClientUs: Spread;
  readonly startCalls: Spread;
}

type Sample = Readonly<Record<keyof Omit<KeysRow, "keys" | "backlog">, number>>;

/** Adding hundreds of thousands of jobs takes long. */
const SLOWEST_MS = 600_000;
const WARM_UP_KEYS = 200;

export async function measureKeys(settings: KeysSettings): Promise<readonly KeysRow[]> {
  const child = await compileChild(new URL("./child.ts", import.meta.url), "keys");
  const samples = new Map<number, Sample[]>(settings.keyCounts.map((keys) => [keys, []]));
  for (let round = 0; round < settings.rounds; round += 1) {
    for (const keys of rotated(settings.keyCounts, round)) {
      samples.get(keys)?.push(await measureRound(child, keys, settings));
    }
  }
  return [...samples].map(([keys, own]) => {
    const of = (name: keyof Sample): Spread => spread(own.map((sample) => sample[name]));
    return {
      keys,
      backlog: settings.backlog,
      waitingBytes: of("waitingBytes"),
      lineBytes: of("lineBytes"),
      parkServerUs: of("parkServerUs"),
      lookServerUs: of("lookServerUs"),
      startsPerSecond: of("startsPerSecond"),
      startServerUs: of("startServerUs"),
      startClientUs: of("startClientUs"),
      startCalls: of("startCalls"),
    };
  });
}

async function measureRound(file: URL, keys: number, { backlog, starts }: KeysSettings): Promise<Sample> {
  await using server = await startRedis();
  const memory = async (): Promise<number> => {
    const info = String(await server.call("INFO", "memory"));
    const of = (name: string): number => Number(new RegExp(`^${name}:(\\d+)`, "m").exec(info)?.[1]);
    // Without the scripts, which a server stores once.
    return of("used_memory_dataset") - of("used_memory_scripts");
  };
  const { host, port } = server;
  const child = new JobChild(file, `${keys} keys`, [JSON.stringify({ host, port })]);
  const ask = async (job: KeysJob): Promise<KeysResult> => await child.ask<KeysResult>(job, SLOWEST_MS);
  try {
    // Code that is compiled and loaded at first does not belong to the cost of a job.
    await ask({ kind: "add", keys: WARM_UP_KEYS, backlog });
    await ask({ kind: "park" });
    await ask({ kind: "resume", keys: WARM_UP_KEYS });
    await ask({ kind: "run", jobs: WARM_UP_KEYS * backlog });

    const jobs = keys * backlog;
    const empty = await memory();
    await ask({ kind: "add", keys, backlog });
    const waiting = await memory();
    const beforePark = await readServers([server]);
    await ask({ kind: "park" });
    const afterPark = await readServers([server]);
    const parked = await memory();
    await ask({ kind: "look" });
    const afterLook = await readServers([server]);
    await ask({ kind: "resume", keys });
    const before = await readServers([server]);
    const started = Math.min(starts, jobs);
    const done = await ask({ kind: "run", jobs: started });
    const after = await readServers([server]);
    return {
      waitingBytes: (waiting - empty) / jobs,
      lineBytes: (parked - waiting) / keys,
      parkServerUs: ((afterPark.cpuMs - beforePark.cpuMs) / jobs) * 1_000,
      lookServerUs: ((afterLook.cpuMs - afterPark.cpuMs) / keys) * 1_000,
      startsPerSecond: (started / done.elapsedMs) * 1_000,
      startServerUs: ((after.cpuMs - before.cpuMs) / started) * 1_000,
      startClientUs: (done.cpuMs / started) * 1_000,
      startCalls: (after.calls - before.calls) / started,
    };
  } finally {
    await child.stop();
  }
}
