import { ManualClock } from "@x/test-support";
import { describe, expect, it } from "vitest";
import { deferred, repeat } from "../src/kit.ts";

describe("repeated work", () => {
  it("begins immediately, and again a period after each end, even if it fails", async () => {
    const clock = new ManualClock();
    const begun: number[] = [];
    const first = deferred<void>();
    const stop = repeat(clock, 100, async () => {
      begun.push(clock.monotonicMs());
      if (begun.length === 1) await first.promise;
      if (begun.length === 2) throw new Error("now and then");
    });
    const startMs = clock.monotonicMs();
    await clock.advance(250);
    expect(begun).toEqual([startMs]);
    first.resolve();
    await clock.advance(0);
    await clock.advance(200);
    expect(begun).toEqual([startMs, startMs + 350, startMs + 450]);
    stop();
    await clock.advance(1_000);
    expect(begun).toHaveLength(3);
  });

  it("is not started again if it was stopped while it ran", async () => {
    const clock = new ManualClock();
    let begun = 0;
    const under = deferred<void>();
    const stop = repeat(clock, 100, async () => {
      begun += 1;
      await under.promise;
    });
    stop();
    under.resolve();
    await clock.advance(1_000);
    expect(begun).toBe(1);
  });
});
