import { errorOf, type FaultyProxy, type RedisServer, startProxy, until } from "@x/test-support";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { LockLostError, QuorumUnreachableError, type Redlock, type Vote } from "../src/index.ts";
import { NODE_KEYS } from "../src/rules/keys.ts";
import { everyNodeAnswers, openRedlock, shortTtl, startNodes } from "./support/nodes.ts";

/** Leases that survive a stall of a loaded machine. */
const lease = { ttl: 3_000, maxTtl: 3_000 } as const;

/** Leases that are extended after half of their time, and that end only if extensions end. */
const longer = { ttl: 9_000, maxTtl: 9_000 } as const;

/** Resolves when the lock has been extended, which makes it outlive its first lease. */
async function extended(redlock: Redlock): Promise<void> {
  await new Promise<void>((resolve) => {
    redlock.on("extended", () => resolve());
  });
}

async function ready(redlock: Redlock): Promise<void> {
  await everyNodeAnswers(redlock);
  await (await redlock.acquire("ready")).release();
}

describe("five nodes", () => {
  it.each([1, 2])("lock, wait, extend and release with %i of them killed", async (killed) => {
    const servers = await startNodes(5);
    const [a, b] = [openRedlock(servers, longer), openRedlock(servers, longer)];
    await ready(a);
    await Promise.all(servers.slice(0, killed).map((server) => server.kill()));
    const lock = await a.acquire("r", { autoExtend: true });
    const waiting = b.acquire("r", { timeout: 60_000 });
    await extended(a);
    expect(lock.isHeld()).toBe(true);
    expect(await b.tryAcquire("r")).toBeNull();
    expect(await lock.release()).toBe(true);
    const next = await waiting;
    expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
    expect(await next.release()).toBe(true);
  });

  it("keep a held lock when two nodes are killed, and report its loss when a third is killed", async () => {
    const servers = await startNodes(5);
    const redlock = openRedlock(servers, longer);
    const told: (readonly Vote[] | undefined)[] = [];
    redlock.on("extendFailed", ({ votes }) => told.push(votes));
    redlock.on("lost", ({ votes }) => told.push(votes));
    const lock = await redlock.acquire("under", { autoExtend: true });
    const { signal } = lock;
    await Promise.all(servers.slice(0, 2).map((server) => server.kill()));
    await extended(redlock);
    expect(lock.isHeld()).toBe(true);
    await servers[2]?.kill();
    await expect.poll(() => signal.aborted, { timeout: 60_000 }).toBe(true);
    expect(signal.reason).toMatchObject({ reason: "expired" });
    const { votes, message } = signal.reason as LockLostError;
    expect(votes.find(({ node }) => node === servers[2]?.path)).toMatchObject({ vote: "failed" });
    expect(message).toContain("the last extension failed: ");
    expect(message).toContain(`${servers[2]?.path}: `);
    expect(told.at(-1)).toBe(votes);
    expect(told.at(-2)).toEqual(votes);
    expect(await lock.release()).toBe(false);
  });

  it("are named with the reasons if there is no quorum", async () => {
    const servers = await startNodes(5);
    const redlock = openRedlock(servers, { ...lease, nodeTimeout: 200 });
    await ready(redlock);
    await Promise.all(servers.slice(0, 2).map((server) => server.kill()));
    servers[2]?.freeze();
    onTestFinished(() => servers[2]?.thaw());
    const error = await errorOf(redlock.acquire("none", { timeout: 600 }));
    expect(error).toBeInstanceOf(QuorumUnreachableError);
    const { votes, message, code } = error as QuorumUnreachableError;
    expect(code).toBe("QUORUM_UNREACHABLE");
    expect(message).toMatch(/lock "none": no quorum could be reached: \d of 5 nodes granted, 3 needed/);
    expect(votes.filter((vote) => vote.vote === "failed").length).toBeGreaterThanOrEqual(3);
    for (const vote of votes) if (vote.vote === "failed") expect(vote.error).not.toBe("");
    expect(structuredClone(votes)).toEqual(votes);
    // The keys that the two living nodes granted in vain are gone.
    for (const server of servers.slice(3)) await expect.poll(() => server.call("EXISTS", "none")).toBe(0);
  });

  it("answer with a quorum while two nodes hang, and never wait for these two", async () => {
    const servers = await startNodes(5);
    const redlock = openRedlock(servers, { ttl: 30_000, nodeTimeout: 20_000 });
    await ready(redlock);
    for (const server of servers.slice(0, 2)) server.freeze();
    onTestFinished(() => {
      for (const server of servers.slice(0, 2)) server.thaw();
    });
    // nodeTimeout is longer than the test: a single wait for a hung node would fail it.
    for (let round = 0; round < 50; round += 1) {
      const lock = await redlock.acquire("hung", { timeout: 5_000 });
      await lock.extend();
      expect(await lock.release()).toBe(true);
    }
  }, 15_000);

  it("leave no orphaned key on a node that hung while locks were acquired and released", async () => {
    const servers = await startNodes(3);
    const redlock = openRedlock(servers, { ttl: 30_000, nodeTimeout: 300 });
    await ready(redlock);
    servers[0]?.freeze();
    const resources = Array.from({ length: 20 }, (_, index) => `orphan:${index}`);
    for (const resource of resources) await redlock.using(resource, () => undefined);
    servers[0]?.thaw();
    await expect.poll(() => servers[0]?.call("EXISTS", ...resources), { timeout: 10_000 }).toBe(0);
  });

  it("leave no key of a lost lock on the minority that still has it", async () => {
    const servers = await startNodes(3);
    const redlock = openRedlock(servers);
    const states = async (): Promise<unknown[]> => (await redlock.inspect("minority")).nodes.map((node) => node.state);
    await expect.poll(states).toEqual(["free", "free", "free"]);
    const lock = await redlock.acquire("minority", { ttl: 60_000 });
    await expect.poll(states).toEqual(["held", "held", "held"]);
    const theirs = "0".repeat(40);
    for (const server of servers.slice(0, 2)) await server.call("SET", "minority", theirs, "PX", 60_000);
    expect(await errorOf(lock.extend())).toMatchObject({ code: "LOCK_LOST", reason: "taken" });
    await expect
      .poll(() => Promise.all(servers.map((server) => server.call("GET", "minority"))))
      .toEqual([theirs, theirs, null]);
  });

  it("release the lock that a killed node kept on its disk once the node is back", async () => {
    const servers = await startNodes(3, { persistence: true });
    const redlock = openRedlock(servers, { ttl: 30_000 });
    const states = async (): Promise<unknown[]> => (await redlock.inspect("kept")).nodes.map((node) => node.state);
    await expect.poll(states).toEqual(["free", "free", "free"]);
    const lock = await redlock.acquire("kept");
    await expect.poll(states).toEqual(["held", "held", "held"]);
    await servers[0]?.kill();
    expect(await lock.release()).toBe(true);
    await servers[0]?.start();
    await expect.poll(() => servers[0]?.call("EXISTS", "kept"), { timeout: 10_000 }).toBe(0);
  });
});

