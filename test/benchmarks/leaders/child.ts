/**
 * The candidates of a process: one candidate, or one for each of many elections. Arguments: way, nodes and durations as
 * JSON.
 */
import { setTimeout as delay } from "node:timers/promises";
import { machineMs } from "@x/test-support";
import { commandsSent, countCommands } from "../support/commands.ts";
import { cpuMsSince } from "../support/cpu.ts";
import { serveJobs } from "../support/jobs.ts";
import type { Durations, Term } from "./ballot.ts";
import { type NodeAddress, openBallot, type WayName } from "./ways.ts";

export interface LeaderArguments {
  readonly way: WayName;
  readonly nodes: readonly NodeAddress[];
  readonly durations: Durations;
}

/**
 * `campaign` answers with the time from which this candidate leads, `loss` with the time at which it learned that it
 * had lost its term, and `resign` with the time at which it began to resign. All times are by `machineMs`.
 */
export type LeaderJob =
  | { readonly kind: "campaign" | "loss" | "resign" }
  | { readonly kind: "idle"; readonly durationMs: number }
  /** Answers when this process leads this number of elections. */
  | { readonly kind: "lead"; readonly elections: number };

export interface IdleResult {
  readonly commands: number;
  readonly elapsedMs: number;
  readonly cpuMs: number;
}

/**
 * Only keeping the elections is measured. A thousand elections that start together on a busy machine answer too late,
 * and begin again together.
 */
const STARTED_TOGETHER = 50;

countCommands();
const { way, nodes, durations } = JSON.parse(process.argv[2] ?? "") as LeaderArguments;
const ballot = openBallot(way, nodes, durations);
const candidate = ballot("bench");
let term: Term | undefined;

serveJobs(async (job: LeaderJob): Promise<number | IdleResult> => {
  if (job.kind === "idle") return await idle(job.durationMs);
  if (job.kind === "lead") {
    const names = Array.from({ length: job.elections }, (_, index) => `bench ${index}`);
    for (let from = 0; from < names.length; from += STARTED_TOGETHER) {
      await Promise.all(names.slice(from, from + STARTED_TOGETHER).map((name) => ballot(name).campaign()));
    }
    return names.length;
  }
  if (job.kind === "campaign") {
    term = await candidate.campaign();
    return machineMs();
  }
  if (job.kind === "loss") {
    await term?.lost;
    return machineMs();
  }
  const atMs = machineMs();
  await term?.resign();
  return atMs;
});

async function idle(durationMs: number): Promise<IdleResult> {
  const commands = commandsSent();
  const cpu = process.cpuUsage();
  const startMs = performance.now();
  await delay(durationMs);
  return {
    commands: commandsSent() - commands,
    elapsedMs: performance.now() - startMs,
    cpuMs: cpuMsSince(cpu),
  };
}
