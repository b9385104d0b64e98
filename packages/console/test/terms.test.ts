import { describe, expect, it } from "vitest";
import { leaderlessSince, stateOf, type TermFacts, termsOf } from "../src/page/rules/terms.ts";

const record = (term: number, sinceMs: number, untilMs?: number, reason?: string): TermFacts => ({
  term,
  id: `host-${term}`,
  sinceMs,
  untilMs,
  reason,
});

const known = { leaseEnds: new Map<number, number>(), current: undefined, lastSign: undefined, firstLookAt: 1_000 };

describe("the terms of an election", () => {
  it("end when and why the leader has recorded", () => {
    const [first, second] = termsOf({ ...known, records: [record(1, 10, 90, "resigned"), record(2, 100)], current: 2 });
    expect(first).toMatchObject({ since: 10, until: 90, end: "resigned" });
    expect(second).toMatchObject({ since: 100, until: undefined, end: undefined });
  });

  it("end with the lease if the leader died while the page looked, so that a gap follows", () => {
    const records = [record(1, 10), record(2, 300)];
    const [first] = termsOf({ ...known, records, leaseEnds: new Map([[1, 200]]), current: 2 });
    expect(first).toMatchObject({ until: 200, end: "lease-ended" });
  });

  it("end at an unknown time if nobody looked: at the next term or the first look at the latest", () => {
    const terms = termsOf({ ...known, records: [record(1, 10), record(2, 300)] });
    expect(terms.map(({ until, end }) => [until, end])).toEqual([
      [300, "unknown"],
      [1_000, "unknown"],
    ]);
  });

  it("end two leases after the last sign of life if nobody looked and no term followed", () => {
    const facts = { ...known, records: [record(1, 10), record(2, 300)], firstLookAt: 9_999_999 };
    const [, last] = termsOf({ ...facts, lastSign: { term: 2, at: 5_000 } });
    expect(last).toMatchObject({ until: 35_000, end: "unknown" });
  });

  it("never end before they began, or after the next has begun", () => {
    const records = [record(1, 50, 20, "resigned"), record(2, 60, 900, "resigned"), record(3, 100)];
    expect(termsOf({ ...known, records, current: 3 }).map(({ until }) => until)).toEqual([50, 100, undefined]);
  });
});

describe("an election without a leader", () => {
  const terms = termsOf({ ...known, records: [record(1, 10, 90, "resigned")] });

  it("has a gap for an hour, and has ended then", () => {
    expect(leaderlessSince(terms)).toBe(90);
    expect(stateOf(terms, false, 3_600_089)).toBe("gap");
    expect(stateOf(terms, false, 3_600_090)).toBe("ended");
    expect(stateOf(terms, true, 3_600_090)).toBe("led");
  });

  it("has ended if the nodes remember no term", () => {
    expect(stateOf([], false, 0)).toBe("ended");
  });
});