it("a node that refused an acquisition keeps no key of an extension that is released in the same turn", async () => {
  const servers = await startNodes(3);
  const slow = await startProxy({ path: servers[0]?.path ?? "" });
  onTestFinished(() => slow.stop());
  const redlock = openRedlock([slow.url, ...servers.slice(1)], lease);
  const states = async (): Promise<unknown[]> => (await redlock.inspect("same")).nodes.map(({ state }) => state);
  await expect.poll(states).toEqual(["free", "free", "free"]);
  await servers[2]?.call("SET", "same", "another's", "PX", 300);
  // The refusal arrives before the grant is decided.
  slow.delay(100);
  const lock = await redlock.acquire("same");
  slow.heal();
  await expect.poll(() => servers[2]?.call("EXISTS", "same")).toBe(0);
  const extended = errorOf(lock.extend());
  expect(await lock.release()).toBe(true);
  expect(await extended).toMatchObject({ reason: "released" });
  expect(await states()).toEqual(["free", "free", "free"]);
});

describe("nodes that forget", () => {
  it("cast no vote for maxTtl after a restart without persistence, after a flush, and when they are new", async () => {
    const servers = await startNodes(3);
    const redlock = openRedlock(servers, { ...shortTtl, quarantine: true });
    const early = await errorOf(redlock.acquire("young", { timeout: 0 }));
    expect(early).toBeInstanceOf(QuorumUnreachableError);
    const votes = (early as QuorumUnreachableError).votes.filter((vote) => vote.vote === "quarantined");
    expect(votes.length).toBeGreaterThanOrEqual(2);
    expect(votes[0]?.quarantineLeftMs).toBeGreaterThan(0);
    await (await redlock.acquire("young", { timeout: 10_000 })).release();

    await Promise.all([servers[0]?.restart(), servers[1]?.flush()]);
    await expect
      .poll(
        async () => (await redlock.inspect("young")).nodes.filter((node) => (node.quarantineLeftMs ?? 0) > 0).length,
      )
      .toBe(2);
    expect(await errorOf(redlock.tryAcquire("young"))).toBeInstanceOf(QuorumUnreachableError);
    const lock = await redlock.acquire("young", { timeout: 10_000 });
    expect(lock.isHeld()).toBe(true);
    await lock.release();
  });

  it("never grant a lock twice, whichever node of three is restarted under the first holder", async () => {
    const servers = await startNodes(3);
    const [a, b] = [
      openRedlock(servers, { ...shortTtl, quarantine: true }),
      openRedlock(servers, { ...shortTtl, quarantine: true }),
    ];
    await (await a.acquire("warm", { timeout: 10_000 })).release();
    const votes = await b.tryAcquire("warm");
    await votes?.release();
    // The holder has a quorum of exactly two, one of which forgets.
    await servers[2]?.kill();
    const lock = await a.acquire("forgotten");
    await servers[1]?.restart();
    await servers[2]?.start();
    let isHeldTwice = false;
    await until(async () => {
      const second = await b.tryAcquire("forgotten").catch(() => null);
      isHeldTwice ||= second !== null && lock.isHeld();
      return !lock.isHeld();
    });
    expect(isHeldTwice).toBe(false);
  });

  it("count maxTtl from when they are ready, not from the first request for a lock", async () => {
    const [server] = await startNodes(1);
    openRedlock([server as RedisServer], { ...shortTtl, quarantine: true });
    const isKnown = (): Promise<unknown> | undefined => server?.call("EXISTS", NODE_KEYS.hash);
    await expect.poll(isKnown).toBe(1);
    await server?.restart();
    await expect.poll(isKnown).toBe(1);
  });

  it("cast no vote for maxTtl, and no longer, after their clock was set back", async () => {
    const [server] = await startNodes(1);
    const redlock = openRedlock([server as RedisServer], { ...shortTtl, quarantine: true });
    await (await redlock.acquire("set back", { timeout: 10_000 })).release();
    await server?.call("HSET", NODE_KEYS.hash, "since", String((Date.now() + 3_600_000) * 1_000));
    const error = await errorOf(redlock.tryAcquire("set back"));
    expect((error as QuorumUnreachableError).votes).toMatchObject([{ vote: "quarantined" }]);
    expect((await redlock.acquire("set back", { timeout: 10_000 })).isHeld()).toBe(true);
  });

  it("vote immediately if the user declares that they never forget", async () => {
    const servers = await startNodes(3);
    const redlock = openRedlock(servers, { ...shortTtl, quarantine: false });
    expect((await redlock.tryAcquire("trusted"))?.isHeld()).toBe(true);
  });

  it("keep a held lock when all are restarted one after another, whichever client tries to acquire it", async () => {
    const servers = await startNodes(3);
    const options = { ttl: 3_000, maxTtl: 3_000, quarantine: true };
    const [holder, other, waiter] = [1, 2, 3].map(() => openRedlock(servers, options)) as [Redlock, Redlock, Redlock];
    const lock = await holder.acquire("rolling", { autoExtend: true, timeout: 15_000 });
    const enough = new AbortController();
    const waiting = errorOf(waiter.acquire("rolling", { timeout: 60_000, signal: enough.signal }));
    for (const server of servers) {
      await server.restart();
      // The node votes again, and has the lock's key again.
      const isBack = async (): Promise<boolean> => {
        expect(await other.tryAcquire("rolling").catch(() => null)).toBeNull();
        const { nodes } = await other.inspect("rolling");
        const seen = nodes.find(({ node }) => node === server.path);
        return seen?.quarantineLeftMs === 0 && (await server.call("GET", "rolling")) === lock.token;
      };
      await vi.waitUntil(isBack, { timeout: 20_000, interval: 100 });
      expect(lock.isHeld()).toBe(true);
    }
    enough.abort("enough");
    expect(await waiting).toBe("enough");
    const values = await Promise.all(servers.map((server) => server.call("GET", "rolling")));
    expect(values.filter((value) => value === lock.token).length).toBeGreaterThanOrEqual(2);
    expect(await lock.release()).toBe(true);
  });

  it("are not counted in the round that repairs them", async () => {
    const servers = await startNodes(3);
    const redlock = openRedlock(servers, { ...lease, quarantine: false });
    const lock = await redlock.acquire("gap");
    await Promise.all(servers.slice(0, 2).map((server) => server.call("DEL", "gap")));
    await servers[2]?.kill();
    const error = await errorOf(
      (async () => {
        // The first round repairs two nodes and counts neither; only a later one may succeed.
        const events: boolean[] = [];
        redlock.on("extended", () => events.push(true));
        redlock.on("extendFailed", () => events.push(false));
        await lock.extend();
        throw Object.assign(new Error("rounds"), { events });
      })(),
    );
    expect(error).toMatchObject({ events: [false, true] });
  });
});

