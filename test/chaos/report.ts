/** The report of a chaos run: the findings, and a picture of the holders over time with the faults. */
import { escaped, type Track, tracksSvg } from "@x/test-support";
import type { Verdict } from "./checker.ts";
import type { History } from "./history.ts";

export function reportPage(title: string, history: History, verdict: Verdict): string {
  return `<!doctype html>
<meta charset="utf-8">
<title>${escaped(title)}</title>
<style>body{font:14px system-ui,sans-serif;margin:24px}pre{font-size:12px}</style>
<h1>${escaped(title)}</h1>
<pre>${escaped(summary(history, verdict))}</pre>
${chaosSvg(title, history, verdict)}
`;
}

export function summary(history: History, verdict: Verdict): string {
  const { intervals, jobs, writes, problems } = verdict;
  const faults = history.filter(({ kind }) => kind === "fault");
  const leaderships = intervals.filter(({ resource }) => resource.startsWith("leader:"));
  return [
    `${faults.length} faults, ${intervals.length} holds (${leaderships.length} terms), ${jobs.completed} of ${jobs.added} jobs completed in ${jobs.runs} runs,`,
    `${writes.accepted} writes accepted, ${writes.refused} late ones refused`,
    problems.length === 0 ? "no invariant broke" : `${problems.length} problems:`,
    ...problems.slice(0, 50),
  ].join("\n");
}

const SERVERS = ["node 1", "node 2", "node 3", "queue"];
const FAULT_COLOURS = { killed: "#b3141d", frozen: "#d9822b", network: "#8b95a3", none: "#000000" } as const;
const HOLDER_HEIGHT = 14;
const FAULT_HEIGHT = 8;

/** Draws which process held which resource when, and below, the faults of each server and process. */
export function chaosSvg(title: string, history: History, verdict: Verdict): string {
  const { intervals } = verdict;
  const faults = history.flatMap((entry) => (entry.kind === "fault" ? [entry] : []));
  const ends = new Map(history.flatMap((entry) => (entry.kind === "mended" ? [[entry.id, entry.atMs] as const] : [])));
  const late = history.flatMap((entry) => (entry.kind === "write" && !entry.accepted ? [entry] : []));
  const times = [...faults.map(({ atMs }) => atMs), ...intervals.flatMap((held) => [held.fromMs, held.toMs])];
  const fromMs = times.reduce((least, atMs) => Math.min(least, atMs), times[0] ?? 0);
  const toMs = times.reduce((most, atMs) => Math.max(most, atMs), fromMs);
  const resources = [...new Set(intervals.map(({ resource }) => resource))].toSorted(jobsLast);
  const struck = new Set(faults.flatMap(({ on }) => (on === undefined || SERVERS.includes(on) ? [] : [on])));
  const holders = [...new Set([...struck, ...intervals.map(({ who }) => who)])].toSorted(byName);
  const colourOf = (who: string): string => `hsl(${Math.round((holders.indexOf(who) * 360) / holders.length)} 55% 42%)`;
  const held = resources.map(
    (resource): Track => ({
      label: resource,
      height: HOLDER_HEIGHT,
      bars: intervals
        .filter((interval) => interval.resource === resource)
        .map((interval) => ({
          fromMs: interval.fromMs,
          toMs: interval.toMs,
          colour: colourOf(interval.who),
          title: `${interval.who}, fencing token ${interval.fencingToken}, ${(interval.fromMs - fromMs).toFixed(0)} to ${(interval.toMs - fromMs).toFixed(0)} ms`,
        })),
      dots: late
        .filter((write) => write.resource === resource)
        .map(({ who, atMs }) => ({ atMs, colour: FAULT_COLOURS.killed, title: `a late write of ${who} was refused` })),
    }),
  );
  const strikes = [...SERVERS, ...holders].map(
    (name): Track => ({
      label: name,
      height: FAULT_HEIGHT,
      bars: faults
        .filter(({ on }) => on === name)
        .map(({ id, what, text, atMs }) => ({
          fromMs: atMs,
          toMs: Math.min(ends.get(id) ?? toMs, toMs),
          colour: FAULT_COLOURS[what],
          title: `${(atMs - fromMs).toFixed(0)} ms: ${text}`,
        })),
    }),
  );
  return tracksSvg({
    title,
    fromMs,
    toMs,
    tracks: [...held, ...strikes],
    marks: faults.filter(({ on }) => on === undefined),
    legend: [
      ...holders.map((who) => ({ colour: colourOf(who), text: who })),
      ...(["killed", "frozen", "network"] as const).map((what) => ({ colour: FAULT_COLOURS[what], text: what })),
      { colour: FAULT_COLOURS.killed, text: "dot: a late write refused" },
    ],
    notes: summary(history, verdict).split("\n"),
  });
}

function byName(one: string, other: string): number {
  return one.localeCompare(other, "en", { numeric: true });
}

/** Sorts the keys of jobs last, because there are many. */
function jobsLast(one: string, other: string): number {
  const [isJobs, areOthers] = [one, other].map((name) => name.startsWith("account"));
  return Number(isJobs) - Number(areOthers) || byName(one, other);
}
