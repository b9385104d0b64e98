/** Pure: a run as a picture. Who led when, what each worker put on the boards, and when the faults struck. */
import type { HistoryEvent, Leadership } from "./history.ts";

export interface PictureParts {
  readonly history: readonly HistoryEvent[];
  readonly leaderships: readonly Leadership[];
  readonly faults: readonly { readonly text: string; readonly atMs: number }[];
}

const width = 1_000;
const left = 110;
const right = 20;
const rowHeight = 54;
const labelHeight = 16;
const colours = ["#3b7ddd", "#d9822b", "#3a9e63", "#a65bd1", "#c2475f", "#2f9ea3"];
const slices = 120;

/** Returns an SVG. Times are those of the store's clock. */
export function pictureOf({ history, leaderships, faults }: PictureParts): string {
  const times = [...history, ...leaderships, ...faults].map(({ atMs }) => atMs);
  const from = times.reduce((least, atMs) => Math.min(least, atMs), times[0] ?? 0);
  const to = times.reduce((most, atMs) => Math.max(most, atMs), from) + 1;
  const x = (atMs: number): number => left + ((atMs - from) / (to - from)) * (width - left - right);
  const workers = [...new Set(history.map(({ worker }) => worker))].sort();
  const top = 40 + faults.length * labelHeight;
  const bottom = top + (workers.length + 1) * rowHeight;
  const rows = workers.map((worker, at) => {
    const y = top + (at + 1) * rowHeight;
    return workerRow({ worker, y, colour: colours[(at + 3) % colours.length] ?? "" }, history, { from, to });
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${bottom + 40}" font-family="system-ui, sans-serif" font-size="12">`,
    `<rect width="100%" height="100%" fill="#ffffff"/>`,
    `<text x="12" y="22" font-size="15" font-weight="600">Departure boards: leaders, flights put on boards by worker, and faults</text>`,
    leaderRow(leaderships, { top, x, to }),
    ...rows,
    ...faults.map(({ text, atMs }, at) => faultMark({ text, x: x(atMs), y: 42 + at * labelHeight, bottom })),
    axis({ from, to, bottom, x }),
    "</svg>",
    "",
  ].join("\n");
}

function leaderRow(
  leaderships: readonly Leadership[],
  { top, x, to }: { readonly top: number; readonly x: (atMs: number) => number; readonly to: number },
): string {
  const names = [...new Set(leaderships.map(({ leader }) => leader))];
  const bars = leaderships.map(({ leader, term, atMs }, at) => {
    const [start, end] = [x(atMs), x(leaderships[at + 1]?.atMs ?? to)];
    const colour = colours[names.indexOf(leader) % colours.length];
    return (
      `<rect x="${round(start)}" y="${top}" width="${round(Math.max(1, end - start - 1))}" height="26" fill="${colour}"><title>${escaped(leader)}, term ${term}</title></rect>` +
      `<text x="${round(start + 4)}" y="${top + 17}" fill="#ffffff">${escaped(leader)}</text>`
    );
  });
  return `<text x="12" y="${top + 17}">leader</text>${bars.join("")}`;
}

function workerRow(
  { worker, y, colour }: { readonly worker: string; readonly y: number; readonly colour: string },
  history: readonly HistoryEvent[],
  { from, to }: { readonly from: number; readonly to: number },
): string {
  const counts = Array.from({ length: slices }, () => 0);
  const stale: number[] = [];
  for (const event of history) {
    if (event.worker !== worker) continue;
    const slice = Math.min(slices - 1, Math.floor(((event.atMs - from) / (to - from)) * slices));
    if (event.kind === "written") counts[slice] = (counts[slice] ?? 0) + 1;
    if (event.kind === "stale") stale.push(slice);
  }
  const most = Math.max(1, ...counts);
  const sliceWidth = (width - left - right) / slices;
  const bars = counts.map((count, at) => {
    const height = (count / most) * (rowHeight - 14);
    return count === 0
      ? ""
      : `<rect x="${round(left + at * sliceWidth)}" y="${round(y + rowHeight - 14 - height)}" width="${round(sliceWidth - 0.5)}" height="${round(height)}" fill="${colour}"/>`;
  });
  const refused = [...new Set(stale)].map(
    (at) =>
      `<circle cx="${round(left + (at + 0.5) * sliceWidth)}" cy="${y + rowHeight - 8}" r="3" fill="#b3141d"><title>stale writes refused</title></circle>`,
  );
  return `<text x="12" y="${y + rowHeight - 20}">${escaped(worker)}</text>${bars.join("")}${refused.join("")}`;
}

function faultMark(mark: {
  readonly text: string;
  readonly x: number;
  readonly y: number;
  readonly bottom: number;
}): string {
  const { text, x, y, bottom } = mark;
  const isLate = x > width * 0.7;
  return (
    `<line x1="${round(x)}" x2="${round(x)}" y1="${y - 8}" y2="${bottom}" stroke="#b3141d" stroke-dasharray="3 3"/>` +
    `<text x="${round(isLate ? x - 4 : x + 4)}" y="${y}" fill="#b3141d" text-anchor="${isLate ? "end" : "start"}">${escaped(text)}</text>`
  );
}

function axis(parts: {
  readonly from: number;
  readonly to: number;
  readonly bottom: number;
  readonly x: (atMs: number) => number;
}): string {
  const { from, to, bottom, x } = parts;
  const stepMs = [1_000, 2_000, 5_000, 10_000, 30_000, 60_000].find((ms) => (to - from) / ms <= 12) ?? 300_000;
  const marks: string[] = [];
  for (let atMs = from; atMs <= to; atMs += stepMs) {
    marks.push(`<text x="${round(x(atMs))}" y="${bottom + 20}" text-anchor="middle">${(atMs - from) / 1_000} s</text>`);
  }
  return `<line x1="${left}" x2="${width - right}" y1="${bottom + 4}" y2="${bottom + 4}" stroke="#575f6b"/>${marks.join("")}`;
}

function round(value: number): string {
  return value.toFixed(1);
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
}
