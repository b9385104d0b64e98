import { ManualClock } from "@x/test-support";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import type { AcquireOptions, Lock, LockLostError } from "../src/index.ts";
import { type Instant, readClock } from "../src/kit.ts";
import { type Lease, protocolOf, remainingMs } from "../src/protocol.ts";
import { everyPeriod } from "../src/rules/renewal.ts";
import { openRedlock } from "./support/nodes.ts";
import { granted, StubNode } from "./support/stub-node.ts";

it("a lock is extended in three tries per lease on a silent node, however long nodeTimeout is", async () => {
  const [clock, node] = [new ManualClock(), new StubNode()];
  const redlock = openRedlock([node], { clock, nodeTimeout: 60_000 });
  node.answer = (operations) => Promise.resolve(granted(operations));
  const lock = await redlock.acquire("r", { ttl: 6_000, autoExtend: true });
  const unanswered: (() => void)[] = [];
  node.answer = (operations) => new Promise((resolve) => unanswered.push(() => resolve(granted(operations))));
  onTestFinished(() => {
    node.answer = (operations) => Promise.resolve(granted(operations));
    for (const answer of unanswered) answer();
  });
  await clock.advance(6_000);
  expect(lock.isHeld()).toBe(false);
  expect(node.operations.filter((operation) => operation.startsWith("e"))).toHaveLength(3);
});

it.each([
  { name: "where a quorum still had it", replies: [1, 1, 3], repaired: [false, false, true] },
  { name: "where no other client can have a quorum", replies: ["gone", 1, 3], repaired: [false, false, true] },
  {
    name: "nowhere if the other nodes could be another client's quorum",
    replies: [1, 3, 3],
    repaired: [false, false, false],
  },
  { name: "nowhere if a majority has lost it", replies: [3, 3, "gone"], repaired: [false, false, false] },
])("an extension sets the key again on a node that lost it: $name", async ({ replies, repaired }) => {
  const nodes = replies.map(() => new StubNode());
  const redlock = openRedlock(nodes, { clock: new ManualClock(), quarantine: false });
  for (const node of nodes) node.answer = (operations) => Promise.resolve(granted(operations));
  const lock = await redlock.acquire("r", { ttl: 6_000 });
  await new Promise(setImmediate);
  for (const [index, node] of nodes.entries()) {
    node.answer = ([operation = ""]) => {
      const reply = operation.startsWith("e") ? replies[index] : 1;
      return reply === "gone" ? Promise.reject(new Error("gone")) : Promise.resolve(["1000000", 0, reply]);
    };
  }
  await lock.extend().catch(() => undefined);
  await new Promise(setImmediate);
  const isAsked = (node: StubNode): boolean => node.operations.some((operation) => operation.startsWith("P"));
  expect(nodes.map(isAsked)).toEqual(repaired);
  for (const node of nodes) node.answer = (operations) => Promise.resolve(granted(operations));
});

it("a lock is not extended by an answer that is read after nodeTimeout because the event loop was blocked", async () => {
  const clock = new ManualClock();
  const nodes = [new StubNode(), new StubNode(), new StubNode()];
  for (const node of nodes) node.answer = (operations) => Promise.resolve(granted(operations));
  const redlock = openRedlock(nodes, { clock, nodeTimeout: 300 });
  const lock = await redlock.acquire("r", { ttl: 6_000, autoExtend: false });
  const leftMs = lock.remaining();
  const extended = lock.extend();
  clock.block(400);
  await extended;
  const extensions = nodes[0]?.operations.filter((operation) => operation.startsWith("e"));
  expect([extensions?.length, lock.remaining()]).toEqual([2, leftMs]);
});

