/** The work of the servers between two readings, as the servers report it. */
import type { RedisServer } from "@x/test-support";

export interface ServerReading {
  /** Executed commands, including commands inside scripts. */
  readonly calls: number;
  readonly cpuMs: number;
  /** Calls and microseconds by command. The time of a script includes the commands that it calls. */
  readonly byCommand: ReadonlyMap<string, { readonly calls: number; readonly us: number }>;
}

export async function readServers(servers: readonly RedisServer[]): Promise<ServerReading> {
  let calls = 0;
  let cpuMs = 0;
  const byCommand = new Map<string, { calls: number; us: number }>();
  for (const server of servers) {
    const info = String(await server.call("INFO", "everything"));
    calls += field(info, "total_commands_processed");
    cpuMs += (field(info, "used_cpu_user") + field(info, "used_cpu_sys")) * 1_000;
    for (const [, name = "", ran, us] of info.matchAll(/^cmdstat_([^:]+):calls=(\d+),usec=(\d+)/gm)) {
      const before = byCommand.get(name);
      byCommand.set(name, { calls: (before?.calls ?? 0) + Number(ran), us: (before?.us ?? 0) + Number(us) });
    }
  }
  return { calls, cpuMs, byCommand };
}

export function commandsBetween(before: ServerReading, after: ServerReading): ServerReading["byCommand"] {
  return new Map(
    [...after.byCommand].map(([name, { calls, us }]) => {
      const earlier = before.byCommand.get(name);
      return [name, { calls: calls - (earlier?.calls ?? 0), us: us - (earlier?.us ?? 0) }];
    }),
  );
}

function field(info: string, name: string): number {
  return Number(new RegExp(`^${name}:(.*)$`, "m").exec(info)?.[1] ?? Number.NaN);
}
