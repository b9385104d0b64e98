import { expect, it } from "vitest";
import { depart, emptyBoard } from "../src/board.ts";
import type { Findings } from "../src/checker.ts";
import { type Result, reportLines, verdict } from "../src/report.ts";

const clean: Findings = {
  processed: 20_000,
  lost: [],
  duplicated: [],
  overlaps: new Map(),
  outOfOrder: new Map(),
  staleRefused: 7,
  repeated: 3,
  airports: 59,
  wrongBoards: [],
};
const result: Result = {
  settings: { flights: 20_000, naive: false },
  findings: clean,
  seconds: 40,
  leaders: 2,
  cursorRefused: 0,
  faults: ["scheduler-1 killed", "worker-3 frozen"],
  takeovers: [{ what: "next leader after scheduler-1 was killed", ms: 3_940 }],
  errors: [],
  problems: [],
};

const textOf = (given: Result): Record<string, string> =>
  Object.fromEntries(reportLines(given).map(({ label, text }) => [label, text]));
const wrongOf = (given: Result): string[] =>
  reportLines(given)
    .filter(({ isWrong }) => isWrong)
    .map(({ label }) => label);

it("names the picture, if there is one", () => {
  expect(textOf(result)).not.toHaveProperty("picture");
  expect(textOf({ ...result, picture: "/tmp/run.svg" })).toMatchObject({ picture: "/tmp/run.svg" });
});

it("says in numbers what a correct run did", () => {
  expect(textOf(result)).toMatchObject({
    "flights processed": "20,000 of 20,000 in 40.0 s (500/s)",
    lost: "0",
    "overlaps per airport": "0",
    "boards as a sequential pass": "59 of 59",
    "stale writes refused": "7",
    "jobs run again, no effect": "3",
    faults: "scheduler-1 killed, worker-3 frozen",
    leaders: "2, 0 moves of the cursor by former leaders refused",
    "next leader after scheduler-1 was killed": "3.9 s",
  });
  expect(verdict(reportLines(result))).toMatchObject({ label: "correct", isWrong: false });
});

const flight = {
  index: 0,
  date: "2001-01-01T06:20",
  origin: "BNA",
  destination: "MCI",
  distanceMiles: 1,
  delayMinutes: 0,
};

it.each<[string, Partial<Findings>]>([
  ["flights processed", { processed: 19_999 }],
  ["lost", { lost: [4] }],
  ["duplicates", { duplicated: [4] }],
  ["overlaps per airport", { overlaps: new Map([["PHX", 1]]) }],
  ["out of order per airport", { outOfOrder: new Map([["PHX", 1]]) }],
])("marks %s as wrong", (label, findings) => {
  const bad = { ...result, findings: { ...clean, ...findings } };
  expect(wrongOf(bad)).toEqual([label]);
  expect(verdict(reportLines(bad))).toMatchObject({ label: "WRONG", text: label, isWrong: true });
});

it("marks wrong boards, with what is missing on them", () => {
  const wrongBoards = [
    {
      airport: "BNA",
      expected: [flight, flight, flight].reduce(depart, emptyBoard),
      actual: depart(emptyBoard, flight),
    },
  ];
  const bad = { ...result, findings: { ...clean, wrongBoards } };
  expect(wrongOf(bad)).toEqual(["boards as a sequential pass", "  BNA"]);
  expect(textOf(bad)).toMatchObject({
    "boards as a sequential pass": "58 of 59, 2 flights are missing on the others",
    "  BNA": "1 flight on the board, 3 in the log",
  });
});

it("marks a takeover that did not come, and every problem", () => {
  expect(
    wrongOf({ ...result, takeovers: [{ what: "next leader", ms: undefined }], problems: ["worker-1 ended by itself"] }),
  ).toEqual(["next leader", "problem"]);
});

it("names the airports with most overlaps first", () => {
  const overlaps = new Map(["A", "B", "C", "D", "E", "F"].map((airport, index) => [airport, 1000 * (index + 1)]));
  expect(textOf({ ...result, findings: { ...clean, overlaps } })["overlaps per airport"]).toBe(
    "21,000 at 6 airports (F 6,000, E 5,000, D 4,000, C 3,000, B 2,000, ...)",
  );
});
