import { LockLostError, QuorumUnreachableError, Redlock } from "@x/redlock-core";
import { memoryNodes, VirtualClock, type VirtualProcess } from "@x/testing";
import { afterEach, beforeEach, describe, expect, it } from "vitest";

let clock: VirtualClock;
let nodes: ReturnType<typeof memoryNodes>;
let redlock: Redlock;

beforeEach(() => {
  clock = new VirtualClock();
  nodes = memoryNodes(3, { clock });
  redlock = new Redlock(nodes, { clock, ttl: 10_000 });
});

afterEach(async () => {
  await clock.until(redlock.close());
});

/** A second process, with its own locks on the same nodes. */
function another(name = "another"): { readonly process: VirtualProcess; readonly locks: Redlock } {
  const process = clock.process(name);
  return { process, locks: new Redlock(memoryNodes(nodes, { clock: process }), { clock: process, ttl: 10_000 }) };
}

describe("memory nodes", () => {
  it("grant and release locks while time stands still", async () => {
    const lock = await redlock.acquire("account:42");
    expect(nodes.map((node) => node.keys().includes("account:42"))).toEqual([true, true, true]);
    expect(await redlock.tryAcquire("account:42")).toBeNull();
    expect(await lock.release()).toBe(true);
    expect(nodes.flatMap((node) => node.keys()).filter((key) => key === "account:42")).toEqual([]);
    expect(clock.elapsedMs).toBe(0);
  });

  it("let a lock expire exactly when its time is over", async () => {
    const lock = await redlock.acquire("account:42");
    await clock.advance(9_000);
    expect(lock.remaining()).toBeGreaterThan(0);
    await clock.advance(1_000);
    expect(lock.signal.reason).toBeInstanceOf(LockLostError);
  });

  it("hand a lock to the process that waits for it", async () => {
    const { locks } = another();
    const lock = await redlock.acquire("account:42");
    const waiting = locks.acquire("account:42", { timeout: 60_000 });
    await clock.advance(5_000);
    expect(await lock.release()).toBe(true);
    const next = await clock.until(waiting);
    expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
    expect(clock.elapsedMs).toBeLessThan(10_000);
    await clock.until(locks.close());
  });

  it("grant with one node down, and not with two", async () => {
    nodes[0]?.crash();
    await clock.advance(100);
    expect(await clock.until(redlock.tryAcquire("a"))).not.toBeNull();
    nodes[1]?.crash();
    await expect(clock.until(redlock.acquire("b", { timeout: 0 }))).rejects.toBeInstanceOf(QuorumUnreachableError);
  });

  it("do not vote for maxTtl after a restart without data", async () => {
    for (const node of nodes.slice(1)) node.restart({ empty: true });
    await clock.advance(1_000);
    await expect(clock.until(redlock.acquire("a", { timeout: 0 }))).rejects.toThrow("quarantine");
    await clock.advance(62_000);
    expect(await clock.until(redlock.tryAcquire("a"))).not.toBeNull();
  });

  it("answer after a restart or failover of a frozen process", async () => {
    for (const node of nodes) node.freeze(600_000);
    nodes[0]?.restart();
    nodes[1]?.crash();
    nodes[1]?.restart({ empty: true });
    nodes[2]?.failover(0);
    await clock.advance(10_000);
    expect(nodes.map(({ state }) => state)).toEqual(["ready", "ready", "ready"]);
  });

  it("keep their data over a restart, and lose it with flush", async () => {
    await redlock.acquire("a", { ttl: 10_000 });
    nodes[0]?.restart();
    nodes[1]?.flush();
    await clock.advance(500);
    expect(nodes.map((node) => node.keys().includes("a"))).toEqual([true, false, true]);
  });

  it("forget the last writes in a failover: holders notice, and the next fencing token is greater", async () => {
    const single = memoryNodes(1, { clock });
    const [mine, theirs] = [new Redlock(single, { clock }), new Redlock(single, { clock })];
    await mine.acquire("early");
    await clock.advance(1_000);
    const lock = await mine.acquire("late", { autoExtend: true });
    const { signal } = lock;
    await clock.advance(100);
    single[0]?.failover(500);
    expect(single[0]?.keys()).toContain("early");
    expect(single[0]?.keys()).not.toContain("late");
    const next = await clock.until(theirs.acquire("late"));
    expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
    expect(signal.aborted).toBe(false);
    await clock.advance(30_000);
    expect(signal.reason).toBeInstanceOf(LockLostError);
    for (const each of [mine, theirs]) await clock.until(each.close());
  });

  it("keep a lock during the failover of one of three nodes, and grant no second lock after two failovers", async () => {
    const check = clock.checkLocks();
    const { locks } = another();
    const kept = await redlock.acquire("a", { autoExtend: true });
    const { signal } = kept;
    nodes[0]?.failover(5_000);
    expect(nodes.map((node) => node.keys().includes("a"))).toEqual([false, true, true]);
    await clock.advance(120_000);
    expect(signal.aborted).toBe(false);
    const lost = await redlock.acquire("b", { autoExtend: true });
    for (const node of nodes.slice(0, 2)) node.failover(5_000);
    await clock.advance(1_000);
    await expect(clock.until(locks.acquire("b", { timeout: 0 }))).rejects.toThrow("0 of 3 nodes granted");
    await clock.advance(30_000);
    expect(lost.signal.reason).toBeInstanceOf(LockLostError);
    check.verify();
    await clock.until(locks.close());
  });

  it("fail over while down or frozen, to a replica that lags behind their last moment", async () => {
    const [down, frozen, both] = nodes;
    const lost = await redlock.acquire("a", { ttl: 60_000 });
    await clock.advance(200);
    down?.crash();
    frozen?.freeze(600_000);
    both?.freeze(600_000);
    both?.crash();
    await clock.advance(30_000);
    down?.failover(100);
    frozen?.failover(300);
    both?.failover(300);
    expect(nodes.map((node) => node.keys().includes("a"))).toEqual([true, false, false]);
    await clock.advance(65_000);
    expect(lost.remaining()).toBe(0);
    expect(await clock.until(redlock.tryAcquire("a"))).not.toBeNull();
  });

  it("forget nothing in a failover without a lag, and no write before an earlier failover", async () => {
    const [node] = nodes;
    await redlock.acquire("a");
    node?.failover(0);
    await clock.advance(1_000);
    node?.failover(5_000);
    expect(node?.keys()).toContain("a");
  });

  it("answer nothing while frozen or cut off, and lose nothing", async () => {
    const { locks } = another();
    for (const node of nodes.slice(0, 2)) node.partition(30_000);
    await expect(clock.until(redlock.acquire("a", { timeout: 0 }))).rejects.toBeInstanceOf(QuorumUnreachableError);
    expect(await clock.until(locks.tryAcquire("b"))).not.toBeNull();
    for (const node of nodes.slice(0, 2)) node.freeze(5_000);
    await expect(clock.until(locks.acquire("c", { timeout: 0 }))).rejects.toBeInstanceOf(QuorumUnreachableError);
    await clock.advance(60_000);
    expect(await clock.until(redlock.tryAcquire("a"))).not.toBeNull();
    await clock.until(locks.close());
  });

  it("take as long as their latency", async () => {
    const far = memoryNodes(nodes, { clock, latency: 20 });
    const locks = new Redlock(far, { clock });
    await clock.advance(200);
    const startedMs = clock.elapsedMs;
    await clock.until(locks.acquire("a"));
    expect(clock.elapsedMs - startedMs).toBe(40);
    await clock.until(locks.close());
  });

  it("see keys expire early when their clock jumps", async () => {
    await redlock.acquire("a");
    nodes[0]?.skew(20_000);
    expect(nodes.map((node) => node.keys().includes("a"))).toEqual([false, true, true]);
  });
});