it("a lock is lost when the machine was suspended, even if its wall clock was set back by the same time", async () => {
  const [clock, node] = [new ManualClock(), new StubNode()];
  node.answer = (operations) => Promise.resolve(granted(operations));
  const redlock = openRedlock([node], { clock });
  const lock = await redlock.acquire("r", { ttl: 6_000 });
  clock.suspend(6_000);
  clock.stepWallClock(-6_000);
  expect([lock.isHeld(), lock.remaining(), lock.signal.aborted]).toEqual([false, 0, true]);
});

it.each([
  { name: "the machine is suspended", lose: (clock: ManualClock) => clock.suspend(10_000) },
  {
    name: "the machine is suspended, as only the wall clock sees",
    lose: (clock: ManualClock) => clock.stepWallClock(10_000),
  },
])("a lock is held no longer than maxHold while $name", async ({ lose }) => {
  const [clock, node] = [new ManualClock(), new StubNode()];
  node.answer = (operations) => Promise.resolve(granted(operations));
  const redlock = openRedlock([node], { clock });
  const lock = await redlock.acquire("r", { ttl: 60_000, maxHold: 10_000 });
  await clock.advance(1);
  expect(lock.remaining()).toBe(9_999);
  lose(clock);
  expect([lock.remaining(), (lock.signal.reason as LockLostError).reason]).toEqual([0, "max-hold"]);
});

describe("a lock whose end is observed by a listener", () => {
  async function acquire() {
    const [clock, node] = [new ManualClock(), new StubNode()];
    node.answer = (operations) => Promise.resolve(granted(operations));
    const redlock = openRedlock([node], { clock });
    return { clock, node, redlock, lock: await redlock.acquire("r") };
  }

  it("closes its Redlock once, even if the listener closes it again", async () => {
    const { node, redlock, lock } = await acquire();
    const closes = vi.spyOn(node, "close");
    let again: Promise<void> | undefined;
    lock.signal.addEventListener("abort", () => void (again = redlock.close()));
    const closed = redlock.close();
    expect(again).toBe(closed);
    await closed;
    expect(closes).toHaveBeenCalledOnce();
  });

  it("is released once, even if the listener releases it again", async () => {
    const { node, redlock, lock } = await acquire();
    node.become("down");
    let told = 0;
    redlock.on("released", () => {
      told += 1;
      if (told < 5) void lock.release();
    });
    expect(await lock.release()).toBe(false);
    expect(told).toBe(1);
  });

  it("is no longer held if the script that releases it cannot be sent", async () => {
    const { clock, node, redlock, lock } = await acquire();
    const perform = (): never => {
      throw new Error("not sent");
    };
    expect(() => protocolOf(lock).releaseBy(perform)).toThrow("not sent");
    expect(lock.isHeld()).toBe(false);
    await clock.advance(redlock.options.nodeTimeout);
    expect(node.operations.at(-1)).toBe(`r${lock.token}`);
  });
});

