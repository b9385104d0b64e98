/** Five nodes, of which one is stopped with SIGSTOP: its connections stay open, and it answers nothing. */
import { startRedisNodes } from "@x/test-support";
import { quantile } from "../support/statistics.ts";
import type { LatencyJob, LatencyResult } from "./child.ts";
import { type DriverName, driverNames } from "./drivers.ts";
import { startDriver } from "./start-driver.ts";

export interface HungNodeRow {
  readonly driver: DriverName;
  readonly healthyP50Ms: number;
  readonly hungP50Ms: number;
  readonly hungP99Ms: number;
  /** Pairs that were cut off after `cutOffMs`. After three such pairs the driver is not asked again. */
  readonly cutOff: number;
  readonly errors: number;
}

const cutOffMs = 2_000;

export async function measureHungNode(settings: { readonly pairs: number }): Promise<readonly HungNodeRow[]> {
  const rows: HungNodeRow[] = [];
  for (const driver of driverNames) {
    const servers = await startRedisNodes(5);
    const child = await startDriver(driver, servers, { ttl: 10_000 });
    try {
      const job: LatencyJob = { kind: "latency", count: settings.pairs, cutOffMs };
      const healthy = await child.ask<LatencyResult>(job);
      servers[2]?.freeze();
      const hung = await child.ask<LatencyResult>(job);
      const pairMs = (result: LatencyResult): number[] =>
        result.acquireMs.map((acquireMs, index) => acquireMs + (result.releaseMs[index] ?? 0));
      rows.push({
        driver,
        healthyP50Ms: quantile(pairMs(healthy), 0.5),
        hungP50Ms: quantile(pairMs(hung), 0.5),
        hungP99Ms: quantile(pairMs(hung), 0.99),
        cutOff: hung.cutOff,
        errors: hung.errors,
      });
    } finally {
      await child.stop();
      for (const server of servers) server.thaw();
      await Promise.all(servers.map((server) => server.stop()));
    }
  }
  return rows;
}
