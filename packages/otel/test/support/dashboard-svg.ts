/**
 * Pure: the panels of the dashboard as SVG, in the places of its JSON, with the answers of Prometheus to their queries.
 */
import { escaped } from "@x/test-support";

export interface Panel {
  readonly type: string;
  readonly title: string;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly fieldConfig?: { readonly defaults: { readonly unit: string } };
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[];
}

export interface Series {
  readonly legend: string;
  /** Points with a value. A quantile without events has no value. */
  readonly points: readonly (readonly [atS: number, value: number])[];
}

export interface Drawn {
  readonly title: string;
  readonly panels: readonly (Panel & { readonly series: readonly Series[] })[];
  readonly fromS: number;
  readonly toS: number;
}

const COLUMN = 44;
const ROW = 20;
const TOP = 44;
const INKS = ["#2f6f8f", "#d9822b", "#3a9e63", "#a65bd1", "#c2410c", "#5b6675"];
const MOST_LEGENDS = 3;
/** Number of characters that are as wide as a panel. */
const LONGEST_LEGENDS = 44;

export function dashboardSvg({ title, panels, fromS, toS }: Drawn): string {
  const width = 24 * COLUMN + 16;
  const height = TOP + ROW * Math.max(...panels.map(({ gridPos }) => gridPos.y + gridPos.h)) + 8;
  const drawn = panels.flatMap((given) => {
    const panel = { ...given, series: given.series.filter(({ points }) => points.length > 0) };
    const { x, y, w, h } = panel.gridPos;
    const box = { left: 8 + x * COLUMN, top: TOP + y * ROW, width: w * COLUMN - 8, height: h * ROW - 8 };
    const name = `<text x="${box.left + 8}" y="${box.top + 15}" font-weight="bold">${escaped(panel.title)}</text>`;
    if (panel.type === "row") return [name];
    return [
      `<rect x="${box.left}" y="${box.top}" width="${box.width}" height="${box.height}" rx="3" fill="#ffffff" stroke="#d5dae1"/>`,
      name,
      ...(panel.series.length === 0
        ? [`<text x="${box.left + 8}" y="${box.top + 70}" fill="#5b6675">none happened</text>`]
        : panel.type === "stat"
          ? numbersIn(panel.series, box)
          : linesIn(panel, box, { fromS, toS })),
    ];
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" font-family="sans-serif" font-size="11">`,
    `<rect width="${width}" height="${height}" fill="#f6f7f9"/>`,
    `<text x="12" y="26" font-size="14" font-weight="bold">${escaped(title)}</text>`,
    ...drawn,
    "</svg>",
    "",
  ].join("\n");
}

interface Box {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
}

function numbersIn(series: readonly Series[], { left, top }: Box): readonly string[] {
  return series.slice(0, MOST_LEGENDS).flatMap(({ legend, points }, at) => {
    const value = points.at(-1)?.[1] ?? 0;
    const y = top + 52 + at * 32;
    return [
      `<text x="${left + 12}" y="${y}" font-size="26" fill="${value === 0 ? INKS[4] : INKS[2]}">${value}</text>`,
      `<text x="${left + 44}" y="${y}" fill="#5b6675">${escaped(legend)}</text>`,
    ];
  });
}

function linesIn(
  { series, fieldConfig }: Panel & { readonly series: readonly Series[] },
  box: Box,
  { fromS, toS }: Pick<Drawn, "fromS" | "toS">,
): readonly string[] {
  const top = box.top + 26;
  const bottom = box.top + box.height - 24;
  const [left, right] = [box.left + 52, box.left + box.width - 10];
  const most = Math.max(...series.flatMap(({ points }) => points.map(([, value]) => value))) || 1;
  const x = (atS: number): string => (left + ((atS - fromS) / (toS - fromS)) * (right - left)).toFixed(1);
  const y = (value: number): string => (bottom - (value / most) * (bottom - top)).toFixed(1);
  const unit = fieldConfig?.defaults.unit ?? "short";
  const shown = series.slice(0, MOST_LEGENDS);
  while (shown.length > 1 && shown.map(({ legend }) => legend).join(" · ").length > LONGEST_LEGENDS) shown.pop();
  const more =
    series.length > shown.length ? [{ text: `and ${series.length - shown.length} more`, ink: "#5b6675" }] : [];
  const legends = [...shown.map(({ legend }, at) => ({ text: legend, ink: INKS[at % INKS.length] })), ...more];
  return [
    ...[0, most].map(
      (value) =>
        `<line x1="${left}" x2="${right}" y1="${y(value)}" y2="${y(value)}" stroke="#e6e9ee"/><text x="${left - 5}" y="${Number(y(value)) + 4}" text-anchor="end" fill="#5b6675">${valueText(value, unit)}</text>`,
    ),
    ...series.map(({ points }, at) => {
      const path = points.map(([atS, value], place) => `${place === 0 ? "M" : "L"}${x(atS)} ${y(value)}`).join("");
      return `<path d="${path}" fill="none" stroke="${INKS[at % INKS.length]}" stroke-width="1.5"/>`;
    }),
    `<text x="${box.left + 8}" y="${box.top + box.height - 7}">${legends
      .map(({ text, ink }) => `<tspan fill="${ink}">${escaped(text)}</tspan>`)
      .join(`<tspan fill="#5b6675"> · </tspan>`)}</text>`,
  ];
}

function valueText(value: number, unit: string): string {
  if (value === 0) return "0";
  if (unit === "percentunit") return `${Math.round(value * 100)} %`;
  if (unit === "s") return value < 1 ? `${Number((value * 1_000).toPrecision(2))} ms` : `${value.toFixed(1)} s`;
  return String(Number(value.toPrecision(2)));
}
