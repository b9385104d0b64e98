import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { retryDelayMs } from "../src/kit/back-off.ts";

const options = { delayMs: 50, maxDelayMs: 1_000, jitterMs: 50 };

describe("retryDelayMs", () => {
  it("doubles per failure up to the limit", () => {
    const delays = [1, 2, 3, 4, 5, 6, 60].map((failures) => retryDelayMs({ ...options, failures, fraction: 0 }));
    expect(delays).toEqual([50, 100, 200, 400, 800, 1_000, 1_000]);
  });

  it("is never negative nor greater than the limit plus the jitter", () => {
    fc.assert(
      fc.property(fc.nat(1_000), fc.double({ min: 0, max: 0.999, noNaN: true }), (failures, fraction) => {
        const delay = retryDelayMs({ ...options, failures, fraction });
        expect(delay).toBeGreaterThanOrEqual(0);
        expect(delay).toBeLessThan(1_050);
      }),
    );
  });

  it("varies with the random number, so that two clients do not collide again", () => {
    expect(retryDelayMs({ ...options, failures: 1, fraction: 0.1 })).not.toBe(
      retryDelayMs({ ...options, failures: 1, fraction: 0.9 }),
    );
  });
});
