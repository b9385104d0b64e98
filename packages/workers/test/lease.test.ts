import { systemClock } from "@x/redlock-core";
import { type Instant } from "@x/redlock-core/kit";
import fc from "fast-check";
import { expect, it } from "vitest";
import { leaseLeftMs, mustConfirm } from "../src/job-run/rules/lease.ts";
import { Run } from "../src/job-run/run.ts";
import { Watchdog } from "../src/runner/watchdog.ts";

const instant = fc.record({
  monotonicMs: fc.integer({ min: 0, max: 1e9 }),
  wallMs: fc.integer({ min: 0, max: 1e12 }),
  suspendedMs: fc.integer({ min: 0, max: 1e6 }),
});

it("ends a lease by the clock that advanced further", () => {
  fc.assert(
    fc.property(instant, fc.nat(1e6), fc.nat(1e6), fc.integer({ min: -1e6, max: 1e6 }), (sent, ran, slept, byWall) => {
      const now = {
        monotonicMs: sent.monotonicMs + ran,
        wallMs: sent.wallMs + byWall,
        suspendedMs: sent.suspendedMs + slept,
      };
      const lease = { sent, lockDurationMs: 10_000, driftFactor: 0.01 };
      expect(leaseLeftMs(lease, now)).toBe(9_898 - Math.max(ran + slept, byWall));
    }),
  );
});

it.each([
  [4_948, 0.01, false],
  [4_949, 0.01, false],
  [4_950, 0.01, true],
  [20_000, 0.01, true],
  [0, 0.5, false],
])("asks for confirmation %i ms after the fetch, with a drift factor of %d: %s", (ageMs, driftFactor, asks) => {
  expect(mustConfirm({ sent: instantAt(0), lockDurationMs: 10_000, driftFactor }, instantAt(ageMs))).toBe(asks);
});

/** A watchdog in virtual time, with the times at which the runs that it watches are lost. */
function watch(): {
  readonly watchdog: Watchdog;
  readonly lost: [jobId: string, atMs: number][];
  readonly at: (ms: number) => void;
  /** Suspends the machine for `ms`. */
  readonly suspend: (ms: number) => void;
  readonly run: (jobId: string, sentMs: number) => Run;
} {
  let nowMs = 0;
  let suspendedMs = 0;
  const due: { readonly atMs: number; readonly run: () => void }[] = [];
  const clock = {
    ...systemClock,
    monotonicMs: () => nowMs,
    wallMs: () => nowMs,
    suspendedMs: () => suspendedMs,
    schedule: (afterMs: number, run: () => void) => {
      const timer = { atMs: nowMs + afterMs, run };
      due.push(timer);
      return () => void due.splice(due.indexOf(timer), due.includes(timer) ? 1 : 0);
    },
  };
  const lost: [string, number][] = [];
  return {
    watchdog: new Watchdog(clock, () => undefined),
    lost,
    at: (ms) => {
      for (;;) {
        const next = due.toSorted((a, b) => a.atMs - b.atMs)[0];
        if (next === undefined || next.atMs > ms) break;
        due.splice(due.indexOf(next), 1);
        nowMs = next.atMs;
        next.run();
      }
      nowMs = ms;
    },
    suspend: (ms) => {
      suspendedMs += ms;
    },
    run: (jobId, sentMs) => {
      const facts = {
        job: {} as never,
        jobId,
        token: "t",
        keys: [],
        resources: [],
        place: undefined,
        lockDurationMs: 1_000,
        driftFactor: 0.01,
      };
      return new Run({ ...facts, sent: instantAt(sentMs), controller: undefined }, clock, () =>
        lost.push([jobId, nowMs]),
      );
    },
  };
}

function instantAt(ms: number): Instant {
  return { monotonicMs: ms, wallMs: ms, suspendedMs: 0 };
}

it("ends a run whose lease began before the lease of a run that is already watched", () => {
  const { watchdog, lost, at, run } = watch();
  at(450);
  watchdog.add(run("later", 450));
  watchdog.add(run("earlier", 0));
  at(10_000);
  expect(lost).toEqual([
    ["earlier", 988],
    ["later", 1_438],
  ]);
});

it("ends a run before the end of its lease, by the drift of two clocks", () => {
  const { watchdog, lost, at, run } = watch();
  const only = run("only", 0);
  watchdog.add(only);
  at(987);
  expect([lost, only.leaseLeftMs()]).toEqual([[], 1]);
  at(988);
  expect(lost).toEqual([["only", 988]]);
  expect(only.lost?.message).toBe("job only: BullMQ's lock is lost, last renewed 988 ms ago, lockDuration 1000");
});

it("ends a run in time if its long lease was followed by a shorter one", () => {
  const { watchdog, lost, at, run } = watch();
  const renewed = run("renewed", 0);
  watchdog.add(renewed);
  watchdog.restartLease(renewed, instantAt(100), 60_000);
  at(2_000);
  watchdog.restartLease(renewed, instantAt(2_000), 1_000);
  at(10_000);
  expect(lost).toEqual([["renewed", 2_988]]);
});

it("ends a run within a second of the machine's resumption if the machine was suspended for the length of the lease", () => {
  const { watchdog, lost, at, suspend, run } = watch();
  const long = run("long", 0);
  watchdog.add(long);
  watchdog.restartLease(long, instantAt(0), 60_000);
  at(500);
  suspend(60_000);
  at(1_000);
  expect(lost).toEqual([["long", 988]]);
});

it("watches a run again if Redis confirms it after its lease seemed to have expired", () => {
  const { watchdog, lost, at, run } = watch();
  const late = run("late", 0);
  watchdog.add(late);
  at(1_500);
  late.restoreTrust();
  watchdog.restartLease(late, instantAt(1_400), 1_000);
  at(10_000);
  expect(lost).toEqual([
    ["late", 988],
    ["late", 2_388],
  ]);
});