describe("the end of a lease", () => {
  const TTL_MS = 6_000;
  const VALID_MS = TTL_MS - 62;

  async function acquire(options: AcquireOptions = {}, clock = new ManualClock()) {
    const node = new StubNode();
    node.answer = (operations) => Promise.resolve(granted(operations));
    const redlock = openRedlock([node], { clock });
    const lock = await redlock.acquire("r", { ttl: TTL_MS, ...options });
    const lease: Lease = protocolOf(lock);
    const leftMs = (now: Instant = readClock(clock)): number => remainingMs(lease.validUntil, now);
    return { clock, node, redlock, lock, lease, leftMs };
  }

  type Held = Awaited<ReturnType<typeof acquire>>;

  const later = (from: Instant, byMs: number): Instant => ({
    ...from,
    monotonicMs: from.monotonicMs + byMs,
    wallMs: from.wallMs + byMs,
  });

  it("is computed for each clock, and moved by an extension", async () => {
    const { clock, lock, lease, leftMs } = await acquire({ autoExtend: false });
    expect(leftMs()).toBe(VALID_MS);
    await clock.advance(1_000);
    const now = readClock(clock);
    expect([leftMs(), lease.remaining(now), lease.remaining()]).toEqual(Array(3).fill(VALID_MS - 1_000));
    expect(leftMs({ ...now, wallMs: now.wallMs + 5_000 })).toBe(VALID_MS - 6_000);
    expect(leftMs({ ...now, suspendedMs: now.suspendedMs + 5_000 })).toBe(VALID_MS - 6_000);
    await lock.extend();
    expect(leftMs()).toBe(VALID_MS);
  });

  it("is compared with the clock readings that the caller passes", async () => {
    const { clock, lock, lease } = await acquire({ autoExtend: false });
    const now = readClock(clock);
    clock.suspend(TTL_MS);
    expect(lease.remaining(now)).toBe(VALID_MS);
    expect([lease.remaining(readClock(clock)), lease.remaining(now), lease.lossReason]).toEqual([0, 0, "expired"]);
    expect(lock.signal.aborted).toBe(true);
  });

  it("never exceeds maxHold by any clock, however often the lease is extended", async () => {
    const { clock, lock, lease, leftMs } = await acquire({ maxHold: 10_000 });
    const granted = readClock(clock);
    expect(leftMs()).toBe(VALID_MS);
    for (let extensions = 0; extensions < 3; extensions += 1) {
      await clock.advance(2_500);
      await lock.extend();
    }
    expect(leftMs(later(granted, 10_000))).toBeCloseTo(0);
    expect(leftMs({ ...granted, wallMs: granted.wallMs + 10_000 })).toBeCloseTo(0);
    await clock.advance(2_500);
    expect([lease.lossReason, leftMs()]).toEqual(["max-hold", Number.NEGATIVE_INFINITY]);
  });

  it.each([
    [
      "forced",
      ({ node, redlock }: Held) => {
        node.answer = (operations) => Promise.resolve(operations.length > 1 ? 1 : granted(operations));
        return redlock.forceRelease("r");
      },
    ],
    ["released", ({ lock }: Held) => lock.release()],
    ["closed", ({ redlock }: Held) => redlock.close()],
  ])("is in the past once the lock is %s, even for earlier clock readings", async (reason, end) => {
    const held = await acquire();
    const { clock, lease, leftMs } = held;
    const before = readClock(clock);
    const ending = end(held);
    await clock.advance(0);
    await ending;
    expect([leftMs(before), lease.remaining(before), lease.lossReason]).toEqual([Number.NEGATIVE_INFINITY, 0, reason]);
  });

  it("is passed on to a call that has joined, until the call releases its handle", async () => {
    const { clock, redlock } = await acquire({});
    await redlock.using("joined", async (outer) => {
      await redlock.using(
        "joined",
        async (lock) => {
          const lease = protocolOf(lock);
          expect(lease.validUntil).toEqual(protocolOf(outer).validUntil);
          expect(lease.remaining(readClock(clock))).toBe(outer.remaining());
          await lock.release();
          expect(remainingMs(lease.validUntil, readClock(clock))).toBe(Number.NEGATIVE_INFINITY);
          expect([lease.remaining(), outer.isHeld()]).toEqual([0, true]);
        },
        { reentrancy: "join" },
      );
    });
  });

  it("is checked once a second, with one reading of the clocks for all locks", async () => {
    let reads = 0;
    class CountingClock extends ManualClock {
      override wallMs(): number {
        reads += 1;
        return super.wallMs();
      }
    }
    const { clock, redlock } = await acquire({ ttl: 60_000 }, new CountingClock());
    for (let locks = 0; locks < 100; locks += 1) await redlock.acquire(`r${locks}`, { ttl: 60_000 });
    reads = 0;
    await clock.advance(3_000);
    expect(reads).toBe(3);
  });
});

