/** Measures the memory of a lock: while it is requested, while it is held, and on the node afterwards. */
import { type RedisServer, startRedis } from "@x/test-support";
import { rotated, type Spread, spread } from "../support/statistics.ts";
import type { MemoryJob, MemoryResult } from "./child.ts";
import { type DriverName, driverNames } from "./drivers.ts";
import { startDriver } from "./start-driver.ts";

export interface MemorySettings {
  readonly rounds: number;
  readonly locks: number;
}

export interface MemoryRow {
  readonly driver: DriverName;
  readonly locks: number;
  /** Bytes of the client's heap and buffers for each acquisition that has not been answered. */
  readonly pendingBytes: Spread;
  /** Bytes of the client's heap and buffers for each held lock. */
  readonly heldBytes: Spread;
  /** Bytes of the node for each resource after its lock was released. */
  readonly leftBytes: Spread;
}

const ttlMs = 60_000;

/** The class with the API of redlock 5 has the same locks as `ours`. */
const measured = driverNames.filter((driver) => driver !== "ours, as redlock 5");

/** Each round of each driver has its own server and process. */
export async function measureMemory(
  settings: MemorySettings,
  drivers: readonly DriverName[] = measured,
): Promise<readonly MemoryRow[]> {
  const samples = new Map<DriverName, Sample[]>(drivers.map((driver) => [driver, []]));
  for (let round = 0; round < settings.rounds; round += 1) {
    for (const driver of rotated(drivers, round)) samples.get(driver)?.push(await measureDriver(driver, settings));
  }
  return drivers.map((driver) => {
    const own = samples.get(driver) ?? [];
    return {
      driver,
      locks: settings.locks,
      pendingBytes: spread(own.map((sample) => sample.pendingBytes)),
      heldBytes: spread(own.map((sample) => sample.heldBytes)),
      leftBytes: spread(own.map((sample) => sample.leftBytes)),
    };
  });
}

interface Sample extends MemoryResult {
  readonly leftBytes: number;
}

async function measureDriver(driver: DriverName, { locks }: MemorySettings): Promise<Sample> {
  const server = await startRedis();
  const child = await startDriver(driver, [server], { ttl: ttlMs });
  try {
    const job: MemoryJob = { kind: "memory", count: locks, run: 0 };
    // In the second run, code is compiled and buffers have grown. It has its own resources.
    await child.ask<MemoryResult>(job);
    const before = await usedBytes(server);
    const result = await child.ask<MemoryResult>({ ...job, run: 1 });
    return { ...result, leftBytes: ((await usedBytes(server)) - before) / locks };
  } finally {
    await child.stop();
    await server.stop();
  }
}

async function usedBytes(server: RedisServer): Promise<number> {
  return Number(/^used_memory:(\d+)/m.exec(String(await server.call("INFO", "memory")))?.[1] ?? Number.NaN);
}
