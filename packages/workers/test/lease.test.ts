import fc from "fast-check";
import { expect, it } from "vitest";
import { elapsedMs, leaseLeftMs, mustConfirm } from "../src/lease.ts";

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
