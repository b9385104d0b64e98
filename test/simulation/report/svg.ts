/**
 * The picture of a run: a line for each client and resource, a bar while the client believed to hold the lock, and a
 * mark for each fault.
 */
import { escaped } from "@x/test-support";
import type { Interval } from "../../../packages/testing/src/world.ts";
import type { ScheduleResult } from "../schedule.ts";
import { timelineText } from "./text.ts";

const WIDTH = 1_200;
const LEFT = 150;
const ROW = 26;
const COLORS = ["#2f6f8f", "#8f5a2f", "#4b7f3f", "#7a4b8f", "#8f3f4b", "#3f6f7f"];

/** Returns a page with the picture above the text. */
export function timelinePage(result: ScheduleResult): string {
  return `<!doctype html>
<meta charset="utf-8">
<title>${escaped(result.seed)}</title>
<style>body{font:14px system-ui,sans-serif;margin:24px}pre{font-size:12px;line-height:1.4}</style>
<h1>${escaped(result.violation === undefined ? "No invariant broke" : `${result.violation.invariant} broke`)}</h1>
<p>${escaped(result.violation?.message ?? "")}</p>
${timelineSvg(result)}
<pre>${escaped(timelineText(result))}</pre>
`;
}

export function timelineSvg(result: ScheduleResult): string {
  const { fromMs, toMs } = frame(result);
  const x = (atMs: number): number => LEFT + ((atMs - fromMs) / (toMs - fromMs)) * (WIDTH - LEFT - 20);
  const rows = [...new Set(result.intervals.map(rowOf))].toSorted();
  const height = rows.length * ROW + 90;
  const parts: string[] = [];
  for (const [index, row] of rows.entries()) {
    const y = 40 + index * ROW;
    parts.push(`<text x="8" y="${y + 15}">${escaped(row)}</text>`);
    parts.push(`<line x1="${LEFT}" x2="${WIDTH - 20}" y1="${y + 22}" y2="${y + 22}" stroke="#ddd"/>`);
    for (const interval of result.intervals.filter((each) => rowOf(each) === row)) {
      if (interval.toMs < fromMs || interval.fromMs > toMs) continue;
      const start = x(Math.max(interval.fromMs, fromMs));
      const width = Math.max(2, x(Math.min(interval.toMs, toMs)) - start);
      parts.push(
        `<rect x="${start.toFixed(1)}" y="${y + 3}" width="${width.toFixed(1)}" height="16" rx="2" fill="${COLORS[index % COLORS.length] ?? ""}">` +
          `<title>${escaped(`${row}: fencing token ${interval.fencingToken}, ${interval.fromMs.toFixed(1)} to ${interval.toMs.toFixed(1)} ms`)}</title></rect>`,
      );
    }
  }
  const bottom = 40 + rows.length * ROW;
  for (const { atMs, text } of result.recordedEvents.filter(({ kind }) => kind === "fault")) {
    if (atMs < fromMs || atMs > toMs) continue;
    parts.push(
      `<g><title>${escaped(`${atMs.toFixed(1)} ms: ${text}`)}</title><line x1="${x(atMs).toFixed(1)}" x2="${x(atMs).toFixed(1)}" y1="34" y2="${bottom}" stroke="#c60" stroke-dasharray="2 3"/>` +
        `<circle cx="${x(atMs).toFixed(1)}" cy="30" r="4" fill="#c60"/></g>`,
    );
  }
  const { violation } = result;
  if (violation !== undefined) {
    const at = x(violation.atMs).toFixed(1);
    parts.push(`<line x1="${at}" x2="${at}" y1="20" y2="${bottom + 8}" stroke="#c00" stroke-width="2"/>`);
    parts.push(`<text x="${at}" y="14" text-anchor="end" fill="#c00">${escaped(violation.invariant)}</text>`);
  }
  for (let tick = 0; tick <= 6; tick += 1) {
    const atMs = fromMs + ((toMs - fromMs) * tick) / 6;
    parts.push(
      `<text x="${x(atMs).toFixed(1)}" y="${bottom + 26}" text-anchor="${tick === 6 ? "end" : "middle"}" fill="#666">${atMs.toFixed(0)} ms</text>`,
    );
  }
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" font-family="system-ui,sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>${parts.join("")}</svg>`;
}

/** Returns the time that led to the violation, or the whole run. */
function frame(result: ScheduleResult): { readonly fromMs: number; readonly toMs: number } {
  const toMs = result.violation === undefined ? result.endMs : result.violation.atMs + 50;
  const last = result.intervals.filter((interval) => interval.toMs >= toMs - 6_000);
  const fromMs = Math.min(toMs - 1_000, ...last.map((interval) => interval.fromMs - 100));
  return { fromMs: Math.max(0, fromMs), toMs };
}

function rowOf(interval: Interval): string {
  return `${interval.machine} · ${interval.resource}`;
}