describe("an unreliable network", () => {
  async function proxied(count: number, nodeTimeout = 300): Promise<{ proxies: FaultyProxy[]; redlock: Redlock }> {
    const servers = await startNodes(count);
    const proxies = await Promise.all(servers.map((server) => startProxy({ path: server.path })));
    onTestFinished(async () => {
      await Promise.all(proxies.map((proxy) => proxy[Symbol.asyncDispose]()));
    });
    const redlock = openRedlock(
      proxies.map((proxy) => proxy.url),
      { ...lease, nodeTimeout },
    );
    await ready(redlock);
    return { proxies, redlock };
  }

  it("costs nothing when it delays one node of three", async () => {
    const { proxies, redlock } = await proxied(3, 10_000);
    proxies[0]?.delay(60_000);
    for (let round = 0; round < 20; round += 1) {
      const lock = await redlock.acquire("slow", { timeout: 0 });
      expect(await lock.release()).toBe(true);
    }
  });

  it("never yields a lock when it delays every answer beyond the lease", async () => {
    const { proxies, redlock } = await proxied(1);
    proxies[0]?.delay(400);
    const error = await errorOf(redlock.acquire("late", { ttl: 300, timeout: 0 }));
    expect(error).toBeInstanceOf(QuorumUnreachableError);
    proxies[0]?.delay(0);
    await expect.poll(async () => (await redlock.inspect("late")).verdict, { timeout: 10_000 }).toBe("free");
  });

  it("does not prolong a held lock when it swallows every answer", async () => {
    const { proxies, redlock } = await proxied(3);
    const lock = await redlock.acquire("alone", { ttl: 1_000, autoExtend: true });
    const { signal } = lock;
    for (const proxy of proxies) proxy.blackhole();
    await expect.poll(() => signal.aborted, { timeout: 10_000 }).toBe(true);
    expect(signal.reason).toBeInstanceOf(LockLostError);
    expect(signal.reason).toMatchObject({ reason: "expired" });
    expect(await lock.release()).toBe(false);
  });

  it("prevents no acquisition after it has reset connections", async () => {
    const { proxies, redlock } = await proxied(3);
    for (let round = 0; round < 5; round += 1) {
      for (const proxy of proxies) proxy.drop();
      const lock = await redlock.acquire("resets", { timeout: 15_000 });
      expect(lock.isHeld()).toBe(true);
      await lock.release();
    }
  });
});
