import { systemClock } from "@x/redlock-core";
import { describe, expect, it } from "vitest";
import { readingsOf } from "../src/term/readings.ts";

describe("a reading of the clocks", () => {
  it("is made again when the process was frozen in the middle of it", () => {
    let nowMs = 1_000;
    let freezes = 1;
    const clock = {
      ...systemClock,
      monotonicMs: () => nowMs,
      wallMs: () => {
        if (freezes > 0) nowMs += 5_000;
        freezes -= 1;
        return nowMs;
      },
    };
    const reading = readingsOf(clock, () => nowMs).read();
    expect(reading).toEqual({ monotonicMs: 6_000, wallMs: 6_000, uptimeMs: 6_000 });
  });

  it("is taken as it is when that happens over and over", () => {
    let nowMs = 0;
    const clock = { ...systemClock, monotonicMs: () => (nowMs += 100), wallMs: () => nowMs };
    expect(readingsOf(clock, undefined).read().wallMs).toBeGreaterThan(0);
  });
});
