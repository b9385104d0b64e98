/** Pure: a timeline as SVG. Each participant has a line, with a bar for each state and a mark for each event. */
import { escaped } from "@x/test-support";

export interface Bar {
  readonly who: string;
  readonly fromMs: number;
  readonly toMs: number;
  readonly text: string;
  /**
   * `held`: a state that is certain; `doubtful`: a state of the nodes that its holder no longer trusts; `fault`: a
   * fault.
   */
  readonly kind: "held" | "doubtful" | "fault";
}

export interface Mark {
  readonly who: string;
  readonly atMs: number;
  readonly text: string;
}

export interface Timeline {
  readonly title: string;
  readonly endMs: number;
  /** The unit of a thousand on the axis. Default "s". */
  readonly unit?: string;
  readonly participants: readonly string[];
  readonly bars: readonly Bar[];
  readonly marks: readonly Mark[];
}

const WIDTH = 900;
const LEFT = 130;
const RIGHT = 24;
const ROW = 62;
const TOP = 46;
const FILLS = { held: "#2f6f8f", doubtful: "#b9d3df", fault: "#f0c9a8" } as const;
const INKS = { held: "#ffffff", doubtful: "#1f2a37", fault: "#5a3210" } as const;

export function timelineSvg({ title, endMs, unit = "s", participants, bars, marks }: Timeline): string {
  const x = (atMs: number): string => (LEFT + (atMs / endMs) * (WIDTH - LEFT - RIGHT)).toFixed(1);
  const bottom = TOP + participants.length * ROW;
  const height = bottom + 34;
  const rows = participants.flatMap((who, index) => {
    const y = TOP + index * ROW;
    return [
      `<text x="12" y="${y + 26}" font-weight="bold">${escaped(who)}</text>`,
      `<line x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${y + 34}" y2="${y + 34}" stroke="#d5dae1"/>`,
      ...bars
        .filter((bar) => bar.who === who)
        .flatMap(({ fromMs, toMs, text, kind }) => [
          `<rect x="${x(fromMs)}" y="${y + 12}" width="${(Number(x(toMs)) - Number(x(fromMs))).toFixed(1)}" height="20" rx="2" fill="${FILLS[kind]}"/>`,
          `<text x="${(Number(x(fromMs)) + 6).toFixed(1)}" y="${y + 26}" fill="${INKS[kind]}">${escaped(text)}</text>`,
        ]),
      ...marks
        .filter((mark) => mark.who === who)
        .flatMap(({ atMs, text }) => [
          `<line x1="${x(atMs)}" x2="${x(atMs)}" y1="${y + 8}" y2="${y + 40}" stroke="#c2410c" stroke-width="2"/>`,
          `<text x="${x(atMs)}" y="${y + 52}" text-anchor="${anchorOf(atMs / endMs)}" fill="#9a3412">${escaped(text)}</text>`,
        ]),
    ];
  });
  const seconds = Math.ceil(endMs / 1_000);
  const every = Math.max(1, Math.ceil(seconds / 10));
  const scale: string[] = [];
  for (let second = 0; second * 1_000 <= endMs; second += every) {
    scale.push(
      `<text x="${x(second * 1_000)}" y="${bottom + 22}" text-anchor="middle" fill="#5b6675">${second} ${unit}</text>`,
    );
  }
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" font-family="sans-serif" font-size="12">`,
    `<rect width="${WIDTH}" height="${height}" fill="#ffffff"/>`,
    `<text x="12" y="24" font-size="14" font-weight="bold">${escaped(title)}</text>`,
    ...rows,
    ...scale,
    "</svg>",
    "",
  ].join("\n");
}

function anchorOf(share: number): "start" | "middle" | "end" {
  if (share < 0.15) return "start";
  return share > 0.85 ? "end" : "middle";
}
