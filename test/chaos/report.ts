/** The report of a chaos run: what was found, and a picture of who held what when, with the faults. */
import { escaped } from "@x/test-support";
import type { Verdict } from "./checker.ts";
import type { History } from "./history.ts";

const WIDTH = 1_400;
const LEFT = 190;
const ROW = 22;

export function reportPage(title: string, history: History, verdict: Verdict): string {
  return `<!doctype html>
<meta charset="utf-8">
<title>${escaped(title)}</title>
<style>body{font:14px system-ui,sans-serif;margin:24px}pre{font-size:12px}</style>
<h1>${escaped(title)}</h1>
<pre>${escaped(summary(history, verdict))}</pre>
${timelineSvg(history, verdict)}
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

export function timelineSvg(history: History, verdict: Verdict): string {
  const faults = history.flatMap((entry) => (entry.kind === "fault" ? [entry] : []));
  const times = [...faults.map(({ atMs }) => atMs), ...verdict.intervals.flatMap(({ fromMs, toMs }) => [fromMs, toMs])];
  const [fromMs, toMs] = times.reduce(([least, most], time) => [Math.min(least, time), Math.max(most, time)], [
    Number.POSITIVE_INFINITY,
    Number.NEGATIVE_INFINITY,
  ] as [number, number]);
  const span = Math.max(1, toMs - fromMs);
  const x = (atMs: number): string => (LEFT + ((atMs - fromMs) / span) * (WIDTH - LEFT - 20)).toFixed(1);
  const resources = [...new Set(verdict.intervals.map(({ resource }) => resource))].toSorted();
  const holders = [...new Set(verdict.intervals.map(({ who }) => who))].toSorted();
  const color = (who: string): string => `hsl(${(holders.indexOf(who) * 360) / Math.max(1, holders.length)} 55% 42%)`;
  const bottom = 40 + resources.length * ROW;
  const parts = resources.flatMap((resource, row) => {
    const y = 36 + row * ROW;
    const bars = verdict.intervals
      .filter((interval) => interval.resource === resource)
      .map((interval) => {
        const width = Math.max(1, Number(x(interval.toMs)) - Number(x(interval.fromMs))).toFixed(1);
        const title = `${interval.who}, fencing token ${interval.fencingToken}, ${(interval.fromMs - fromMs).toFixed(0)} to ${(interval.toMs - fromMs).toFixed(0)} ms`;
        return `<rect x="${x(interval.fromMs)}" y="${y}" width="${width}" height="${ROW - 6}" fill="${color(interval.who)}"><title>${escaped(title)}</title></rect>`;
      });
    return [`<text x="8" y="${y + 12}">${escaped(resource)}</text>`, ...bars];
  });
  for (const { atMs, text } of faults) {
    parts.push(
      `<g><title>${escaped(`${(atMs - fromMs).toFixed(0)} ms: ${text}`)}</title><circle cx="${x(atMs)}" cy="22" r="3.5" fill="#c60"/><line x1="${x(atMs)}" x2="${x(atMs)}" y1="26" y2="${bottom}" stroke="#c60" stroke-opacity=".35"/></g>`,
    );
  }
  for (const [index, who] of holders.entries()) {
    const column = LEFT + index * 140;
    parts.push(`<rect x="${column}" y="${bottom + 12}" width="12" height="12" fill="${color(who)}"/>`);
    parts.push(`<text x="${column + 18}" y="${bottom + 22}">${escaped(who)}</text>`);
  }
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${bottom + 40}" font-family="system-ui,sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>${parts.join("")}</svg>`;
}