describe("a lease that is renewed by keep()", () => {
  const [TTL_MS, PERIOD_MS] = [15_000, 2_000];

  interface Kept {
    readonly clock: ManualClock;
    readonly lock: Lock;
    /** The monotonic clock from which its validity counts. */
    readonly startMs: () => number;
    readonly told: string[];
    /** Answers the requests that arrived in the meantime, or makes them fail. */
    readonly settle: (isOk: boolean) => Promise<number>;
    isPaused: boolean;
  }

  /** Calls keep() `afterMs` after the grant. From then on the node answers nothing until `settle`. */
  async function keep(afterMs = 0): Promise<Kept> {
    const [clock, node] = [new ManualClock(), new StubNode()];
    const redlock = openRedlock([node], { clock, nodeTimeout: 60_000 });
    node.answer = async (operations) => {
      await clock.advance(400);
      return granted(operations);
    };
    const lock = await redlock.acquire("r", { ttl: TTL_MS, autoExtend: false });
    const asked: ((isOk: boolean) => void)[] = [];
    node.answer = (operations) =>
      new Promise((resolve, reject) => {
        asked.push((isOk) => (isOk ? resolve(granted(operations)) : reject(new Error("gone"))));
      });
    onTestFinished(() => {
      node.answer = (operations) => Promise.resolve(granted(operations));
      for (const settle of asked) settle(true);
    });
    const self: Kept = {
      clock,
      lock,
      startMs: () => protocolOf(lock).start.monotonicMs,
      told: [],
      settle: async (isOk) => {
        const settles = asked.splice(0);
        for (const settle of settles) settle(isOk);
        await clock.advance(0);
        return settles.length;
      },
      isPaused: false,
    };
    await clock.advance(afterMs);
    protocolOf(lock).keep({
      ...everyPeriod(PERIOD_MS),
      onRenewed: () => self.told.push("renewed"),
      onFailed: (error) => self.told.push(error.name),
      isPaused: () => self.isPaused,
    });
    return self;
  }

  it("counts from before the request that granted it", async () => {
    const { clock, startMs } = await keep();
    expect(startMs()).toBe(clock.monotonicMs() - 400);
  });

  it("counts from before the request that renewed it, however late the answer is", async () => {
    const { clock, startMs, settle, told } = await keep();
    const keptMs = clock.monotonicMs();
    await clock.advance(PERIOD_MS + 3_000);
    expect(await settle(true)).toBe(1);
    expect([told, startMs() > keptMs, startMs() <= keptMs + PERIOD_MS]).toEqual([["renewed"], true, true]);
  });

  it("is renewed a period after the grant, however late keep() is called", async () => {
    const { clock, settle } = await keep(TTL_MS - PERIOD_MS);
    await clock.advance(1);
    expect(await settle(true)).toBe(1);
  });

  it("is not moved by a failed renewal, and is renewed again after it", async () => {
    const { clock, startMs, settle, told } = await keep();
    const before = startMs();
    await clock.advance(PERIOD_MS);
    expect(await settle(false)).toBe(1);
    await clock.advance(PERIOD_MS);
    expect(await settle(true)).toBe(1);
    expect([told, startMs() > before + PERIOD_MS]).toEqual([["QuorumUnreachableError", "renewed"], true]);
  });

  it("is no longer renewed after leave(), which also ends the callbacks", async () => {
    const { clock, lock, settle, told } = await keep();
    await clock.advance(PERIOD_MS);
    protocolOf(lock).leave();
    expect(await settle(true)).toBe(1);
    await clock.advance(60_000);
    expect([await settle(true), told, lock.isHeld()]).toEqual([0, [], false]);
  });

  it("is not renewed while renewals are paused, but after the pause", async () => {
    const kept = await keep();
    kept.isPaused = true;
    await kept.clock.advance(2 * PERIOD_MS);
    expect(await kept.settle(true)).toBe(0);
    kept.isPaused = false;
    await kept.clock.advance(PERIOD_MS);
    expect([await kept.settle(true), kept.told]).toEqual([1, ["renewed"]]);
  });
});
