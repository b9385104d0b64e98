import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type LeaderElectionOptions, resolveOptions } from "../src/options.ts";
import { cooldownMs, hasRecovered, jitteredMs } from "../src/rules/timings.ts";

const FACTS = { defaultId: "host/1", maxTtl: 60_000, driftFactor: 0.01, nodeTimeout: 500 };
const resolve = (options: Partial<LeaderElectionOptions>): ReturnType<typeof resolveOptions> =>
  resolveOptions({ name: "x", ...options }, FACTS);

describe("durations", () => {
  it("have the defaults of Kubernetes", () => {
    expect(resolve({})).toMatchObject({
      leaseDuration: 15_000,
      renewDeadline: 10_000,
      retryPeriod: 2_000,
      resource: "leader:x",
      id: "host/1",
    });
  });

  it("always leave time for clock drift and two renewals, or are refused", () => {
    const ms = fc.integer({ min: 100, max: 60_000 });
    fc.assert(
      fc.property(ms, ms, ms, (leaseDuration, renewDeadline, retryPeriod) => {
        try {
          resolve({ leaseDuration, renewDeadline, retryPeriod });
          expect(leaseDuration * (1 - FACTS.driftFactor) - renewDeadline).toBeGreaterThan(2);
        } catch (error) {
          expect(error).toBeInstanceOf(RangeError);
          return;
        }
        expect(Math.floor(renewDeadline / retryPeriod)).toBeGreaterThanOrEqual(2);
        expect(renewDeadline - retryPeriod - FACTS.nodeTimeout).toBeGreaterThan(0);
      }),
    );
  });

  it.each([
    [{ leaseDuration: 60_001 }, /leaseDuration must be <= maxTtl of the Redlock \(60000\), got 60001/],
    [
      { leaseDuration: 15_000, renewDeadline: 14_848 },
      /renewDeadline must be < leaseDuration − drift \(14848\), got 14848/,
    ],
    [{ retryPeriod: 5_001 }, /retryPeriod must be <= renewDeadline \/ 2 \(5000\), got 5001/],
    [
      { leaseDuration: 800 },
      /retryPeriod \+ nodeTimeout of the Redlock \(106 \+ 500\) must be < renewDeadline, got 533/,
    ],
    [{ leaseDuration: 1.5 }, /leaseDuration must be an integer/],
    [{ jitter: 2 }, /jitter must be a number from 0 to 1, got 2/],
    [{ name: "" }, /name must be a string of 1 to 4089 bytes, got ""/],
    [{ cooldown: { initial: 10, max: 5 } }, /cooldown.max must be >= cooldown.initial \(10\), got 5/],
  ] satisfies [Partial<LeaderElectionOptions>, RegExp][])(
    "refuses %j with a RangeError that names the rule",
    (options, message) => {
      expect(() => resolve(options)).toThrow(RangeError);
      expect(() => resolve(options)).toThrow(message);
    },
  );

  it.each([[{ leaseDuration: "15s" }], [{ name: 5 }], [{ eligible: true }], [{ renewal: "thread" }]])(
    "refuses %j with a TypeError",
    (options) => {
      expect(() => resolve(options as unknown as LeaderElectionOptions)).toThrow(TypeError);
    },
  );
});

describe("cooldown", () => {
  it("doubles with each failure and never exceeds its maximum", () => {
    const cooldown = { initial: 1_000, max: 60_000 };
    expect([0, 1, 2, 3, 7, 1_000].map((failures) => cooldownMs(cooldown, failures))).toEqual([
      1_000, 1_000, 2_000, 4_000, 60_000, 60_000,
    ]);
    expect(hasRecovered(cooldown, 59_999)).toBe(false);
    expect(hasRecovered(cooldown, 60_000)).toBe(true);
  });

  it("varies by no more than its jitter", () => {
    fc.assert(
      fc.property(
        fc.nat(),
        fc.double({ min: 0, max: 1, noNaN: true }),
        fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true }),
        (ms, share, random) => {
          expect(Math.abs(jitteredMs(ms, share, random) - ms)).toBeLessThanOrEqual(ms * share + 1e-6);
        },
      ),
    );
  });
});
