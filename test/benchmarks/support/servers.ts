/** What the servers say about the work that was done between two readings. */
import type { RedisServer } from "@x/test-support";

export interface ServerReading {
  /** Commands executed, those inside scripts included. */
  readonly calls: number;
  readonly cpuMs: number;
}

export async function readServers(servers: readonly RedisServer[]): Promise<ServerReading> {
  let calls = 0;
  let cpuMs = 0;
  for (const server of servers) {
    const info = String(await server.call("INFO", "everything"));
    calls += field(info, "total_commands_processed");
    cpuMs += (field(info, "used_cpu_user") + field(info, "used_cpu_sys")) * 1_000;
  }
  return { calls, cpuMs };
}

function field(info: string, name: string): number {
  return Number(new RegExp(`^${name}:(.*)$`, "m").exec(info)?.[1] ?? Number.NaN);
}
