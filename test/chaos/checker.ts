/** Pure: reads a recorded history and reports broken promises. Does not depend on how the history was made. */
import type { History } from "./history.ts";

export interface Held {
  readonly who: string;
  readonly hold: string;
  readonly resource: string;
  readonly fencingToken: number;
  readonly fromMs: number;
  /** The last time at which the hold was seen to be valid. It may have been valid for longer. */
  readonly toMs: number;
}

export interface Verdict {
  readonly problems: readonly string[];
  readonly intervals: readonly Held[];
  readonly jobs: { readonly added: number; readonly completed: number; readonly runs: number };
  readonly writes: { readonly accepted: number; readonly refused: number };
}

export function checkHistory(history: History): Verdict {
  const intervals = intervalsOf(history);
  return {
    problems: [
      ...overlaps(intervals),
      ...tokenOrder(intervals),
      ...refusedValid(history, intervals),
      ...lostJobs(history),
      ...jobOrder(history),
      ...troubles(history),
    ],
    intervals,
    jobs: {
      added: history.filter(({ kind }) => kind === "added").length,
      completed: history.filter(({ kind }) => kind === "completed").length,
      runs: history.filter((entry) => entry.kind === "told" && entry.told.type === "job").length,
    },
    writes: {
      accepted: history.filter((entry) => entry.kind === "write" && entry.accepted).length,
      refused: history.filter((entry) => entry.kind === "write" && !entry.accepted).length,
    },
  };
}

function intervalsOf(history: History): readonly Held[] {
  const intervals = new Map<string, Held>();
  for (const entry of history) {
    if (entry.kind !== "told" || entry.told.type !== "held") continue;
    const { hold, resource, fencingToken, atMs } = entry.told;
    const before = intervals.get(hold);
    intervals.set(hold, {
      who: entry.who,
      hold,
      resource,
      fencingToken,
      fromMs: Math.min(before?.fromMs ?? atMs, atMs),
      toMs: Math.max(before?.toMs ?? atMs, atMs),
    });
  }
  return [...intervals.values()].toSorted((a, b) => a.fromMs - b.fromMs);
}

function byResource(intervals: readonly Held[]): readonly (readonly Held[])[] {
  return [...new Set(intervals.map(({ resource }) => resource))].map((resource) =>
    intervals.filter((interval) => interval.resource === resource),
  );
}

function overlaps(intervals: readonly Held[]): readonly string[] {
  const problems: string[] = [];
  for (const held of byResource(intervals)) {
    let last: Held | undefined;
    for (const interval of held) {
      if (last !== undefined && interval.fromMs < last.toMs) {
        problems.push(
          `exclusion: ${describe(last)} and ${describe(interval)} both had ${interval.resource} for ${(Math.min(last.toMs, interval.toMs) - interval.fromMs).toFixed(1)} ms`,
        );
      }
      if (last === undefined || interval.toMs > last.toMs) last = interval;
    }
  }
  return problems;
}

function tokenOrder(intervals: readonly Held[]): readonly string[] {
  const problems: string[] = [];
  for (const held of byResource(intervals)) {
    for (const [index, interval] of held.entries()) {
      const before = held[index - 1];
      if (before === undefined || interval.fencingToken > before.fencingToken) continue;
      problems.push(`token order: ${describe(interval)} had ${interval.resource} after ${describe(before)}`);
    }
  }
  return problems;
}

/** Finds refused writes of holders that were seen to be valid afterwards. */
function refusedValid(history: History, intervals: readonly Held[]): readonly string[] {
  const byHold = new Map(intervals.map((interval) => [interval.hold, interval]));
  return history.flatMap((entry) => {
    if (entry.kind !== "write" || entry.accepted) return [];
    const interval = byHold.get(entry.hold);
    if (interval === undefined || interval.toMs <= entry.atMs) return [];
    return [`fencing: a write of ${describe(interval)} to ${entry.resource} was refused while it was valid`];
  });
}

function lostJobs(history: History): readonly string[] {
  const completed = new Set(
    history.flatMap((entry) => (entry.kind === "completed" ? [`${entry.key}-${entry.seq}`] : [])),
  );
  return history.flatMap((entry) => {
    if (entry.kind !== "added" || completed.has(`${entry.key}-${entry.seq}`)) return [];
    return [`lost job: ${entry.key}-${entry.seq} was added and never completed`];
  });
}

/** Checks that the jobs of a key begin in the order in which they were added. A job may run again later. */
function jobOrder(history: History): readonly string[] {
  const lastOf = new Map<string, number>();
  const begun = new Set<string>();
  const runs = history
    .flatMap((entry) => (entry.kind === "told" && entry.told.type === "job" ? [entry.told] : []))
    .toSorted((a, b) => a.atMs - b.atMs);
  return runs.flatMap(({ key, seq }) => {
    if (begun.has(`${key}-${seq}`)) return [];
    begun.add(`${key}-${seq}`);
    const last = lastOf.get(key) ?? -1;
    lastOf.set(key, Math.max(last, seq));
    return seq > last ? [] : [`order: ${key}-${seq} began after ${key}-${last}`];
  });
}

function troubles(history: History): readonly string[] {
  return history.flatMap((entry) => {
    if (entry.kind !== "told" || entry.told.type !== "trouble") return [];
    return [`${entry.who}: ${entry.told.message}`];
  });
}

function describe({ who, fencingToken }: Held): string {
  return `${who} (${fencingToken})`;
}
