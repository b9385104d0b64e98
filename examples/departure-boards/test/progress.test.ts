import { expect, it } from "vitest";
import type { Flight } from "../src/flight.ts";
import { parseEvent } from "../src/history.ts";
import { Progress } from "../src/rules/progress.ts";

const flights: Flight[] = ["BNA", "PHX", "BNA", "PHX", "PHX"].map((origin, index) => ({
  index,
  date: "2001-01-01T06:20",
  origin,
  destination: "MCI",
  distanceMiles: 1,
  delayMinutes: 0,
}));
const event = (kind: string, run: string, flight: number, worker = "w1") =>
  parseEvent(`${kind} ${run} ${flight} ${flights[flight]?.origin} 7 ${worker} 1000`);

it("counts the backlog of what is enqueued, longest first", () => {
  const progress = new Progress(flights);
  progress.update([], { next: 4 });
  expect(progress.busiest(5)).toEqual([
    { airport: "BNA", holder: undefined, done: 0, backlog: 2 },
    { airport: "PHX", holder: undefined, done: 0, backlog: 2 },
  ]);
  progress.update([event("begin", "a", 0), event("written", "a", 0)], { next: 5 });
  expect(progress.busiest(1)).toEqual([{ airport: "PHX", holder: undefined, done: 0, backlog: 3 }]);
  expect([progress.done, progress.total]).toEqual([1, 5]);
});

it("names the worker of the latest run until that run has ended", () => {
  const progress = new Progress(flights);
  progress.update([event("begin", "old", 0, "w1"), event("begin", "new", 0, "w2")], { next: 5 });
  progress.update([event("stale", "old", 0, "w1")], { next: 5 });
  expect(progress.busiest(5).find(({ airport }) => airport === "BNA")?.holder).toBe("w2");
  expect(progress.staleRefused).toBe(1);
  progress.update([event("repeated", "new", 0, "w2")], { next: 5 });
  expect(progress.busiest(5).find(({ airport }) => airport === "BNA")?.holder).toBeUndefined();
});

it("counts a flight once, however often it is written", () => {
  const progress = new Progress(flights);
  progress.update([event("written", "a", 0), event("written", "b", 0)], { next: 5 });
  expect(progress.done).toBe(1);
});
