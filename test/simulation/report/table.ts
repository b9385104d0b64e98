/** The table of `--mutations`. */
import { isCaught, type MutationResult } from "../mutation-run.ts";

export function mutationTable(results: readonly MutationResult[]): string {
  const rows = results.map((result) => [
    result.mutation.protection,
    result.random?.invariant ?? result.directed?.invariant ?? "nothing",
    result.random === undefined ? "–" : String(result.random.runs),
    result.directed === undefined ? "" : `${result.directed.name}: ${result.directed.invariant ?? "nothing"}`,
    isCaught(result) ? "caught" : "NOT CAUGHT",
  ]);
  const head = ["protection taken away", "invariant that broke", "random schedules", "directed schedule", ""];
  const widths = head.map((title, column) => Math.max(title.length, ...rows.map((row) => row[column]?.length ?? 0)));
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join(" | ")} |`;
  return [line(head), `|${widths.map((width) => "-".repeat(width + 2)).join("|")}|`, ...rows.map(line)].join("\n");
}
