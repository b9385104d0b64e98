import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { errorOf, LINES, ManualClock, type RedisServer, startRedisNodes } from "@x/test-support";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import {
  LockHeldError,
  LockLostError,
  Redlock,
  RedlockClosedError,
  type RedlockEvents,
  systemClock,
} from "../src/index.ts";
import { protocolOf } from "../src/protocol.ts";
import { inLine, openRedlock, requestsOf, shortTtl, startNodes } from "./support/nodes.ts";

describe.each([1, 3, 5])("Redlock on %i nodes", (count) => {
  let servers: RedisServer[];
  beforeAll(async () => {
    servers = await startRedisNodes(count);
  });
  afterAll(async () => {
    await Promise.all(servers.map((server) => server.stop()));
  });

  it("excludes a second holder, in the same and in another client, until the release", async () => {
    const [a, b] = [openRedlock(servers), openRedlock(servers)];
    const lock = await a.acquire("r");
    expect(await a.tryAcquire("r")).toBeNull();
    expect(await b.tryAcquire("r")).toBeNull();
    expect(await lock.release()).toBe(true);
    const next = await b.tryAcquire("r");
    expect(next?.isHeld()).toBe(true);
    await next?.release();
  });

  it("writes plain string keys that are named like the resource and contain the token, at least on a quorum", async () => {
    const redlock = openRedlock(servers);
    const lock = await redlock.acquire("plain");
    const values = await Promise.all(servers.map((server) => server.call("GET", "plain")));
    expect(values.filter((value) => value === lock.token).length).toBeGreaterThanOrEqual(redlock.quorum);
    const { nodes } = await redlock.inspect("plain");
    expect(nodes.filter(({ fencingToken }) => fencingToken === lock.fencingToken).length).toBeGreaterThanOrEqual(
      redlock.quorum,
    );
    await lock.release();
    await expect
      .poll(() => Promise.all(servers.map((server) => server.call("EXISTS", "plain"))))
      .toEqual(servers.map(() => 0));
  });

  it("issues fencing tokens that increase from grant to grant, whichever client acquires the lock", async () => {
    const clients = [openRedlock(servers), openRedlock(servers), openRedlock(servers)];
    let last = 0;
    for (let round = 0; round < 30; round += 1) {
      const lock = await clients[round % 3]?.acquire("tokens");
      expect(lock?.fencingToken).toBeGreaterThan(last);
      last = lock?.fencingToken ?? 0;
      await lock?.release();
    }
  });

  it("trusts a lock for less than its lease", async () => {
    const lock = await openRedlock(servers).acquire("validity", { ttl: 10_000 });
    expect(lock.remaining()).toBeLessThanOrEqual(9_898);
    expect(lock.remaining()).toBeGreaterThan(0);
    await lock.release();
  });

  it("acquires several resources or none, and names the held one", async () => {
    const redlock = openRedlock(servers);
    const b = await redlock.acquire("b");
    const error = await errorOf(redlock.acquire(["a", "b", "c"], { timeout: 0 }));
    expect(error).toBeInstanceOf(LockHeldError);
    expect((error as LockHeldError).resource).toBe("b");
    expect((error as LockHeldError).resources).toEqual(["a", "b", "c"]);
    expect((await redlock.tryAcquire("a"))?.isHeld()).toBe(true);
    expect((await redlock.tryAcquire("c"))?.isHeld()).toBe(true);
    await b.release();
  });

  it("hands over all of several resources when the last resource is free", async () => {
    const [one, two] = [openRedlock(servers), openRedlock(servers)];
    const [x, y] = [await one.acquire("x"), await one.acquire("y")];
    const both = two.acquire(["x", "y"]);
    await inLine(one, "x", 1);
    await x.release();
    await inLine(one, "y", 1);
    await y.release();
    const lock = await both;
    expect(await one.tryAcquire("x")).toBeNull();
    expect(await one.tryAcquire("y")).toBeNull();
    expect(await lock.release()).toBe(true);
  });

  it("extends the same handle and keeps its fencing token", async () => {
    const redlock = openRedlock(servers);
    const lock = await redlock.acquire("extended", { ttl: 3_000 });
    const token = lock.fencingToken;
    await lock.extend(60_000);
    expect(lock.remaining()).toBeGreaterThan(3_000);
    expect(lock.fencingToken).toBe(token);
    expect((await redlock.inspect("extended")).remainingMs).toBeGreaterThan(3_000);
    expect(await redlock.tryAcquire("extended")).toBeNull();
    expect(await lock.release()).toBe(true);
  });

  it("never shortens the lease by an extension", async () => {
    const redlock = openRedlock(servers);
    const lock = await redlock.acquire("long", { ttl: 20_000 });
    await lock.extend(500);
    expect(lock.remaining()).toBeGreaterThan(10_000);
    expect((await redlock.inspect("long")).remainingMs).toBeGreaterThan(10_000);
    await lock.release();
  });

  it("keeps a lock alive over several leases while the routine runs, and returns its result", async () => {
    const [redlock, other] = [openRedlock(servers), openRedlock(servers)];
    const extensions: RedlockEvents["extended"][] = [];
    redlock.on("extended", (message) => extensions.push(message));
    const result = await redlock.using(
      "kept",
      async (lock) => {
        // An extension after each third of the lease: that is two leases.
        await expect.poll(() => extensions.length, { timeout: 30_000 }).toBeGreaterThanOrEqual(6);
        expect(await other.tryAcquire("kept")).toBeNull();
        expect(lock.signal.aborted).toBe(false);
        return lock.isHeld();
      },
      { ttl: 2_000 },
    );
    expect(result).toBe(true);
    expect((await other.tryAcquire("kept"))?.isHeld()).toBe(true);
  });

  it("settles as the routine does and releases, if the routine rejects and if the lock was lost", async () => {
    const redlock = openRedlock(servers);
    const thrown = new Error("the routine's own");
    expect(await errorOf(redlock.using("own", () => Promise.reject(thrown)))).toBe(thrown);
    const result = await redlock.using("own", async (lock) => {
      await Promise.all(servers.map((server) => server.call("DEL", "own")));
      return lock.fencingToken;
    });
    expect(result).toBeGreaterThan(0);
  });

  it("notifies the holder when a lease without extension expires", async () => {
    const redlock = openRedlock(servers);
    const lost: RedlockEvents["lost"][] = [];
    redlock.on("lost", (message) => lost.push(message));
    const lock = await redlock.acquire("expires", { ttl: 100 });
    const { signal } = lock;
    await expect.poll(() => signal.aborted).toBe(true);
    expect(signal.reason).toBeInstanceOf(LockLostError);
    expect(signal.reason).toMatchObject({ code: "LOCK_LOST", reason: "expired", fencingToken: lock.fencingToken });
    expect(lost).toMatchObject([{ resources: ["expires"], reason: "expired" }]);
    expect(lock.isHeld()).toBe(false);
    expect(() => lock.assertHeld()).toThrow(LockLostError);
    expect(await errorOf(lock.extend())).toBe(signal.reason);
    expect(await lock.release()).toBe(false);
  });

  it("detects an expired lease in the first check after a blocked event loop, before any timer has run", async () => {
    let blockedMs = 0;
    const clock = { ...systemClock, monotonicMs: (): number => systemClock.monotonicMs() + blockedMs };
    const lock = await openRedlock(servers, { clock }).acquire("blocked", { ttl: 20_000 });
    const { signal } = lock;
    blockedMs = 20_000;
    expect(signal.aborted).toBe(false);
    expect(lock.isHeld()).toBe(false);
    expect(signal.aborted).toBe(true);
  });

  it.each(["before", "after"])("reports the loss if the signal is first read %s the release", async (when) => {
    const clock = new ManualClock();
    const lock = await openRedlock(servers, { clock }).acquire(`lost ${when}`, { ttl: 1_000 });
    await clock.advance(1_000);
    if (when === "before") expect(lock.signal.aborted).toBe(true);
    expect(await lock.release()).toBe(false);
    expect(lock.signal.aborted).toBe(true);
    expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", reason: "expired" });
    expect(await lock.release()).toBe(false);
  });

  it("ends an auto-extended lock at maxHold", async () => {
    const redlock = openRedlock(servers);
    const lock = await redlock.acquire("capped", { ttl: 3_000, autoExtend: true, maxHold: 3_500 });
    const { signal } = lock;
    await expect.poll(() => signal.aborted, { timeout: 10_000 }).toBe(true);
    expect(signal.reason).toMatchObject({ reason: "max-hold" });
    await expect.poll(async () => (await redlock.tryAcquire("capped"))?.isHeld()).toBe(true);
  });

  it("leaves no key of a lock that ended at maxHold, long before its lease ends", async () => {
    const redlock = openRedlock(servers);
    const { signal } = await redlock.acquire("left over", { ttl: 60_000, maxHold: 300 });
    await expect.poll(() => signal.aborted).toBe(true);
    expect(signal.reason).toMatchObject({ reason: "max-hold" });
    await expect
      .poll(() => Promise.all(servers.map((server) => server.call("EXISTS", "left over"))))
      .toEqual(servers.map(() => 0));
  });

  it("reports the loss of an auto-extended lock to forceRelease, and issues a greater token for the next lock", async () => {
    const [holder, operator] = [openRedlock(servers), openRedlock(servers)];
    const lock = await holder.acquire("forced", { ttl: 3_000, autoExtend: true });
    expect(await operator.forceRelease("forced")).toBe(true);
    const next = await operator.acquire("forced");
    expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
    const { signal } = lock;
    await expect.poll(() => signal.aborted).toBe(true);
    expect(signal.reason).toMatchObject({ reason: "forced" });
    expect(next.isHeld()).toBe(true);
    expect(await operator.forceRelease("nobody's")).toBe(false);
  });

  it("notifies a holder of its own process immediately when forceRelease released its lock", async () => {
    const redlock = openRedlock(servers);
    const lock = await redlock.acquire("forced here", { ttl: 60_000 });
    const { signal } = lock;
    expect(await redlock.forceRelease("forced here")).toBe(true);
    expect([signal.aborted, lock.isHeld()]).toEqual([true, false]);
    expect(signal.reason).toMatchObject({ code: "LOCK_LOST", reason: "forced", fencingToken: lock.fencingToken });
  });

  it("keeps a lock of its own process if forceRelease found the lock on no node", async () => {
    const redlock = openRedlock(servers, { nodeTimeout: 300 });
    const lock = await redlock.acquire("untouched", { ttl: 20_000 });
    for (const server of servers) server.freeze();
    const isForced = await redlock.forceRelease("untouched");
    for (const server of servers) server.thaw();
    expect([isForced, lock.isHeld()]).toEqual([false, true]);
  });

  it("neither acquires nor deletes a key without expiry, which may be foreign data, and reports it", async () => {
    const redlock = openRedlock(servers);
    for (const server of servers) await server.call("SET", "settings", "hello");
    const error = await errorOf(redlock.acquire("settings", { timeout: 0 }));
    expect(String(error)).toContain('lock "settings" is held by a key without expiry');
    expect(await redlock.forceRelease("settings")).toBe(false);
    for (const server of servers) expect(await server.call("GET", "settings")).toBe("hello");
  });

  it("issues increasing tokens even after a lock that was held for longer than nodes remember tokens", async () => {
    const ofOneSecond = { ...shortTtl, ttl: 1_000, maxTtl: 1_000 };
    const clock = { ...systemClock, wallMs: (): number => systemClock.wallMs() - 60_000 };
    const [redlock, behind] = [openRedlock(servers, ofOneSecond), openRedlock(servers, { ...ofOneSecond, clock })];
    const lock = await redlock.acquire("long", { autoExtend: true });
    // Two and a half leases of the nodes' own time, by which the nodes remember tokens.
    await delay(2_500);
    await lock.release();
    expect((await behind.acquire("long")).fencingToken).toBeGreaterThan(lock.fencingToken);
  });

  it("repairs a key that was deleted manually, within the lease", async () => {
    const [holder, other] = [openRedlock(servers), openRedlock(servers)];
    const lock = await holder.acquire("repaired", { ttl: 3_000, autoExtend: true });
    await servers[0]?.call("DEL", "repaired");
    await expect.poll(() => servers[0]?.call("GET", "repaired")).toBe(lock.token);
    expect(await other.tryAcquire("repaired")).toBeNull();
    expect(lock.isHeld()).toBe(true);
    expect(await lock.release()).toBe(true);
  });

  it("releases the lock at the end of its await using block", async () => {
    const redlock = openRedlock(servers);
    {
      await using lock = await redlock.acquire("scoped");
      expect(lock.isHeld()).toBe(true);
    }
    expect((await redlock.tryAcquire("scoped"))?.isHeld()).toBe(true);
  });

  it("does not abort the signal because of a release, and answers every later call truthfully", async () => {
    const lock = await openRedlock(servers).acquire("released");
    const { signal } = lock;
    const [first, second] = await Promise.all([lock.release(), lock.release()]);
    expect([first, second]).toEqual([true, true]);
    expect(signal.aborted).toBe(false);
    expect(lock.remaining()).toBe(0);
    expect(() => lock.assertHeld()).toThrow(/released/);
    expect(await errorOf(lock.extend())).toMatchObject({ code: "LOCK_LOST", reason: "released" });
  });

  it("asserts the time that a side effect needs, and names the remaining time", async () => {
    const lock = await openRedlock(servers).acquire("needs", { ttl: 9_000 });
    expect(() => lock.assertHeld(500)).not.toThrow();
    const error = await errorOf((async () => lock.assertHeld(60_000))());
    expect(error).toBeInstanceOf(LockLostError);
    expect(error).toMatchObject({ code: "LOCK_LOST", reason: "too-short", fencingToken: lock.fencingToken });
    expect((error as Error).message).toMatch(/^lock "needs" has \d{4} ms left, 60000 needed$/);
    expect(lock.signal.aborted).toBe(false);
    expect(lock.isHeld()).toBe(true);
    expect(() => lock.assertHeld(-1)).toThrow("minRemaining must be a number >= 0 (ms), got -1");
    expect(() => lock.assertHeld(-1)).toThrow(RangeError);
    expect(() => lock.assertHeld("1" as never)).toThrow(TypeError);
    await lock.release();
  });

  it.each(["acquire", "waitForTurn"] as const)(
    "treats a key of another type as held: %s waits for its end without busy polling",
    async (way) => {
      const everywhere = (...command: [string, ...string[]]): Promise<unknown> =>
        Promise.all(servers.map((server) => server.call(...command)));
      const redlock = openRedlock(servers);
      await everywhere("ZADD", "data", "1", "symfony");
      expect(await redlock.tryAcquire("data")).toBeNull();
      const error = await errorOf(redlock.acquire(["free", "data"], { timeout: 0 }));
      expect(error).toBeInstanceOf(LockHeldError);
      expect(error).toMatchObject({ resource: "data", attempts: 1 });
      expect((error as LockHeldError).votes[0]).toMatchObject({ vote: "held", holderTtlMs: -1 });
      expect((error as Error).message).toMatch(/^lock "data" is held by a key of another type: .*WRONGTYPE/);
      expect(await redlock.inspect("data")).toMatchObject({
        verdict: "held",
        remainingMs: Number.POSITIVE_INFINITY,
        nodes: servers.map(() => ({ state: "not-a-lock", ttlMs: -1 })),
      });
      expect(await errorOf(redlock.acquire("data", { timeout: 500 }))).toBeInstanceOf(LockHeldError);
      await expect.poll(() => everywhere("EXISTS", LINES)).toEqual(servers.map(() => 0));
      await everywhere("PEXPIRE", "data", "700");
      expect(await redlock.forceRelease("data")).toBe(false);
      expect(await servers[0]?.call("ZCARD", "data")).toBe(1);
      await everywhere("CONFIG", "RESETSTAT");
      if (way === "waitForTurn") await protocolOf(redlock).waitForTurn("data");
      const lock = await redlock.acquire("data");
      expect(lock.isHeld()).toBe(true);
      expect(await requestsOf(servers[0])).toBeLessThan(20);
      await redlock.close();
      await everywhere("DEL", "data");
    },
  );

  it("loses a lock that a key of another type replaced, and leaves that key unchanged", async () => {
    const redlock = openRedlock(servers);
    const [extended, released] = [await redlock.acquire("retyped"), await redlock.acquire("retyped too")];
    // In one step: a quorum has granted the locks, so a node may still get their keys.
    const replace = "redis.call('DEL', KEYS[1]) redis.call('RPUSH', KEYS[1], 'x')";
    for (const key of ["retyped", "retyped too"])
      await Promise.all(servers.map((server) => server.call("EVAL", replace, "1", key)));
    expect(await errorOf(extended.extend())).toMatchObject({ reason: "taken" });
    expect(await released.release()).toBe(false);
    for (const key of ["retyped", "retyped too"]) expect(await servers[0]?.call("LLEN", key)).toBe(1);
    await redlock.close();
  });

  it("ends its locks and its waiters when it is closed", async () => {
    const [closing, other] = [openRedlock(servers), openRedlock(servers)];
    const lock = await closing.acquire("closing");
    const foreign = await other.acquire("theirs");
    const waiting = errorOf(closing.acquire("theirs"));
    await inLine(other, "theirs", 1);
    await closing.close();
    expect(lock.isHeld()).toBe(false);
    expect(await waiting).toBeInstanceOf(RedlockClosedError);
    expect(await errorOf(closing.acquire("closing"))).toBeInstanceOf(RedlockClosedError);
    expect((await other.tryAcquire("closing"))?.isHeld()).toBe(true);
    await foreign.release();
    await expect.poll(async () => (await other.tryAcquire("theirs"))?.isHeld()).toBe(true);
  });

  it("notifies the holders of its locks when it is closed, before another client can acquire them", async () => {
    const [closing, other] = [openRedlock(servers), openRedlock(servers)];
    const using = closing.using("used", async ({ signal }) => {
      await once(signal, "abort");
      return signal.reason as unknown;
    });
    const held = await closing.acquire("held");
    const left = await closing.acquire("left alone", { ttl: 5_000 });
    const signals = [held.signal, left.signal];
    protocolOf(left).leave();
    const wasTold = other.acquire("held").then(() => signals[0]?.aborted);
    await inLine(closing, "held", 1);
    await closing.close();
    expect(await wasTold).toBe(true);
    const closed = { code: "LOCK_LOST", reason: "closed" };
    expect(await using).toMatchObject({ ...closed, resources: ["used"] });
    expect(held.signal.reason).toMatchObject({ ...closed, resources: ["held"], fencingToken: held.fencingToken });
    expect(() => held.assertHeld()).toThrow(held.signal.reason as Error);
    expect(await errorOf(held.extend())).toBe(held.signal.reason);
    expect(await held.release()).toBe(true);
    expect([left.isHeld(), signals[1]?.aborted]).toEqual([true, false]);
  });

  it("neither extends nor releases a lock that was left to its lease, even when closed", async () => {
    const [closing, other] = [openRedlock(servers), openRedlock(servers)];
    const lock = await closing.acquire("left", { ttl: 3_000, autoExtend: true });
    protocolOf(lock).leave();
    await closing.close();
    expect(await other.tryAcquire("left")).toBeNull();
    expect(lock.isHeld()).toBe(true);
    const next = await other.acquire("left");
    expect(lock.isHeld()).toBe(false);
    await next.release();
  });

  it("reports the end of a lock that was left to its lease, and still releases it on request", async () => {
    const redlock = openRedlock(servers);
    const confirmed: boolean[] = [];
    redlock.on("released", (message) => confirmed.push(message.confirmed));
    const lock = await redlock.acquire("left", { ttl: 300 });
    protocolOf(lock).leave();
    await expect.poll(() => lock.signal.aborted).toBe(true);
    expect(await redlock.acquire("left").then((next) => next.release())).toBe(true);
    const again = await redlock.acquire("left");
    protocolOf(again).leave();
    expect(await again.release()).toBe(true);
    expect(confirmed).toEqual([false, true, true]);
  });

  it("grants no lock and leaves neither key nor place in line when it is closed during calls", async () => {
    const [closing, other] = [openRedlock(servers), openRedlock(servers)];
    await Promise.all([closing.acquire("ready"), other.acquire("taken")]);
    const waiting = errorOf(closing.acquire("taken"));
    const turn = errorOf(protocolOf(closing).waitForTurn("taken"));
    await expect
      .poll(async () => (await other.inspect("taken")).nodes.filter((node) => node.waiters === 2).length)
      .toBeGreaterThanOrEqual(other.quorum);
    const [once, cancelling] = [errorOf(closing.acquire("midway")), new AbortController()];
    const cancelled = errorOf(closing.acquire("cancelled", { signal: cancelling.signal }));
    await new Promise(setImmediate);
    cancelling.abort();
    await closing.close();
    expect(await once).toBeInstanceOf(RedlockClosedError);
    expect(await waiting).toBeInstanceOf(RedlockClosedError);
    expect(await turn).toBeInstanceOf(RedlockClosedError);
    await cancelled;
    expect(await other.inspect("midway")).toMatchObject({ verdict: "free" });
    expect(await other.inspect("cancelled")).toMatchObject({ verdict: "free" });
    for (const node of (await other.inspect("taken")).nodes) expect(node).toMatchObject({ waiters: 0 });
  });

  it("rejects an extension that is overtaken by a release", async () => {
    const lock = await openRedlock(servers).acquire("overtaken");
    const extended = errorOf(lock.extend());
    expect(await lock.release()).toBe(true);
    expect(await extended).toMatchObject({ reason: "released" });
  });

  it("continues when a listener for messages throws, and warns of the error", async () => {
    const [redlock, warnings] = [openRedlock(servers), [] as unknown[]];
    const onWarning = (warning: Error): void => void warnings.push(warning.message);
    process.on("warning", onWarning);
    onTestFinished(() => void process.off("warning", onWarning));
    let calls = 0;
    await protocolOf(redlock).subscribe("throwing", () => {
      calls += 1;
      throw new Error("of the listener");
    });
    for (const told of [1, 2]) {
      // A quorum has subscribed; the others may follow later.
      await Promise.all(servers.map((server) => server.call("PUBLISH", "throwing", String(told))));
      await expect.poll(() => calls).toBeGreaterThanOrEqual(told * redlock.quorum);
    }
    await expect.poll(() => warnings).toContain("of the listener");
    expect(await redlock.tryAcquire("after")).not.toBeNull();
  });

  it("does not fail other operations in the same request when one operation fails", async () => {
    const redlock = openRedlock(servers);
    const [list, good] = [await redlock.acquire("list"), await redlock.acquire("good")];
    await Promise.all(servers.map((server) => server.call("DEL", "list")));
    await Promise.all(servers.map((server) => server.call("RPUSH", "{list}:fence", "x")));
    const extensions = await Promise.allSettled([list.extend(), good.extend()]);
    expect(extensions.map(({ status }) => status)).toEqual(["rejected", "fulfilled"]);
  });

  it("reads the complete state of a resource", async () => {
    const [a, b] = [openRedlock(servers), openRedlock(servers)];
    expect(await a.inspect("seen")).toMatchObject({ verdict: "free", remainingMs: 0 });
    const lock = await a.acquire("seen", { ttl: 60_000 });
    const waiting = b.acquire("seen");
    await expect
      .poll(async () => (await a.inspect("seen")).nodes.filter((node) => node.waiters === 1).length)
      .toBe(count);
    const seen = await a.inspect("seen");
    expect(seen).toMatchObject({ resource: "seen", verdict: "held", fencingToken: lock.fencingToken });
    expect(seen.remainingMs).toBeGreaterThan(30_000);
    await lock.release();
    await (await waiting).release();
  });
});

