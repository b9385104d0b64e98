/** Measures a process that extends a thousand locks. */
import { type RedisServer, startRedis } from "@x/test-support";
import { readServers } from "../support/servers.ts";
import type { HoldJob, HoldResult } from "./child.ts";
import type { DriverName } from "./drivers.ts";
import { startDriver } from "./start-driver.ts";

export interface HeldRow {
  readonly driver: DriverName;
  readonly locks: number;
  readonly commandsPerSecond: number;
  readonly serverCallsPerSecond: number;
  /** Share of one core. */
  readonly clientCpuPercent: number;
}

const ttlMs = 2_000;

/** redlock 4 and plain ioredis have no automatic extension. */
const measured: readonly DriverName[] = ["redlock 5", "redlock-universal", "redis-semaphore", "ours"];

export async function measureHeld(
  settings: { readonly locks: number; readonly durationMs: number },
  drivers: readonly DriverName[] = measured,
): Promise<readonly HeldRow[]> {
  const server = await startRedis();
  try {
    const rows: HeldRow[] = [];
    for (const driver of drivers) rows.push(await measureDriver(driver, server, settings));
    return rows;
  } finally {
    await server.stop();
  }
}

async function measureDriver(
  driver: DriverName,
  server: RedisServer,
  settings: { readonly locks: number; readonly durationMs: number },
): Promise<HeldRow> {
  const child = await startDriver(driver, [server], { ttl: ttlMs });
  try {
    const job: HoldJob = { kind: "hold", count: settings.locks, settleMs: ttlMs, durationMs: settings.durationMs };
    const asked = child.ask<HoldResult>(job);
    // Between the start and the release, the process sends only extensions.
    await new Promise((resolve) => setTimeout(resolve, ttlMs * 1.5));
    const startMs = performance.now();
    const before = await readServers([server]);
    await new Promise((resolve) => setTimeout(resolve, settings.durationMs / 2));
    const after = await readServers([server]);
    const seconds = (performance.now() - startMs) / 1_000;
    const result = await asked;
    return {
      driver,
      locks: settings.locks,
      commandsPerSecond: (result.commands / result.elapsedMs) * 1_000,
      serverCallsPerSecond: (after.calls - before.calls) / seconds,
      clientCpuPercent: (result.cpuMs / result.elapsedMs) * 100,
    };
  } finally {
    await child.stop();
  }
}
