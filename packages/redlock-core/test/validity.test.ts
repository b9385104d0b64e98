import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { quarantineMs } from "../src/rules/quarantine.ts";
import { BY_THIRDS, everyPeriod } from "../src/rules/renewal.ts";
import {
  cappedEnd,
  driftMs,
  elapsedMs,
  laterEnd,
  leaseEnd,
  leaseStart,
  OVER,
  remainingMs,
} from "../src/rules/validity.ts";

const ttl = fc.integer({ min: 50, max: 86_400_000 });
const factor = fc.double({ min: 0, max: 0.4, noNaN: true });
const asked = { monotonicMs: 1_000, wallMs: 1_700_000_000_000, suspendedMs: 7_000 };

describe("driftMs", () => {
  it("is the drift over one lease plus two milliseconds, rounded up", () => {
    expect(driftMs(10_000, 0.01)).toBe(102);
    expect(driftMs(50, 0)).toBe(2);
    expect(driftMs(50, 0.01)).toBe(3);
  });
});

describe("leaseEnd and remainingMs", () => {
  it("trust less than the lease, and the less the longer the answer took", () => {
    fc.assert(
      fc.property(ttl, factor, fc.nat(100_000), (ttlMs, driftFactor, tookMs) => {
        const end = leaseEnd(asked, ttlMs, driftFactor);
        const left = remainingMs(end, {
          monotonicMs: asked.monotonicMs + tookMs,
          wallMs: asked.wallMs + tookMs,
          suspendedMs: asked.suspendedMs,
        });
        expect(left).toBe(ttlMs - tookMs - driftMs(ttlMs, driftFactor));
      }),
    );
  });

  it("end by the wall clock when the machine was suspended and the monotonic clock stood still", () => {
    const end = leaseEnd(asked, 10_000, 0.01);
    expect(remainingMs(end, { ...asked, wallMs: asked.wallMs + 20_000 })).toBeLessThan(0);
  });

  it("end by the monotonic clock when the wall clock was set back", () => {
    const end = leaseEnd(asked, 10_000, 0.01);
    expect(
      remainingMs(end, { ...asked, monotonicMs: asked.monotonicMs + 20_000, wallMs: asked.wallMs - 3_600_000 }),
    ).toBeLessThan(0);
  });
});

describe("elapsedMs", () => {
  it("is the time of the clock that advanced furthest, including the time of suspension", () => {
    fc.assert(
      fc.property(fc.nat(1e6), fc.nat(1e6), fc.integer({ min: -1e7, max: 1e7 }), (ranMs, sleptMs, wallMs) => {
        const now = {
          monotonicMs: asked.monotonicMs + ranMs,
          wallMs: asked.wallMs + wallMs,
          suspendedMs: asked.suspendedMs + sleptMs,
        };
        expect(elapsedMs(asked, now)).toBe(Math.max(ranMs + sleptMs, wallMs));
      }),
    );
  });
});

describe("leaseStart", () => {
  it("is the time at which the lease was requested", () => {
    fc.assert(
      fc.property(ttl, factor, (ttlMs, driftFactor) => {
        expect(leaseStart(leaseEnd(asked, ttlMs, driftFactor), ttlMs, driftFactor)).toEqual(asked);
      }),
    );
  });
});

describe("cappedEnd", () => {
  const ms = fc.integer({ min: -1_000_000, max: 1_000_000 });
  const instant = fc.record({ monotonicMs: ms, wallMs: ms, suspendedMs: fc.nat(1_000_000) });

  it("leaves the rest of the lease, or of the cap if the cap is earlier, with any clocks", () => {
    fc.assert(
      fc.property(instant, instant, fc.nat(1_000_000), instant, (end, granted, maxHoldMs, now) => {
        const leftMs = Math.min(remainingMs(end, now), maxHoldMs - elapsedMs(granted, now));
        expect(remainingMs(cappedEnd(end, granted, maxHoldMs), now) === leftMs).toBe(true);
      }),
    );
  });

  it("is the lease's own end without a cap", () => {
    expect(cappedEnd(asked, asked, Number.POSITIVE_INFINITY)).toBe(asked);
  });
});

it("a lease in the past has no time left, with any clocks", () => {
  expect(remainingMs(OVER, { monotonicMs: 0, wallMs: -1e15, suspendedMs: 0 })).toBe(Number.NEGATIVE_INFINITY);
});

describe("laterEnd", () => {
  const extended = leaseEnd({ ...asked, monotonicMs: 1_100, wallMs: asked.wallMs - 3_600_000 }, 1_000, 0.01);

  it("never shortens the lease", () => {
    expect(laterEnd(leaseEnd(asked, 5_000, 0.01), extended)).toEqual(leaseEnd(asked, 5_000, 0.01));
    expect(laterEnd(leaseEnd(asked, 1_000, 0.01), extended)).toEqual(extended);
  });

  it("accounts for a suspend after the wall clock was set back by an hour", () => {
    const end = laterEnd(leaseEnd(asked, 1_000, 0.01), extended);
    expect(remainingMs(end, { ...asked, monotonicMs: 1_100, wallMs: asked.wallMs - 3_600_000 + 60_000 })).toBeLessThan(
      0,
    );
  });
});

describe("renewal", () => {
  it("leaves time for at least three tries within one validity", () => {
    fc.assert(
      fc.property(fc.integer({ min: 100, max: 86_400_000 }), (ttlMs) => {
        const third = BY_THIRDS.dueMs(0, ttlMs) + 2 * (BY_THIRDS.timeoutMs(ttlMs) + BY_THIRDS.retryMs(0, 0, ttlMs));
        expect(third).toBeLessThan(ttlMs - driftMs(ttlMs, 0.01));
      }),
    );
  });
});

describe("the next period", () => {
  it("ends between three quarters of the period and the full period, at moments shared by all leases", () => {
    fc.assert(
      fc.property(fc.double({ min: 0, max: 1e9, noNaN: true }), fc.integer({ min: 4, max: 60_000 }), (now, period) => {
        const after = everyPeriod(period).dueMs(now, period) - now;
        expect(after).toBeGreaterThanOrEqual(0.75 * period - 1e-3);
        expect(after).toBeLessThanOrEqual(period + 1e-3);
        const grid = period / 4;
        const due = (now + after) / grid;
        expect(Math.abs(due - Math.round(due))).toBeLessThan(1e-3);
      }),
    );
  });
});

describe("quarantineMs", () => {
  it("outlasts every lease by the drift and the slack", () => {
    fc.assert(fc.property(ttl, factor, (ttlMs, drift) => quarantineMs(ttlMs, drift) >= ttlMs * (1 + drift) + 300));
  });
});
