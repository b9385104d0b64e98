/** The figures that the page computes from a state. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  axisOf,
  ceilingOf,
  endOf,
  flagsOf,
  gapsOf,
  perMinute,
  sortedQueues,
  spanOf,
  total,
} from "../assets/figures.ts";
import { allWell, NOW, trouble } from "./support/states.ts";

describe("the page's figures", () => {
  it("sum the newest minute, and know nothing of a queue without reports", () => {
    expect(perMinute([10, 20, 30, 40, 999])).toBe(100);
    expect(perMinute([10, null, 30, null])).toBe(80);
    expect(perMinute([null, null])).toBeUndefined();
    expect(perMinute(undefined)).toBeUndefined();
    expect(total([1, null, 2])).toBe(3);
    expect(total([])).toBeUndefined();
  });

  it("sort queues with a problem first, then the busiest", () => {
    const names = (problems: readonly string[]): readonly string[] =>
      sortedQueues(allWell().queues, new Set(problems)).map(({ name }) => name);
    expect(names([])).toEqual(["emails", "payments", "invoices", "exports"]);
    expect(names(["exports", "invoices"])).toEqual(["invoices", "exports", "emails", "payments"]);
  });

  it("end an axis above each value, at a number that three steps divide", () => {
    expect(ceilingOf([])).toBe(3);
    expect(ceilingOf([842])).toBe(900);
    expect(ceilingOf([1_204])).toBe(1_500);
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 10_000_000 }), (value) => {
        const top = ceilingOf([value]);
        expect(top).toBeGreaterThanOrEqual(value);
        expect(top).toBeLessThanOrEqual(Math.max(3, value * 3));
        expect(Number.isInteger(top / 3)).toBe(true);
      }),
    );
  });

  it("place a period on the time line, and cut the parts outside", () => {
    expect(spanOf(50, 100, 0, 200)).toEqual({ left: 25, width: 25 });
    expect(spanOf(-100, 100, 0, 200)).toEqual({ left: 0, width: 50 });
    expect(spanOf(-100, -50, 0, 200)).toBeUndefined();
    expect(spanOf(300, 400, 0, 200)).toBeUndefined();
  });

  it("find the periods without a leader", () => {
    const [billing] = trouble().elections;
    if (billing === undefined) throw new Error("no election");
    expect(gapsOf(billing, NOW)).toEqual([{ since: NOW - 134_000, until: NOW - 130_000 }]);
    const since = NOW - 5_000;
    expect(gapsOf({ ...billing, terms: [], leaderlessSince: since }, NOW)).toEqual([{ since, until: NOW }]);
    const [term] = billing.terms;
    if (term === undefined) throw new Error("no term");
    expect(endOf({ ...term, end: "unknown" }, NOW)).toEqual({ known: term.since, latest: NOW - 134_000 });
    expect(endOf({ ...term, until: undefined }, NOW)).toEqual({ known: NOW, latest: NOW });
  });

  it("number marks, and give close ones a common flag", () => {
    const mark = (at: number) => ({ at, kind: "note" as const, text: "" });
    expect(flagsOf([mark(0), mark(5), mark(100)], 10)).toEqual([
      { at: 0, numbers: [1, 2] },
      { at: 100, numbers: [3] },
    ]);
  });

  it("divide an axis at round times", () => {
    expect(axisOf(NOW - 900_000, NOW + 56_000, 6).map((at) => at % 180_000)).toEqual([0, 0, 0, 0, 0, 0]);
    expect(axisOf(NOW - 21_600_000, NOW, 6).length).toBeLessThanOrEqual(7);
  });
});
