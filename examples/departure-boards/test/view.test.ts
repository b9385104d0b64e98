import { PassThrough } from "node:stream";
import { stripVTControlCharacters } from "node:util";
import { expect, it } from "vitest";
import { openView, type Snapshot } from "../src/view.ts";

const snapshot: Snapshot = {
  seconds: 12.34,
  done: 9_000,
  total: 20_000,
  rate: 812.4,
  cursor: { term: 17, leader: "scheduler-2", next: 10_500, refused: 0 },
  busiest: [
    { airport: "PHX", holder: "worker-1", done: 600, backlog: 120 },
    { airport: "LAS", holder: undefined, done: 500, backlog: 90 },
  ],
  staleRefused: 3,
};

function shown(isTTY: boolean, use: (stream: NodeJS.WriteStream) => void): string {
  const stream = Object.assign(new PassThrough(), { isTTY, columns: 120, rows: 50 });
  use(stream as unknown as NodeJS.WriteStream);
  return stripVTControlCharacters(String(stream.read() ?? ""));
}

it("shows bar, leader, airports and events on a terminal", () => {
  const text = shown(true, (stream) => {
    const view = openView(stream, "departure boards");
    view.update(snapshot);
    view.tell(13, "worker-2 killed");
    view.close();
  });
  expect(text).toContain("departure boards");
  expect(text).toMatch(/█{18}░{22} 45 % {2}9,000 of 20,000 flights, 812\/s, 14 s left/);
  expect(text).toContain("leader scheduler-2 term 17, 10,500 flights enqueued, 3 stale writes refused");
  expect(text).toMatch(/PHX.*worker-1.*120.*600/);
  expect(text).toMatch(/LAS.*90.*500/);
  expect(text).toContain("13.0 s  worker-2 killed");
});

it("writes lines elsewhere: each event, and the state every five seconds", () => {
  const text = shown(false, (stream) => {
    const view = openView(stream, "departure boards");
    view.update(snapshot);
    view.tell(13, "worker-2 killed");
    view.update({ ...snapshot, seconds: 14 });
    view.update({ ...snapshot, seconds: 17.5, done: 12_000 });
    view.close();
  });
  expect(text.trimEnd().split("\n")).toEqual([
    "departure boards",
    "  12.3 s  9,000 of 20,000 flights, 812/s, leader scheduler-2, busiest PHX (120 waiting)",
    "  13.0 s  worker-2 killed",
    "  17.5 s  12,000 of 20,000 flights, 812/s, leader scheduler-2, busiest PHX (120 waiting)",
  ]);
});
