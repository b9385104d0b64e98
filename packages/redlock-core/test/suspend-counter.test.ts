import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { SuspendCounter } from "../src/kit/clock.ts";

const RESOLUTION_MS = 10;

/** A machine that runs, sleeps, and is frozen while a reading of its uptime is on its way. */
function machine(): {
  readonly counter: SuspendCounter;
  readonly run: (ms: number) => void;
  readonly sleep: (ms: number) => void;
  frozenMs: number;
  readonly nowMs: () => number;
  reads: number;
} {
  let ranMs = 123.456;
  let sleptMs = 0;
  const self = {
    frozenMs: 0,
    reads: 0,
    counter: new SuspendCounter(
      () => {
        self.reads += 1;
        const read = Math.floor((ranMs + sleptMs) / RESOLUTION_MS) * RESOLUTION_MS;
        ranMs += self.frozenMs;
        self.frozenMs = 0;
        return read;
      },
      () => ranMs,
    ),
    run: (ms: number): void => void (ranMs += ms),
    sleep: (ms: number): void => void (sleptMs += ms),
    nowMs: () => ranMs,
  };
  return self;
}

describe("the time for which the machine was suspended", () => {
  it("is counted within 20 ms of running again, and never exceeds the real time by more than the resolution", () => {
    const step = fc.record({ runMs: fc.nat(100), sleepMs: fc.nat(100_000), frozenMs: fc.nat(50) });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 20 }), (steps) => {
        const own = machine();
        const read = (): number => own.counter.read(own.nowMs());
        read();
        let sleptMs = 0;
        let countedMs = 0;
        for (const { runMs, sleepMs, frozenMs } of steps) {
          own.frozenMs = frozenMs;
          own.run(runMs);
          own.sleep(sleepMs);
          sleptMs += sleepMs;
          const atOnceMs = read();
          own.run(RESOLUTION_MS);
          own.frozenMs = 0;
          const nextMs = read();
          expect(atOnceMs).toBeGreaterThanOrEqual(countedMs);
          expect(nextMs).toBeLessThanOrEqual(sleptMs + RESOLUTION_MS);
          expect(nextMs).toBeGreaterThan(sleptMs - RESOLUTION_MS - 1);
          countedMs = nextMs;
        }
      }),
    );
  });

  it("is read from the system once in 10 ms", () => {
    const own = machine();
    for (let reads = 0; reads < 100; reads += 1) {
      own.counter.read(own.nowMs());
      own.run(1);
    }
    expect(own.reads).toBe(10);
  });

  it("is zero for a process that was frozen while it read the uptime", () => {
    const own = machine();
    own.counter.read(own.nowMs());
    own.run(RESOLUTION_MS);
    own.frozenMs = 5_000;
    expect(own.counter.read(own.nowMs())).toBeLessThanOrEqual(RESOLUTION_MS);
  });
});
