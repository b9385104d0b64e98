/** Runs many schedules concurrently, in the order of their seeds, until enough schedules break an invariant. */

import { runElectionSchedule } from "./election-schedule.ts";
import type { Engine } from "./engine.ts";
import { runLatchSchedule } from "./permits/latch-schedule.ts";
import { runPermitSchedule } from "./permits/schedule.ts";
import { runSchedule, type ScheduleOptions, type ScheduleResult } from "./schedule.ts";
import type { SettingOptions } from "./setting.ts";

/** Number of worlds that share a turn of the real event loop. */
const SIDE_BY_SIDE = 16;

/**
 * The kind of schedules. `locks`: processes that acquire and release locks; `permits`: processes with a semaphore or a
 * read-write lock; `latches`: processes that count down and wait; `elections`: candidates and their schedulers.
 */
export type Subject = "locks" | "elections" | "permits" | "latches";

export const runOf: Readonly<
  Record<Subject, (engine: Engine, seed: string, options?: ScheduleOptions) => Promise<ScheduleResult>>
> = { locks: runSchedule, elections: runElectionSchedule, permits: runPermitSchedule, latches: runLatchSchedule };

export interface SearchOptions extends SettingOptions {
  /** Prefix of the seeds: the search plays `<seed>/1`, `<seed>/2`, … */
  readonly seed: string;
  readonly runs: number;
  /** Default: locks. */
  readonly subject?: Subject;
  /** Number of violations after which the search ends. Default: 1. */
  readonly violations?: number;
  readonly onResult?: (result: ScheduleResult, done: number) => void;
}

export interface SearchResult {
  readonly runs: number;
  readonly events: number;
  readonly grants: number;
  readonly seconds: number;
  /** The first violations in the order of their seeds, with the number of the schedule. */
  readonly violations: readonly { readonly run: number; readonly result: ScheduleResult }[];
}

export async function search(engine: Engine, options: SearchOptions): Promise<SearchResult> {
  const startedMs = performance.now();
  const wanted = options.violations ?? 1;
  const found: { readonly run: number; readonly result: ScheduleResult }[] = [];
  let [next, done, events, grants] = [1, 0, 0, 0];
  const worker = async (): Promise<void> => {
    while (next <= options.runs && found.length < wanted) {
      const run = next;
      next += 1;
      const result = await runOf[options.subject ?? "locks"](engine, seedOf(options.seed, run), options);
      done += 1;
      events += result.events;
      grants += result.grants;
      if (result.violation !== undefined) found.push({ run, result });
      options.onResult?.(result, done);
    }
  };
  await Promise.all(Array.from({ length: Math.min(SIDE_BY_SIDE, options.runs) }, worker));
  return {
    runs: done,
    events,
    grants,
    seconds: (performance.now() - startedMs) / 1_000,
    violations: found.toSorted((a, b) => a.run - b.run),
  };
}

/** Returns the seed of a schedule. A full seed, with a slash, replays one schedule. */
function seedOf(seed: string, run: number): string {
  return seed.includes("/") ? seed : `${seed}/${run}`;
}
