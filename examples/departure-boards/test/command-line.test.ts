import { expect, it } from "vitest";
import { parseCommandLine } from "../src/command-line.ts";

it("replays everything, with locks and faults, by default", () => {
  expect(parseCommandLine([])).toEqual({
    naive: false,
    faults: true,
    flights: 20_000,
    pauseMs: 10,
    attach: false,
    page: true,
    help: false,
  });
});

it("reads every option", () => {
  expect(
    parseCommandLine(["--naive", "--no-faults", "--flights", "10", "--pause", "0", "--attach", "--no-page", "--help"]),
  ).toEqual({
    naive: true,
    faults: false,
    flights: 10,
    pauseMs: 0,
    attach: true,
    page: false,
    help: true,
  });
});

it.each([
  [["--flights", "0"], "--flights must be an integer from 1 to 20000, got 0"],
  [["--flights", "20001"], "--flights must be an integer from 1 to 20000, got 20001"],
  [["--flights", "1e3"], "--flights must be an integer from 1 to 20000, got 1e3"],
  [["--pause", "1001"], "--pause must be an integer from 0 to 1000, got 1001"],
  [["--niave"], "--niave"],
])("refuses %s", (args, message) => {
  expect(() => parseCommandLine(args)).toThrow(message);
});
