/** Pure: Markdown tables of figures. */
import type { Spread } from "../support/statistics.ts";

export type Cell = string | number;

export function table(head: readonly string[], rows: readonly (readonly Cell[])[]): string {
  const line = (cells: readonly Cell[]): string => `| ${cells.join(" | ")} |`;
  return [line(head), line(head.map((_, index) => (index === 0 ? "---" : "--:"))), ...rows.map(line)].join("\n");
}

/** Returns the median, and the quartiles, which contain half of the rounds. */
export function spreadCell({ median, low, high }: Spread, digits: number): string {
  return Number.isFinite(median) ? `${fixed(median, digits)} (${fixed(low, digits)}–${fixed(high, digits)})` : "-";
}

export function fixed(value: number, digits: number): string {
  return Number.isFinite(value) ? value.toFixed(digits) : "-";
}
