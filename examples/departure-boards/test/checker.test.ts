import { expect, it } from "vitest";
import { type Board, boardsOf } from "../src/board.ts";
import { isCorrect, judge, leaderTakeoverMs, openRuns, workerTakeoverMs } from "../src/checker.ts";
import type { Flight } from "../src/flight.ts";
import { type HistoryEvent, parseEvent } from "../src/history.ts";

const flights: Flight[] = ["BNA", "PHX", "BNA", "BNA"].map((origin, index) => ({
  index,
  date: "2001-01-01T06:20",
  origin,
  destination: "MCI",
  distanceMiles: 100,
  delayMinutes: index,
}));

/** Events as `kind run flight[ worker]`; the times are 1000, 2000, ... */
function history(...lines: string[]): HistoryEvent[] {
  return lines.map((line, index) => {
    const [kind, run, flight, worker = "w1"] = line.split(" ");
    return parseEvent(`${kind} ${run} ${flight} ${flights[Number(flight)]?.origin} 7 ${worker} ${(index + 1) * 1000}`);
  });
}

const good = history(
  "begin a 0",
  "begin b 1",
  "written b 1",
  "written a 0",
  "begin c 2",
  "written c 2",
  "begin d 3",
  "written d 3",
);

it("finds nothing wrong with a correct run", () => {
  const findings = judge(flights, good, boardsOf(flights));
  expect(findings).toMatchObject({
    processed: 4,
    lost: [],
    duplicated: [],
    staleRefused: 0,
    repeated: 0,
    airports: 2,
    wrongBoards: [],
  });
  expect(isCorrect(findings)).toBe(true);
});

it("finds lost flights and wrong boards", () => {
  const findings = judge(flights, good.slice(0, -2), boardsOf(flights.slice(0, 3)));
  expect(findings.lost).toEqual([3]);
  expect(findings.wrongBoards.map(({ airport }) => airport)).toEqual(["BNA"]);
  expect(isCorrect(findings)).toBe(false);
});

it("finds a missing board", () => {
  const boards = new Map<string, Board>(boardsOf(flights));
  boards.delete("PHX");
  expect(judge(flights, good, boards).wrongBoards).toMatchObject([{ airport: "PHX", actual: undefined }]);
});

it("finds a flight that was written twice", () => {
  const findings = judge(flights, [...good, ...history("begin e 3", "written e 3")], boardsOf(flights));
  expect(findings.duplicated).toEqual([3]);
  expect(isCorrect(findings)).toBe(false);
});

it("finds overlapping runs of one airport, not of two", () => {
  const findings = judge(
    flights,
    history(
      "begin a 0",
      "begin b 1",
      "begin c 2",
      "written a 0",
      "begin d 3",
      "written c 2",
      "written d 3",
      "written b 1",
    ),
    boardsOf(flights),
  );
  expect(findings.overlaps).toEqual(new Map([["BNA", 2]]));
  expect(isCorrect(findings)).toBe(false);
});

it("does not count a run as overlapping that was refused or never ended", () => {
  const events = history(
    "begin dead 0",
    "begin old 0",
    "begin a 0",
    "written a 0",
    "stale old 0",
    "begin b 1",
    "written b 1",
    "begin c 2",
    "written c 2",
    "begin d 3",
    "written d 3",
  );
  const findings = judge(flights, events, boardsOf(flights));
  expect(findings).toMatchObject({ staleRefused: 1, overlaps: new Map() });
  expect(isCorrect(findings)).toBe(true);
});

it("finds flights out of order within an airport", () => {
  const findings = judge(
    flights,
    history(
      "begin c 2",
      "written c 2",
      "begin a 0",
      "written a 0",
      "begin d 3",
      "written d 3",
      "begin b 1",
      "written b 1",
    ),
    boardsOf(flights),
  );
  expect(findings.outOfOrder).toEqual(new Map([["BNA", 1]]));
  expect(isCorrect(findings)).toBe(false);
});

it("measures the time to the next leader", () => {
  const leaderships = [
    { term: 1, leader: "s1", atMs: 1000 },
    { term: 2, leader: "s2", atMs: 5000 },
  ];
  expect(leaderTakeoverMs(leaderships, 2000)).toBe(3000);
  expect(leaderTakeoverMs(leaderships, 5000)).toBeUndefined();
});

it("measures the time until every airport of a dead worker is worked on again", () => {
  const events = history(
    "begin a 0 w1",
    "begin b 1 w1",
    "begin x 2 w2",
    "begin a2 0 w2",
    "written a2 0 w2",
    "begin b2 1 w3",
  );
  expect(openRuns(events, "w1", 2500).map(({ run }) => run)).toEqual(["a", "b"]);
  expect(workerTakeoverMs(events, "w1", 2500)).toBe(3500);
  expect(workerTakeoverMs(events, "w2", 3500)).toBe(500);
  expect(workerTakeoverMs(events.slice(0, 5), "w1", 2500)).toBeUndefined();
  expect(workerTakeoverMs(events, "w9", 2500)).toBeUndefined();
});

it("refuses what is not an event", () => {
  expect(() => parseEvent("begin a 0")).toThrow("not an event");
  expect(() => parseEvent("finished a 0 BNA 1 w1 1000")).toThrow("not an event");
});
