import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";

export interface CommandLine {
  readonly naive: boolean;
  readonly faults: boolean;
  readonly flights: number;
  readonly pauseMs: number;
  readonly attach: boolean;
  /** Whether a live page is served. */
  readonly page: boolean;
  readonly help: boolean;
}

/** The text of `--help`. `npm start` prints the file before anything is built. */
export const usage: string = readFileSync(new URL("../usage.txt", import.meta.url), "utf8").trimEnd();

export const flightCount = 20_000;

/** @throws TypeError or RangeError that names the option, the rule and the value. */
export function parseCommandLine(args: readonly string[]): CommandLine {
  const { values } = parseArgs({
    args: [...args],
    options: {
      naive: { type: "boolean", default: false },
      "no-faults": { type: "boolean", default: false },
      flights: { type: "string", default: `${flightCount}` },
      pause: { type: "string", default: "10" },
      attach: { type: "boolean", default: false },
      "no-page": { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  return {
    naive: values.naive,
    faults: !values["no-faults"],
    flights: integer("--flights", values.flights, 1, flightCount),
    pauseMs: integer("--pause", values.pause, 0, 1_000),
    attach: values.attach,
    page: !values["no-page"],
    help: values.help,
  };
}

function integer(name: string, text: string, least: number, most: number): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || value < least || value > most)
    throw new RangeError(`${name} must be an integer from ${least} to ${most}, got ${text}`);
  return value;
}
