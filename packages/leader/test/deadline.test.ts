import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  elapsedMs,
  laterReading,
  type Reading,
  reasonOfDeadline,
  remainingMs,
  untilNextRenewalMs,
} from "../src/term/deadline.ts";

const reading: fc.Arbitrary<Reading> = fc.record({
  monotonicMs: fc.integer({ min: 0, max: 1e9 }),
  wallMs: fc.integer({ min: 0, max: 1e12 }),
  uptimeMs: fc.integer({ min: 0, max: 1e9 }),
});
const forward = fc.nat({ max: 1e6 });

describe("deadline", () => {
  it("never has more left than the monotonic clock says, whatever the others do", () => {
    fc.assert(
      fc.property(reading, reading, fc.nat({ max: 1e6 }), (from, now, limit) => {
        expect(remainingMs(from, limit, now)).toBeLessThanOrEqual(limit - (now.monotonicMs - from.monotonicMs));
      }),
    );
  });

  it("is over as soon as any clock has passed the limit", () => {
    fc.assert(
      fc.property(
        reading,
        forward,
        forward,
        forward,
        fc.integer({ min: 1, max: 1e6 }),
        (from, mono, wall, up, limit) => {
          const now = {
            monotonicMs: from.monotonicMs + mono,
            wallMs: from.wallMs + wall,
            uptimeMs: from.uptimeMs + up,
          };
          expect(remainingMs(from, limit, now) <= 0).toBe(Math.max(mono, wall, up) >= limit);
        },
      ),
    );
  });

  it("gives no time back when the wall clock is stepped back", () => {
    const from = { monotonicMs: 1_000, wallMs: 1e12, uptimeMs: 5_000 };
    expect(elapsedMs(from, { monotonicMs: 1_500, wallMs: 1e12 - 3_600_000, uptimeMs: 5_500 })).toBe(500);
  });

  it("calls a loss that only a suspend, or only a wall clock that was set, explains by that name", () => {
    const from = { monotonicMs: 0, wallMs: 0, uptimeMs: 0 };
    const reasonAt = (monotonicMs: number, wallMs: number, uptimeMs: number): string =>
      reasonOfDeadline(from, 1_000, { monotonicMs, wallMs, uptimeMs });
    expect([reasonAt(10, 60_000, 10), reasonAt(10, 60_000, 500), reasonAt(950, 60_000, 950)]).toEqual(
      Array(3).fill("clock-jumped"),
    );
    // The uptime has a resolution of 10 ms.
    expect([reasonAt(10, 10, 60_000), reasonAt(10, 1_001, 991)]).toEqual(["suspended", "suspended"]);
    expect(reasonOfDeadline(from, 1_000, { monotonicMs: 10, wallMs: 60_000, uptimeMs: 60_000 })).toBe("suspended");
    expect(reasonOfDeadline(from, 1_000, { monotonicMs: 995, wallMs: 996, uptimeMs: 1_000 })).toBe("renew-deadline");
    expect(reasonOfDeadline(from, 1_000, { monotonicMs: 1_000, wallMs: 1_000, uptimeMs: 1_000 })).toBe(
      "renew-deadline",
    );
  });

  it("never moves back when renewals are answered out of order", () => {
    fc.assert(
      fc.property(reading, reading, (a, b) => {
        expect(laterReading(a, b).monotonicMs).toBe(Math.max(a.monotonicMs, b.monotonicMs));
      }),
    );
  });

  it("renews between three quarters of the period and all of it, at moments that all terms share", () => {
    fc.assert(
      fc.property(fc.double({ min: 0, max: 1e9, noNaN: true }), fc.integer({ min: 4, max: 60_000 }), (now, period) => {
        const after = untilNextRenewalMs(now, period);
        expect(after).toBeGreaterThanOrEqual(0.75 * period - 1e-3);
        expect(after).toBeLessThanOrEqual(period + 1e-3);
        const grid = period / 4;
        const due = (now + after) / grid;
        expect(Math.abs(due - Math.round(due))).toBeLessThan(1e-3);
      }),
    );
  });
});