describe("a process", () => {
  it("releases nothing when it is killed, and its lock ends with the lease", async () => {
    const { process, locks } = another();
    await locks.acquire("a", { autoExtend: true });
    await clock.advance(30_000);
    expect(await clock.until(redlock.tryAcquire("a"))).toBeNull();
    process.kill();
    const lock = await clock.until(redlock.acquire("a", { timeout: 60_000 }));
    expect(lock.remaining()).toBeGreaterThan(0);
    expect(clock.elapsedMs).toBeGreaterThan(30_000);
  });

  it("learns of the loss of its lock after a freeze", async () => {
    const { process, locks } = another();
    const lock = await locks.acquire("a", { autoExtend: true });
    const { signal } = lock;
    process.freeze(30_000);
    await clock.advance(20_000);
    expect(signal.aborted).toBe(false);
    expect(await clock.until(redlock.tryAcquire("a"))).not.toBeNull();
    await clock.advance(20_000);
    expect(signal.aborted).toBe(true);
    await clock.until(locks.close());
  });

  it("does not believe in a lock that expired during a suspend", async () => {
    const { process, locks } = another();
    const lock = await locks.acquire("a");
    process.suspend(30_000);
    await clock.advance(30_001);
    expect(lock.remaining()).toBe(0);
    await clock.until(locks.close());
  });
});
