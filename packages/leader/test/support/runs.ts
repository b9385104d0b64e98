import { readFileSync } from "node:fs";
import { type Child, spawnChild } from "@x/test-support";

export interface ReplicaArgs {
  readonly paths: readonly string[];
  readonly id: string;
  readonly file: string;
  readonly maxTtl: number;
  readonly everyMs: number;
  readonly slowMs?: number;
  readonly durations: { readonly leaseDuration: number; readonly renewDeadline: number; readonly retryPeriod: number };
}

/** One line of the file in which all replicas record their runs. */
export interface Run {
  readonly event: "start" | "end";
  readonly by: string;
  readonly schedule: string;
  readonly id: string;
  readonly atMs: number;
  readonly attempt: number;
  readonly term: number;
  readonly catchup: boolean;
}

export function spawnReplica(args: ReplicaArgs): Child {
  return spawnChild(new URL("../children/replica.ts", import.meta.url), {
    name: args.id,
    args: [JSON.stringify(args)],
  });
}

export function readRuns(file: string): readonly Run[] {
  return readFileSync(file, "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as Run);
}

/** Checks the runs of one schedule, without knowledge of how they were made. */
export function judge(
  runs: readonly Run[],
  schedule: string,
  everyMs: number,
): { readonly ticks: number; readonly duplicates: readonly Run[]; readonly missed: readonly number[] } {
  const own = runs.filter((run) => run.schedule === schedule && run.event === "start");
  const seen = new Set<string>();
  const duplicates = own.filter((run) => seen.size === seen.add(run.id).size);
  const times = new Set(own.map((run) => run.atMs));
  const missed: number[] = [];
  const last = Math.max(...times);
  for (let at = Math.min(...times); at <= last; at += everyMs) if (!times.has(at)) missed.push(at);
  return { ticks: times.size + missed.length, duplicates, missed };
}