describe("a client whose clock is wrong", () => {
  it("notifies the holder soon after a suspend of its machine, which no monotonic clock or timer notices", async () => {
    const [server] = await startNodes(1);
    let suspendedMs = 0;
    const clock = { ...systemClock, wallMs: () => systemClock.wallMs() + suspendedMs };
    const { signal } = await openRedlock([server as RedisServer], { clock }).acquire("r", { ttl: 60_000 });
    suspendedMs = 3_600_000;
    await expect.poll(() => signal.aborted).toBe(true);
    expect(signal.reason).toMatchObject({ reason: "expired" });
  });

  it.each([1, 2, 3, 4, 5])(
    "acquires locks on %i nodes immediately, fast or slow, with increasing tokens",
    async (count) => {
      const servers = await startNodes(count);
      const clients = [0, 600_000, -600_000].map((skewMs) =>
        openRedlock(servers, { clock: { ...systemClock, wallMs: () => systemClock.wallMs() + skewMs } }),
      );
      let last = 0;
      for (let round = 0; round < 9; round += 1) {
        const lock = await clients[round % 3]?.tryAcquire("skewed");
        expect(lock?.fencingToken).toBeGreaterThan(last);
        last = lock?.fencingToken ?? 0;
        expect(Math.abs(last / 1_000 - Date.now())).toBeLessThan(300_000);
        await lock?.release();
      }
    },
  );
});

