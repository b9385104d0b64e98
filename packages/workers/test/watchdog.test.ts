import { type Clock } from "@x/redlock-core";
import { describe, expect, it } from "vitest";
import { Run } from "../src/job-run/run.ts";
import { Watchdog } from "../src/runner/watchdog.ts";

/** A clock whose timers fire when the test says so. */
class ManualClock implements Clock {
  nowMs = 0;
  due: (() => void) | undefined;
  readonly defer = queueMicrotask;
  monotonicMs(): number {
    return this.nowMs;
  }
  wallMs(): number {
    return this.nowMs;
  }
  suspendedMs(): number {
    return 0;
  }
  schedule(_ms: number, action: () => void): () => void {
    this.due = action;
    return () => (this.due = undefined);
  }
}

function runOf(clock: Clock, token: string, lost: string[], sentMs = 0): Run {
  const sent = { monotonicMs: sentMs, wallMs: sentMs, suspendedMs: 0 };
  const facts = {
    job: {} as never,
    jobId: "1",
    token,
    keys: ["a"],
    resources: ["a"],
    place: undefined,
    lockDurationMs: 1_000,
    driftFactor: 0.01,
    sent,
  };
  return new Run({ ...facts, controller: undefined }, clock, () => lost.push(token));
}

describe("a run whose lease has expired only by the wall clock", () => {
  it("is reported lost once, even if its processor continues while fake timers jump a day", () => {
    let wallMs = 0;
    const clock = new ManualClock();
    clock.wallMs = () => wallMs;
    const watchdog = new Watchdog(clock, () => undefined);
    const lost: string[] = [];
    watchdog.add(runOf(clock, "first", lost));
    wallMs = 86_400_000;
    let callbacks = 0;
    for (let { due } = clock; due !== undefined && callbacks < 100; { due } = clock, callbacks += 1) {
      clock.due = undefined;
      due();
    }
    expect({ lost, callbacks }).toEqual({ lost: ["first"], callbacks: 1 });
    // A later run is watched again.
    watchdog.add(runOf(clock, "second", lost, clock.nowMs));
    expect(clock.due).toBeDefined();
  });
});

describe("runs of one job in a worker that lost the job and took it again", () => {
  it("are found by their tokens, until each has ended", () => {
    const clock = new ManualClock();
    let last: Run | undefined;
    const watchdog = new Watchdog(clock, () => last);
    const [first, second] = [runOf(clock, "first", []), runOf(clock, "second", [])];
    watchdog.add(first);
    watchdog.add(second);
    last = second;
    expect([watchdog.findRun("1", "first"), watchdog.findRun("1", "second"), watchdog.findRun("1", "third")]).toEqual([
      first,
      second,
      undefined,
    ]);
    watchdog.delete(second);
    expect([watchdog.findRun("1", "first"), watchdog.findRun("1", "second")]).toEqual([first, undefined]);
    expect(watchdog.findLatestRun("1")).toBeUndefined();
    last = undefined;
    expect(watchdog.findLatestRun("1")).toBe(first);
    watchdog.delete(first);
    expect(watchdog.findRun("1", "first")).toBeUndefined();
  });

  it("end when their own leases are over", () => {
    const clock = new ManualClock();
    const watchdog = new Watchdog(clock, () => undefined);
    const lost: string[] = [];
    watchdog.add(runOf(clock, "first", lost));
    watchdog.add(runOf(clock, "second", lost, 500));
    clock.nowMs = 988;
    clock.due?.();
    expect(lost).toEqual(["first"]);
    clock.nowMs = 1_488;
    clock.due?.();
    expect(lost).toEqual(["first", "second"]);
  });
});
