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

/** A second process, with locks of its own on the same nodes. */
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

  it("let a lock expire when its time is over, and not before", async () => {
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

  it("have no vote for maxTtl after a restart without their data", async () => {
    for (const node of nodes.slice(1)) node.restart({ empty: true });
    await clock.advance(1_000);
    await expect(clock.until(redlock.acquire("a", { timeout: 0 }))).rejects.toThrow("quarantine");
    await clock.advance(62_000);
    expect(await clock.until(redlock.tryAcquire("a"))).not.toBeNull();
  });

  it("keep their data over a restart, and lose it with flush", async () => {
    await redlock.acquire("a", { ttl: 10_000 });
    nodes[0]?.restart();
    nodes[1]?.flush();
    await clock.advance(500);
    expect(nodes.map((node) => node.keys().includes("a"))).toEqual([true, false, true]);
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
  it("that is killed releases nothing, and its lock ends with the lease", async () => {
    const { process, locks } = another();
    await locks.acquire("a", { autoExtend: true });
    await clock.advance(30_000);
    expect(await clock.until(redlock.tryAcquire("a"))).toBeNull();
    process.kill();
    const lock = await clock.until(redlock.acquire("a", { timeout: 60_000 }));
    expect(lock.remaining()).toBeGreaterThan(0);
    expect(clock.elapsedMs).toBeGreaterThan(30_000);
  });

  it("that was frozen hears afterwards that its lock is lost", async () => {
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

  it("that was suspended does not believe in a lock that expired meanwhile", async () => {
    const { process, locks } = another();
    const lock = await locks.acquire("a");
    process.suspend(30_000);
    await clock.advance(30_001);
    expect(lock.remaining()).toBe(0);
    await clock.until(locks.close());
  });
});
