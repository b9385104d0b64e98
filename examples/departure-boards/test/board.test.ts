import { expect, it } from "vitest";
import { boardsOf, depart, emptyBoard } from "../src/board.ts";
import type { Flight } from "../src/flight.ts";

const flight = (index: number, delayMinutes: number, origin = "BNA"): Flight => ({
  index,
  date: `2001-01-01T06:${10 + index}`,
  origin,
  destination: "MCI",
  distanceMiles: 100,
  delayMinutes,
});

it("counts, adds up and shows the last five departures", () => {
  const board = [0, 14, 15, -8, 90, 3].map((delay, index) => flight(index, delay)).reduce(depart, emptyBoard);
  expect(board).toMatchObject({ flights: 6, late: 2, miles: 600, delayMinutes: 114, longestDelayMinutes: 90 });
  expect(board.departures).toEqual(["06:15 MCI +3", "06:14 MCI +90", "06:13 MCI -8", "06:12 MCI +15", "06:11 MCI +14"]);
  expect(board.recentDelayMinutes).toBe(11.735);
});

it("shows a lost, a repeated and a swapped flight", () => {
  const [a, b, c] = [flight(0, 5), flight(1, 5), flight(2, 5)];
  const digests = [
    [a, b, c],
    [a, c],
    [a, b, b, c],
    [b, a, c],
  ].map((flights) => flights.reduce(depart, emptyBoard).digest);
  expect(new Set(digests).size).toBe(4);
});

it("keeps one board per origin", () => {
  const boards = boardsOf([flight(0, 1), flight(1, 2, "PHX"), flight(2, 3)]);
  expect([...boards].map(([airport, board]) => [airport, board.flights])).toEqual([
    ["BNA", 2],
    ["PHX", 1],
  ]);
});
