import { expect, it } from "vitest";
import type { HistoryEvent } from "../src/history.ts";
import { lostIn, pictureOf } from "../src/picture.ts";

const event = (worker: string, kind: HistoryEvent["kind"], atMs: number): HistoryEvent => ({
  kind,
  run: worker,
  flight: 1,
  origin: "JFK",
  fencingToken: 1,
  worker,
  atMs,
});

it("has a bar for each term, a row for each worker, and a mark for each fault", () => {
  const svg = pictureOf({
    history: [
      event("worker-1", "begin", 1_000),
      event("worker-1", "written", 1_010),
      event("worker-2", "written", 9_000),
      event("worker-2", "stale", 9_500),
    ],
    leaderships: [
      { term: 5, leader: "scheduler-1", atMs: 1_000 },
      { term: 9, leader: "scheduler-<2>", atMs: 6_000 },
    ],
    faults: [{ text: "scheduler-1 killed", atMs: 4_000, killed: "scheduler-1" }],
    startedMs: 1_000,
    verdict: "Correct: all 59 boards.",
  });
  expect(svg).toMatch(/^<svg [^>]*viewBox="0 0 1000 \d+"/);
  expect(svg.match(/<title>scheduler-[^<]*, term \d<\/title>/g)).toEqual([
    "<title>scheduler-1, term 5</title>",
    "<title>scheduler-&#60;2&#62;, term 9</title>",
  ]);
  // From 1 s to the kill, and from 6 s to the end at 9.5 s, of 850 pixels: nobody led between.
  const widths = [...svg.matchAll(/width="([\d.]+)"[^>]*><title>scheduler/g)].map(([, width]) => Number(width));
  expect(widths.map(Math.round)).toEqual([300, 350]);
  expect(svg.match(/>worker-\d</g)).toEqual([">worker-1<", ">worker-2<"]);
  expect(svg).toContain(">scheduler-1 killed<");
  expect(svg.match(/late writes refused/g)).toHaveLength(1);
  for (const text of ["Correct: all 59 boards.", "dot: late write refused", "up to 14/s", ">2 s<"])
    expect(svg).toContain(text);
  expect(svg).not.toContain("lost");
  expect(svg).not.toMatch(/NaN|Infinity|undefined/);
});

it("is a picture also of a run in which nothing happened", () => {
  expect(pictureOf({ history: [], leaderships: [], faults: [], startedMs: 0, verdict: "" })).not.toMatch(
    /NaN|Infinity|undefined/,
  );
});

it("begins when the log's clock begins, even if nothing happens for a while", () => {
  const parts = { leaderships: [], faults: [], verdict: "" };
  const history = [event("worker-1", "written", 11_000)];
  expect(pictureOf({ ...parts, history, startedMs: 1_000 })).toContain(">10 s<");
  expect(pictureOf({ ...parts, history, startedMs: 11_000 })).not.toContain(">10 s<");
});

it("shows when flights vanished from a board because two runs had read it", () => {
  const of = (run: string, kind: HistoryEvent["kind"], atMs: number): HistoryEvent => ({
    ...event("worker-1", kind, atMs),
    run,
  });
  // b and c read the board with one flight. What b writes is overwritten by c, and what c and d write by e.
  const history = [
    of("a", "begin", 1),
    of("a", "written", 2),
    of("b", "begin", 3),
    of("c", "begin", 4),
    of("e", "begin", 5),
    of("b", "written", 6),
    of("c", "written", 7),
    of("d", "begin", 8),
    of("d", "written", 9),
    of("e", "written", 10),
  ];
  expect(lostIn(history)).toEqual([
    { atMs: 7, count: 1 },
    { atMs: 10, count: 2 },
  ]);
  const svg = pictureOf({ history, leaderships: [], faults: [], startedMs: 0, verdict: "WRONG" });
  expect(svg).toContain("lost flights");
  expect(svg).toContain("bar: flights lost");
});
