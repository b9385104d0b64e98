import { constants } from "node:os";
import pico from "picocolors";
import { type CommandLine, parseCommandLine, usage } from "./command-line.ts";
import { type ReportLine, reportLines, verdict } from "./report.ts";
import { runDepartureBoards } from "./run.ts";
import { openView } from "./view.ts";

class Interrupted extends Error {
  readonly signal: "SIGINT" | "SIGTERM";

  constructor(signal: "SIGINT" | "SIGTERM") {
    super(`stopped by ${signal}`);
    this.signal = signal;
  }
}

process.exitCode = await main();

async function main(): Promise<number> {
  const stop = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    // Not `once`: the terminal library restores the cursor on a signal, and ends the process at once when it is the only listener left.
    process.on(signal, () => stop.abort(new Interrupted(signal)));
  }
  try {
    const commandLine = parseCommandLine(process.argv.slice(2));
    if (commandLine.help) {
      process.stdout.write(`${usage}\n`);
      return 0;
    }
    const view = openView(process.stdout, headline(commandLine));
    try {
      const result = await runDepartureBoards(commandLine, process.env, view, stop.signal);
      view.close();
      const lines = reportLines(result);
      const last = verdict(lines);
      process.stdout.write(`\n${[...lines, last].map(format).join("\n")}\n`);
      return last.isWrong ? 1 : 0;
    } finally {
      view.close();
    }
  } catch (error) {
    // What the abort made fail on its way does not matter.
    const reason: unknown = stop.signal.aborted ? stop.signal.reason : error;
    process.stderr.write(`${pico.red(reason instanceof Error ? reason.message : String(reason))}\n`);
    return reason instanceof Interrupted ? 128 + constants.signals[reason.signal] : 1;
  }
}

function headline({ attach, flights, naive }: CommandLine): string {
  if (attach) return "departure boards: replicas that run elsewhere";
  const workers = naive ? "plain workers without locks" : "exclusive workers";
  return `departure boards: ${flights.toLocaleString("en-US")} flights, 3 schedulers, 3 ${workers}`;
}

function format({ label, text, isWrong }: ReportLine): string {
  const line = `${label.padEnd(44)} ${text}`;
  if (isWrong) return pico.red(line);
  return label === "correct" ? pico.green(line) : line;
}
