import { ManualClock } from "@x/test-support";
import { expect, it } from "vitest";
import { AutoExtension } from "../src/lock/auto-extension.ts";
import type { RenewalPolicy } from "../src/rules/renewal.ts";

const LEASE_MS = 10_000;
const POLICY: Pick<RenewalPolicy, "dueMs" | "retryMs"> = {
  dueMs: (sinceMs, ttlMs) => sinceMs + ttlMs - 500,
  retryMs: (startedMs, nowMs, ttlMs) => nowMs + Math.max((startedMs + ttlMs - nowMs) / 8, 10),
};

/** Counts the timers that are armed. */
class CountingClock extends ManualClock {
  armed = 0;

  override schedule(afterMs: number, run: () => void): () => void {
    let isArmed = true;
    const disarm = (): void => {
      if (isArmed) this.armed -= 1;
      isArmed = false;
    };
    this.armed += 1;
    const cancel = super.schedule(afterMs, () => {
      disarm();
      run();
    });
    return () => {
      disarm();
      cancel();
    };
  }
}

it("keeps no process alive once another clock has shown that the lock is lost", async () => {
  const clock = new CountingClock();
  const endMs = clock.wallMs() + LEASE_MS;
  const lost: string[] = [];
  const lease = {
    remaining: () => endMs - clock.wallMs(),
    extend: () => Promise.resolve(),
    expiredError: () => new Error("expired"),
    keepAlive: true,
  };
  const extension = new AutoExtension(clock, lease, POLICY, (error) => lost.push(error.message));
  clock.suspend(LEASE_MS);
  await clock.advance(1_000);
  expect([extension.remaining(), lost, clock.armed]).toEqual([0, ["expired"], 0]);
});

it("treats an extension that rejects as failed, and tries again", async () => {
  const clock = new CountingClock();
  const endMs = clock.wallMs() + LEASE_MS;
  const lost: string[] = [];
  let tries = 0;
  const lease = {
    remaining: () => endMs - clock.wallMs(),
    extend: () => {
      tries += 1;
      return Promise.reject(new Error("no client"));
    },
    expiredError: () => new Error("expired"),
    keepAlive: true,
  };
  const extension = new AutoExtension(clock, lease, POLICY, (error) => lost.push(error.message));
  await clock.advance(LEASE_MS);
  expect(tries).toBeGreaterThan(1);
  expect([extension.remaining(), lost, clock.armed]).toEqual([0, ["no client"], 0]);
});

it("reports a loss that an extension has found, without another extension", async () => {
  const clock = new CountingClock();
  const lost: string[] = [];
  let leftMs = LEASE_MS;
  const lease = {
    remaining: () => leftMs,
    extend: () => {
      leftMs = 0;
      return Promise.reject(new Error("taken"));
    },
    expiredError: () => new Error("expired"),
    keepAlive: true,
  };
  const extension = new AutoExtension(clock, lease, POLICY, (error) => lost.push(error.message));
  await clock.advance(LEASE_MS - 500);
  expect([extension.remaining(), lost, clock.armed]).toEqual([0, ["taken"], 0]);
});

it("counts a period from the start of an extension, whether the extension succeeded or failed", async () => {
  const clock = new CountingClock();
  const startsMs: number[] = [];
  const lease = {
    remaining: () => LEASE_MS,
    extend: async () => {
      startsMs.push(clock.monotonicMs());
      await new Promise<void>((resolve) => void clock.schedule(20, resolve));
      if (startsMs.length === 2) throw new Error("no client");
    },
    expiredError: () => new Error("expired"),
    keepAlive: false,
  };
  const next = (ms: number): number => ms + 100;
  const extension = new AutoExtension(clock, lease, { dueMs: next, retryMs: next }, () => undefined);
  const startMs = clock.monotonicMs();
  await clock.advance(410);
  expect(startsMs.map((ms) => ms - startMs)).toEqual([100, 200, 300, 400]);
  extension.stop();
  expect(clock.armed).toBe(1);
});
