/** How a term keeps its lock. */
import { type Lock, LockLostError, type Redlock } from "@x/redlock-core";
import { type Lease as LockLease, PROTOCOL, type RenewalPolicy } from "@x/redlock-core/protocol";
import { ManualClock } from "@x/test-support";
import { beforeEach, describe, expect, it } from "vitest";
import { resolveOptions } from "../src/options.ts";
import { type Lease, localLeases } from "../src/term/lease.ts";

const OPTIONS = resolveOptions(
  { name: "x", leaseDuration: 15_000, renewDeadline: 10_000, retryPeriod: 2_000 },
  { defaultId: "me", maxTtl: 60_000, driftFactor: 0.01, nodeTimeout: 500 },
);
const START = { monotonicMs: 1, wallMs: 2, suspendedMs: 3 };
const SILENT = { renewed: () => undefined, failed: () => undefined, lost: () => undefined };

describe("a lease", () => {
  let signal: AbortController;
  let policies: RenewalPolicy[];
  let left: number;
  beforeEach(() => {
    signal = new AbortController();
    policies = [];
    left = 0;
  });

  async function acquire(): Promise<Lease> {
    const own: Pick<LockLease, "start" | "keep" | "leave"> = {
      start: START,
      keep: (policy) => void policies.push(policy),
      leave: () => void (left += 1),
    };
    const lock = {
      fencingToken: 7,
      token: "t",
      signal: signal.signal,
      [PROTOCOL]: own,
      release: () => Promise.resolve(true),
    } as unknown as Lock;
    const redlock = {
      [PROTOCOL]: { acquire: () => Promise.resolve(lock), clock: new ManualClock() },
      on: () => () => undefined,
    } as unknown as Redlock;
    const lease = await localLeases(redlock, { ...OPTIONS, note: "" }).acquire(new AbortController().signal);
    if (lease === undefined) throw new Error("no lease");
    return lease;
  }

  it("begins when its lock's lease does", async () => {
    expect((await acquire()).start).toEqual(START);
  });

  it("is renewed by its lock once per period, also after a failure", async () => {
    (await acquire()).keep(SILENT);
    expect(policies.map((policy) => [policy.dueMs(8_000, 15_000), policy.retryMs(8_000, 9_000, 15_000)])).toEqual([
      [10_000, 10_000],
    ]);
  });

  it("leaves its lock to run out before it is released, and tells nothing more", async () => {
    const lease = await acquire();
    let told = 0;
    lease.keep({ ...SILENT, lost: () => (told += 1) });
    expect([await lease.release(), left]).toEqual([true, 1]);
    signal.abort(
      new LockLostError({ resources: ["leader:x"], reason: "taken", fencingToken: 7, heldMs: 1, votes: [] }),
    );
    expect(told).toBe(0);
  });

  it.each([
    ["taken", "lost"],
    ["forced", "lost"],
    ["expired", "failed"],
  ] as const)("takes a lock that is %s as %s: an expiry is the deadline's business", async (reason, expected) => {
    const lease = await acquire();
    const told: string[] = [];
    lease.keep({ ...SILENT, lost: () => told.push("lost"), failed: () => told.push("failed") });
    signal.abort(new LockLostError({ resources: ["leader:x"], reason, fencingToken: 7, heldMs: 1, votes: [] }));
    expect(told).toEqual([expected]);
  });
});
