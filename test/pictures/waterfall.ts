/** Pure: the spans of traces as SVG, each in a row under its parent, as tracing tools draw them. */
import { escaped } from "@x/test-support";

export interface Row {
  readonly name: string;
  /** Number of spans above this span. */
  readonly depth: number;
  /** The process of the span. */
  readonly service: string;
  readonly fromMs: number;
  readonly toMs: number;
  /** The text next to the bar. */
  readonly text: string;
  readonly isError: boolean;
}

const WIDTH = 900;
const LEFT = 300;
const RIGHT = 24;
const ROW = 24;
const TOP = 40;
const FILLS = ["#2f6f8f", "#d9822b", "#3a9e63", "#a65bd1"];
const ERROR = "#b3141d";

export function waterfallSvg(title: string, rows: readonly Row[]): string {
  const endMs = Math.max(...rows.map(({ toMs }) => toMs));
  const services = [...new Set(rows.map(({ service }) => service))];
  const x = (atMs: number): number => LEFT + (atMs / endMs) * (WIDTH - LEFT - RIGHT);
  const bottom = TOP + rows.length * ROW;
  const height = bottom + 34;
  const lines: string[] = [];
  const every = [10, 20, 50, 100, 200, 500, 1_000].find((step) => endMs / step <= 8) ?? 5_000;
  for (let ms = 0; ms <= endMs; ms += every) {
    lines.push(
      `<line x1="${x(ms).toFixed(1)}" x2="${x(ms).toFixed(1)}" y1="${TOP - 4}" y2="${bottom}" stroke="#e4e8ed"/>`,
      `<text x="${x(ms).toFixed(1)}" y="${bottom + 20}" text-anchor="middle" fill="#5b6675">${ms} ms</text>`,
    );
  }
  const drawn = rows.flatMap(({ name, depth, service, fromMs, toMs, text, isError }, index) => {
    const y = TOP + index * ROW;
    const width = Math.max(2, x(toMs) - x(fromMs));
    const fill = isError ? ERROR : (FILLS[services.indexOf(service) % FILLS.length] ?? "");
    const isLeft = x(toMs) + 6 + text.length * 6 > WIDTH - RIGHT;
    const place = isLeft ? `x="${(x(fromMs) - 6).toFixed(1)}" text-anchor="end"` : `x="${(x(toMs) + 6).toFixed(1)}"`;
    return [
      `<text x="${12 + depth * 14}" y="${y + 15}"${depth === 0 ? ' font-weight="bold"' : ""}>${escaped(name)}</text>`,
      `<rect x="${x(fromMs).toFixed(1)}" y="${y + 4}" width="${width.toFixed(1)}" height="14" rx="2" fill="${fill}"/>`,
      ...(text === "" ? [] : [`<text ${place} y="${y + 15}" fill="#5b6675">${escaped(text)}</text>`]),
    ];
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" font-family="sans-serif" font-size="12">`,
    `<rect width="${WIDTH}" height="${height}" fill="#ffffff"/>`,
    `<text x="12" y="22" font-size="14" font-weight="bold">${escaped(title)}</text>`,
    ...lines,
    ...drawn,
    "</svg>",
    "",
  ].join("\n");
}
