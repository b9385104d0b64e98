/** Renewals on a clock that the test moves. */
import { type Lock, LockLostError, type Redlock } from "@x/redlock-core";
import { PROTOCOL } from "@x/redlock-core/protocol";
import { ManualClock } from "@x/test-support";
import { beforeEach, describe, expect, it } from "vitest";
import { resolveOptions } from "../src/options.ts";
import { type Lease, localLeases } from "../src/term/lease.ts";

const OPTIONS = resolveOptions(
  { name: "x", leaseDuration: 15_000, renewDeadline: 10_000, retryPeriod: 2_000 },
  { defaultId: "me", maxTtl: 60_000, driftFactor: 0.01, nodeTimeout: 500 },
);

describe("a lease", () => {
  let clock: ManualClock;
  let extensions: { settle: () => void; fail: (error: Error) => void }[];
  let lost: AbortController;
  let remainingMs: number;
  beforeEach(() => {
    clock = new ManualClock();
    extensions = [];
    lost = new AbortController();
    remainingMs = OPTIONS.leaseDuration - OPTIONS.driftMs;
  });

  async function acquire(): Promise<Lease> {
    const lock = {
      fencingToken: 7,
      token: "t",
      signal: lost.signal,
      remaining: () => remainingMs,
      extend: () =>
        new Promise<void>((resolve, reject) => {
          extensions.push({ settle: resolve, fail: reject });
        }),
      [PROTOCOL]: { leave: () => undefined },
      release: () => Promise.resolve(true),
    } as unknown as Lock;
    const redlock = {
      [PROTOCOL]: { acquire: () => Promise.resolve(lock) },
      on: () => () => undefined,
    } as unknown as Redlock;
    return localLeases(redlock, OPTIONS, clock, "").acquire(new AbortController().signal, () => undefined);
  }

  it("counts from the moment before the attempt that was granted", async () => {
    remainingMs -= 400;
    const lease = await acquire();
    expect(lease.anchor().monotonicMs).toBe(clock.monotonicMs() - 400);
  });

  it("counts from the moment before a renewal was asked for, however late its answer is", async () => {
    const lease = await acquire();
    lease.keep({ renewed: () => undefined, failed: () => undefined, lost: () => undefined });
    await clock.advance(2_000);
    const askedMs = clock.monotonicMs();
    expect(extensions.length).toBe(1);
    await clock.advance(3_000);
    extensions[0]?.settle();
    await clock.advance(0);
    expect(lease.anchor().monotonicMs).toBeLessThanOrEqual(askedMs);
    expect(lease.anchor().monotonicMs).toBeGreaterThan(askedMs - 600);
  });

  it("is not moved by a renewal that failed, and is renewed again after it", async () => {
    const lease = await acquire();
    const before = lease.anchor().monotonicMs;
    const failures: unknown[] = [];
    lease.keep({ renewed: () => undefined, failed: (error) => failures.push(error), lost: () => undefined });
    await clock.advance(2_000);
    extensions[0]?.fail(new Error("no quorum"));
    await clock.advance(0);
    await clock.advance(2_000);
    expect([lease.anchor().monotonicMs, failures.length, extensions.length]).toEqual([before, 1, 2]);
  });

  it("is renewed no more after leave, also not by a renewal under way", async () => {
    const lease = await acquire();
    let renewals = 0;
    lease.keep({ renewed: () => (renewals += 1), failed: () => undefined, lost: () => undefined });
    await clock.advance(2_000);
    lease.leave();
    extensions[0]?.settle();
    await clock.advance(60_000);
    expect([extensions.length, renewals]).toEqual([1, 0]);
  });

  it.each([
    ["taken", 1],
    ["forced", 1],
    ["expired", 0],
  ] as const)("tells of a lock that is %s %i times: an expiry is the deadline's business", async (reason, times) => {
    const lease = await acquire();
    let told = 0;
    lease.keep({ renewed: () => undefined, failed: () => undefined, lost: () => (told += 1) });
    lost.abort(new LockLostError({ resources: ["leader:x"], reason, fencingToken: 7, heldMs: 1, votes: [] }));
    expect(told).toBe(times);
  });
});