describe("Redlock", () => {
  it.each([
    [[], RangeError],
    [[undefined], TypeError],
    [["not a url"], TypeError],
    [[{}], TypeError],
    [[7], TypeError],
  ])("refuses the nodes %j before a connection is opened", (nodes, kind) => {
    expect(() => new Redlock(nodes as never)).toThrow(kind);
  });

  it("refuses invalid arguments before a command is sent", async () => {
    const redlock = openRedlock(["redis://127.0.0.1:1"], shortTtl);
    expect(await errorOf(redlock.acquire(""))).toBeInstanceOf(RangeError);
    expect(await errorOf(redlock.acquire(["a", "a"]))).toBeInstanceOf(RangeError);
    expect(await errorOf(redlock.acquire(7 as never))).toBeInstanceOf(TypeError);
    expect(await errorOf(redlock.acquire("a", { ttl: 9_999 }))).toBeInstanceOf(RangeError);
    expect(await errorOf(redlock.tryAcquire("a", { ttl: "1" as never }))).toBeInstanceOf(TypeError);
    expect(await errorOf(redlock.using("a", "no function" as never))).toBeInstanceOf(TypeError);
    expect(() => protocolOf(redlock).keys.checkResource("{a}:fence")).toThrow(RangeError);
    expect(() => redlock.on("nothing" as never, () => undefined)).toThrow(RangeError);
    expect(() => redlock.on("lost", 7 as never)).toThrow(TypeError);
  });

  it("rejects with the caller's own reason when its signal is already aborted", async () => {
    const redlock = openRedlock(["redis://127.0.0.1:1"]);
    const reason = new Error("changed my mind");
    expect(await errorOf(redlock.acquire("a", { signal: AbortSignal.abort(reason) }))).toBe(reason);
  });
});
