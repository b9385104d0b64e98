import { systemClock } from "@x/redlock-core";
import fc from "fast-check";
import { expect, it } from "vitest";
import { readClock } from "../src/instant.ts";
import { elapsedMs, leaseLeftMs, mustConfirm } from "../src/lease.ts";
import { Run } from "../src/run.ts";
import { Watchdog } from "../src/watchdog.ts";

const instant = fc.record({ monotonicMs: fc.integer({ min: 0, max: 1e9 }), wallMs: fc.integer({ min: 0, max: 1e12 }) });

it("ends a lease by the clock that went further", () => {
  fc.assert(
    fc.property(instant, fc.nat(1e6), fc.integer({ min: -1e6, max: 1e6 }), (sent, byMonotonic, byWall) => {
      const now = { monotonicMs: sent.monotonicMs + byMonotonic, wallMs: sent.wallMs + byWall };
      expect(elapsedMs(sent, now)).toBe(Math.max(byMonotonic, byWall));
      expect(leaseLeftMs(sent, now, 10_000)).toBe(10_000 - Math.max(byMonotonic, byWall));
    }),
  );
});

it.each([
  [4_999, false],
  [5_000, false],
  [5_001, true],
  [20_000, true],
])("asks for confirmation %i ms after the fetch: %s", (ageMs, asks) => {
  const now = { monotonicMs: ageMs, wallMs: ageMs };
  expect(mustConfirm({ monotonicMs: 0, wallMs: 0 }, now, 10_000)).toBe(asks);
});

it("ends a run whose lease began before that of one that is watched already", () => {
  let nowMs = 0;
  const due: { readonly atMs: number; readonly run: () => void }[] = [];
  const clock = {
    ...systemClock,
    monotonicMs: () => nowMs,
    wallMs: () => nowMs,
    schedule: (afterMs: number, run: () => void) => {
      const timer = { atMs: nowMs + afterMs, run };
      due.push(timer);
      return () => void due.splice(due.indexOf(timer), due.includes(timer) ? 1 : 0);
    },
  };
  const lost: [string, number][] = [];
  const watchdog = new Watchdog(clock);
  const add = (jobId: string, sentMs: number): void => {
    const facts = { jobId, token: "t", keys: [], resources: [], order: undefined, lockDurationMs: 1_000 };
    const sent = { monotonicMs: sentMs, wallMs: sentMs };
    watchdog.add(new Run({ ...facts, sent }, clock, () => lost.push([jobId, nowMs])));
  };
  nowMs = 450;
  add("later", readClock(clock).monotonicMs);
  add("earlier", 0);
  while (due.length > 0) {
    const next = due.toSorted((a, b) => a.atMs - b.atMs)[0];
    if (next === undefined) break;
    due.splice(due.indexOf(next), 1);
    nowMs = next.atMs;
    next.run();
  }
  expect(lost).toEqual([
    ["earlier", 1_000],
    ["later", 1_450],
  ]);
});
