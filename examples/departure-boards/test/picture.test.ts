import { expect, it } from "vitest";
import type { HistoryEvent } from "../src/history.ts";
import { pictureOf } from "../src/picture.ts";

const event = (worker: string, kind: HistoryEvent["kind"], atMs: number): HistoryEvent => ({
  kind,
  run: "run",
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
  expect(svg.match(/stale writes refused/g)).toHaveLength(1);
  expect(svg).not.toMatch(/NaN|Infinity|undefined/);
});

it("is a picture also of a run in which nothing happened", () => {
  expect(pictureOf({ history: [], leaderships: [], faults: [] })).not.toMatch(/NaN|Infinity|undefined/);
});
