import type { Findings } from "./checker.ts";
import type { Settings } from "./settings.ts";

/** Everything that the report says. */
export interface Result {
  readonly settings: Pick<Settings, "flights" | "naive">;
  readonly findings: Findings;
  readonly seconds: number;
  readonly leaders: number;
  /** Moves of the cursor by deposed leaders, all refused. */
  readonly cursorRefused: number;
  /** What was done to the run, in order: `worker-2 killed`. */
  readonly faults: readonly string[];
  readonly takeovers: readonly Takeover[];
  /** `error` events of the workers: expected of one that was frozen. */
  readonly errors: readonly string[];
  /** Whatever else went wrong: a process that ended by itself, a run that did not finish in time. */
  readonly problems: readonly string[];
  /** The file with the picture of the run. */
  readonly picture?: string;
}

export interface Takeover {
  readonly what: string;
  /** Undefined when nobody took over. */
  readonly ms: number | undefined;
}

export interface ReportLine {
  readonly label: string;
  readonly text: string;
  readonly isWrong: boolean;
}

const shownAirports = 5;

export function reportLines({
  settings,
  findings,
  seconds,
  leaders,
  cursorRefused,
  faults,
  takeovers,
  errors,
  problems,
  picture,
}: Result): ReportLine[] {
  const { lost, duplicated, overlaps, outOfOrder, wrongBoards } = findings;
  const right = findings.airports - wrongBoards.length;
  const missing = wrongBoards.reduce((sum, { expected, actual }) => sum + expected.flights - (actual?.flights ?? 0), 0);
  return [
    line(
      "flights processed",
      `${count(findings.processed)} of ${count(settings.flights)} in ${seconds.toFixed(1)} s (${count(Math.round(findings.processed / seconds))}/s)`,
      findings.processed !== settings.flights,
    ),
    line("lost", count(lost.length), lost.length > 0),
    line("duplicates", count(duplicated.length), duplicated.length > 0),
    line("overlaps per airport", perAirport(overlaps), overlaps.size > 0),
    line("out of order per airport", perAirport(outOfOrder), outOfOrder.size > 0),
    line(
      "boards as a sequential pass",
      `${count(right)} of ${count(findings.airports)}${missing === 0 ? "" : `, ${count(missing)} flights are missing on the others`}`,
      wrongBoards.length > 0,
    ),
    ...wrongBoards
      .slice(0, shownAirports)
      .map(({ airport, expected, actual }) =>
        line(
          `  ${airport}`,
          `${counted(actual?.flights ?? 0)} on the board, ${count(expected.flights)} in the log`,
          true,
        ),
      ),
    line("stale writes refused", count(findings.staleRefused), false),
    line("jobs run again, no effect", count(findings.repeated), false),
    line("leaders", `${count(leaders)}, ${count(cursorRefused)} moves of the cursor by former leaders refused`, false),
    line("faults", faults.length === 0 ? "none" : faults.join(", "), false),
    ...takeovers.map(({ what, ms }) =>
      line(what, ms === undefined ? "nobody took over" : `${(ms / 1000).toFixed(1)} s`, ms === undefined),
    ),
    line(
      "errors that workers reported",
      errors.length === 0 ? "0" : `${count(errors.length)}, the first: ${errors[0]}`,
      false,
    ),
    ...problems.map((problem) => line("problem", problem, true)),
    ...(picture === undefined ? [] : [line("picture", picture, false)]),
  ];
}

/** The last line. */
export function verdict(lines: readonly ReportLine[]): ReportLine {
  const wrong = lines.filter((each) => each.isWrong && !each.label.startsWith(" ")).map(({ label }) => label);
  return wrong.length === 0
    ? line("correct", "every board is what a sequential pass over the log gives", false)
    : line("WRONG", wrong.join(", "), true);
}

function line(label: string, text: string, isWrong: boolean): ReportLine {
  return { label, text, isWrong };
}

function counted(flights: number): string {
  return `${count(flights)} ${flights === 1 ? "flight" : "flights"}`;
}

function count(value: number): string {
  return value.toLocaleString("en-US");
}

function perAirport(counts: ReadonlyMap<string, number>): string {
  const sorted = [...counts].sort(([, a], [, b]) => b - a);
  const total = sorted.reduce((sum, [, each]) => sum + each, 0);
  if (total === 0) return "0";
  const worst = sorted.slice(0, shownAirports).map(([airport, each]) => `${airport} ${count(each)}`);
  return `${count(total)} at ${count(counts.size)} airports (${worst.join(", ")}${counts.size > shownAirports ? ", ..." : ""})`;
}
