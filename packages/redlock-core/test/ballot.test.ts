import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { nextBallot } from "../src/rules/ballot.ts";

const input = fc.record({
  lastSeen: fc.nat(2 ** 51),
  wallMs: fc.double({ min: 0, max: 2_500_000_000_000, noNaN: true }),
  offsetUs: fc.double({ min: -1e12, max: 1e12, noNaN: true }),
  processDigits: fc.nat(999),
});

describe("nextBallot", () => {
  it("is a positive safe integer above every number seen", () => {
    fc.assert(
      fc.property(input, (facts) => {
        const ballot = nextBallot(facts);
        expect(Number.isSafeInteger(ballot)).toBe(true);
        expect(ballot).toBeGreaterThan(Math.max(facts.lastSeen, 0));
      }),
    );
  });

  it("survives the conversion to decimal text and to a Lua double", () => {
    fc.assert(fc.property(input, (facts) => Number(String(nextBallot(facts))) === nextBallot(facts)));
  });

  it("is near the corrected wall clock if no newer number was seen", () => {
    expect(nextBallot({ lastSeen: 7, wallMs: 1_795_000_000_000.9, offsetUs: -250_000, processDigits: 42 })).toBe(
      1_794_999_999_750_042,
    );
  });

  it("differs between processes within one millisecond", () => {
    const facts = { lastSeen: 0, wallMs: 1_795_000_000_000, offsetUs: 0 };
    expect(nextBallot({ ...facts, processDigits: 1 })).not.toBe(nextBallot({ ...facts, processDigits: 2 }));
  });

  it("throws if a digit would be lost", () => {
    expect(() => nextBallot({ lastSeen: 2 ** 53, wallMs: 0, offsetUs: 0, processDigits: 0 })).toThrow(RangeError);
  });
});
