import { setTimeout as delay, setImmediate as immediate } from "node:timers/promises";
import {
  errorOf,
  lineOf,
  ManualClock,
  memberOf,
  putInLine,
  type RedisServer,
  spawnChild,
  startProxy,
  startRedisNodes,
  waitersOf,
} from "@x/test-support";
import { createClient } from "redis";
import { createClient as createClient5 } from "redis5";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import {
  LockHeldError,
  type LockNode,
  type NodeSource,
  QuorumUnreachableError,
  type Redlock,
  type RedlockEvents,
  systemClock,
} from "../src/index.ts";
import { IoredisNode } from "../src/nodes/ioredis.ts";
import { protocolOf } from "../src/protocol.ts";
import { NODE_KEYS, slotOf } from "../src/rules/keys.ts";
import { clients } from "./support/clients.ts";
import { everyNodeAnswers, inLine, openRedlock, pass, requestsOf, startNodes } from "./support/nodes.ts";
import { startSubscriberProxy } from "./support/subscriber-proxy.ts";

describe.each([1, 3])("waiting on %i nodes", (count) => {
  let servers: RedisServer[];
  beforeAll(async () => {
    servers = await startRedisNodes(count);
  });
  afterAll(async () => {
    await Promise.all(servers.map((server) => server.stop()));
  });

  it("serves waiters of several clients in the order of their arrival", async () => {
    const clients = [openRedlock(servers), openRedlock(servers), openRedlock(servers)];
    const holder = await clients[0]?.acquire("order", { ttl: 20_000 });
    const served: number[] = [];
    const waiters: Promise<void>[] = [];
    for (let index = 0; index < 12; index += 1) {
      const waiting = clients[index % 3]?.acquire("order", { timeout: 20_000, ttl: 20_000 });
      waiters.push(
        (async () => {
          const lock = await waiting;
          served.push(index);
          await lock?.release();
        })(),
      );
      // At this distance no client mistakes the order because of its error about the node's clock.
      await delay(20);
    }
    await holder?.release();
    await Promise.all(waiters);
    expect(served).toEqual(Array.from({ length: 12 }, (_, index) => index));
  });

  it("hands the lock over in a constant number of requests, however many clients wait", async () => {
    const clients = [openRedlock(servers), openRedlock(servers)];
    const holder = await clients[0]?.acquire("cost", { ttl: 30_000 });
    const waiters = Array.from({ length: 40 }, async (_, index) => {
      const lock = await clients[index % 2]?.acquire("cost", { timeout: 30_000, ttl: 30_000 });
      await lock?.release();
    });
    // Waiters of the holder's process wait in the process; waiters of the other process wait behind its first.
    await inLine(clients[0] as Redlock, "cost", 1);
    const before = await requestsOf(servers[0]);
    await holder?.release();
    await Promise.all(waiters);
    const spent = (await requestsOf(servers[0])) - before;
    expect(spent / 40).toBeLessThanOrEqual(3);
  });

  it("sends no requests during the wait", async () => {
    const clock = new ManualClock();
    const [holding, waiting] = [openRedlock(servers), openRedlock(servers, { clock })];
    const lock = await holding.acquire("quiet", { ttl: 30_000 });
    const next = waiting.acquire("quiet", { timeout: 20_000 });
    await inLine(holding, "quiet", 1);
    for (const server of servers) await expect.poll(() => server.call("PUBSUB", "CHANNELS", "x:*")).toHaveLength(1);
    /** Returns the number of requests that are sent by timers in `steps` steps of time. */
    const sentIn = async (steps: number): Promise<number> => {
      const before = await requestsOf(servers[0]);
      await pass(waiting, clock, { steps, stepMs: 100 });
      return (await requestsOf(servers[0])) - before - steps;
    };
    await expect.poll(() => sentIn(1)).toBe(0);
    expect(await sentIn(50)).toBe(0);
    await lock.release();
    await (await next).release();
  });

  it("wakes a waiter at the release, long before the lease would end", async () => {
    const [holding, waiting] = [openRedlock(servers), openRedlock(servers)];
    const lock = await holding.acquire("woken", { ttl: 60_000 });
    const next = waiting.acquire("woken", { timeout: 30_000 });
    await inLine(holding, "woken", 1);
    await lock.release();
    expect((await next).isHeld()).toBe(true);
  });

  it("ends a wait at its timeout with the votes, and removes the waiter", async () => {
    const [holding, waiting] = [openRedlock(servers), openRedlock(servers)];
    const lock = await holding.acquire("timeout", { ttl: 30_000 });
    const error = await errorOf(waiting.acquire("timeout", { timeout: 300 }));
    expect(error).toBeInstanceOf(LockHeldError);
    const { votes, resource, code } = error as LockHeldError;
    expect({ resource, code }).toEqual({ resource: "timeout", code: "LOCK_HELD" });
    expect(votes.length).toBeGreaterThanOrEqual(holding.quorum);
    // The holder has a quorum of the nodes, not necessarily the first.
    const held = votes.find(({ vote }) => vote === "held");
    expect(held).toMatchObject({ resource: "timeout" });
    expect(held?.holderTtlMs).toBeGreaterThan(10_000);
    expect(structuredClone(votes)).toEqual(votes);
    await expect
      .poll(async () => (await holding.inspect("timeout")).nodes.every((node) => node.waiters === 0))
      .toBe(true);
    await lock.release();
  });

  it("ends a wait immediately when the caller cancels, and leaves neither key nor place in line", async () => {
    const [holding, waiting] = [openRedlock(servers), openRedlock(servers)];
    const lock = await holding.acquire("cancelled", { ttl: 30_000 });
    const controller = new AbortController();
    const cancelled = errorOf(waiting.acquire("cancelled", { signal: controller.signal, timeout: 20_000 }));
    await inLine(holding, "cancelled", 1);
    const reason = new Error("no longer needed");
    controller.abort(reason);
    expect(await cancelled).toBe(reason);
    await lock.release();
    await expect.poll(async () => (await holding.inspect("cancelled")).verdict).toBe("free");
    const seen = await holding.inspect("cancelled");
    expect(seen.nodes.map((node) => node.waiters)).toEqual(servers.map(() => 0));
  });

  it("leaves no key behind when the caller cancels at the very moment of the grant", async () => {
    const redlock = openRedlock(servers);
    for (let round = 0; round < 50; round += 1) {
      const controller = new AbortController();
      const outcome = redlock.acquire("moment", { signal: controller.signal, ttl: 30_000 }).then(
        async (lock) => await lock.release(),
        () => undefined,
      );
      if (round % 2 === 0) setImmediate(() => controller.abort());
      else queueMicrotask(() => controller.abort());
      await outcome;
    }
    await expect.poll(async () => (await redlock.inspect("moment")).verdict).toBe("free");
  });

  it("ends every call immediately when its caller cancels, and releases late grants before it closes", async () => {
    const granted = (): Promise<unknown[]> =>
      Promise.all(
        servers.map((server) =>
          count === 1
            ? server.call("GET", NODE_KEYS.lastNumber)
            : server.call("HGET", NODE_KEYS.hash, String(slotOf("late"))),
        ),
      );
    for (const timeout of [0, 5_000]) {
      // Only the cancellation can end the call: no node answers, and no timeout ends.
      const redlock = openRedlock(servers, { nodeTimeout: 60_000 });
      await everyNodeAnswers(redlock);
      await (await redlock.acquire("warm")).release();
      const controller = new AbortController();
      const before = await granted();
      for (const server of servers) server.freeze();
      const cancelled = errorOf(redlock.acquire("late", { signal: controller.signal, timeout }));
      // Requests are sent within a turn of the event loop, so the frozen nodes have them.
      for (let turn = 0; turn < 5; turn += 1) await immediate();
      controller.abort(new Error("cancelled"));
      expect(await cancelled).toBe(controller.signal.reason);
      const closed = redlock.close();
      for (const server of servers) server.thaw();
      await closed;
      const after = await granted();
      for (const [index, token] of after.entries()) expect(Number(token)).toBeGreaterThan(Number(before[index]));
      expect(await Promise.all(servers.map((server) => server.call("EXISTS", "late")))).toEqual(servers.map(() => 0));
    }
  });

  it("does not let newcomers or attempts without a wait overtake a waiter", async () => {
    const [holding, waiting, newcomer] = [openRedlock(servers), openRedlock(servers), openRedlock(servers)];
    for (let round = 0; round < 10; round += 1) {
      const lock = await holding.acquire("queue", { ttl: 20_000 });
      const next = waiting.acquire("queue", { timeout: 20_000, ttl: 20_000 });
      await inLine(holding, "queue", 1);
      await lock.release();
      expect(await newcomer.tryAcquire("queue")).toBeNull();
      await (await next).release();
    }
  });

  it("skips waiters whose process was killed", async () => {
    const redlock = openRedlock(servers);
    const lock = await redlock.acquire("dead", { ttl: 60_000 });
    await using child = spawnChild(new URL("./children/waiter.ts", import.meta.url), {
      args: ["dead", ...servers.map((server) => server.path)],
    });
    await expect
      .poll(async () => (await redlock.inspect("dead")).nodes.filter((node) => node.waiters === 3).length, {
        timeout: 20_000,
      })
      .toBeGreaterThanOrEqual(redlock.quorum);
    const behind = redlock.acquire("dead", { timeout: 30_000 });
    await child.kill();
    const events: RedlockEvents["acquired"][] = [];
    redlock.on("acquired", (message) => events.push(message));
    await lock.release();
    expect((await behind).isHeld()).toBe(true);
    expect(events).toHaveLength(1);
  });

  it("skips a frozen waiter when its reservation expires", async () => {
    const redlock = openRedlock(servers);
    const other = openRedlock(servers);
    const lock = await redlock.acquire("frozen", { ttl: 60_000 });
    await using child = spawnChild(new URL("./children/waiter.ts", import.meta.url), {
      args: ["frozen", ...servers.map((server) => server.path)],
    });
    await expect
      .poll(async () => (await redlock.inspect("frozen")).nodes.filter((node) => node.waiters === 3).length, {
        timeout: 20_000,
      })
      .toBeGreaterThanOrEqual(redlock.quorum);
    const behind = other.acquire("frozen", { timeout: 30_000 });
    await expect
      .poll(async () => (await redlock.inspect("frozen")).nodes.filter((node) => node.waiters === 4).length, {
        timeout: 20_000,
      })
      .toBeGreaterThanOrEqual(redlock.quorum);
    child.freeze();
    await lock.release();
    expect((await behind).isHeld()).toBe(true);
  });

  it("returns the turns of abandoned waiters whose process is alive", async () => {
    const [holding, waiting] = [openRedlock(servers), openRedlock(servers)];
    for (const redlock of [holding, waiting]) {
      await expect
        .poll(async () => (await redlock.inspect("gone")).nodes.map((node) => node.state))
        .toEqual(servers.map(() => "free"));
    }
    const lock = await holding.acquire("gone", { ttl: 60_000 });
    const next = waiting.acquire("gone", { timeout: 20_000 });
    for (const server of servers) {
      await expect.poll(() => waitersOf(server, "gone")).toBe(1);
      const [member = ""] = await lineOf(server, "gone");
      const channel = member.slice(17, member.indexOf("#"));
      const gone = Array.from({ length: 10 }, (_, index) => memberOf(index + 1, `${channel}#${index + 1_000}`));
      await putInLine(server, "gone", gone);
    }
    await lock.release();
    expect((await next).isHeld()).toBe(true);
  });

  it("notifies a waiter without an acquisition of its turn, and reserves the lock for it", async () => {
    const [holding, queued, claiming] = [openRedlock(servers), openRedlock(servers), openRedlock(servers)];
    const lock = await holding.acquire("turn", { ttl: 30_000 });
    const place = Date.now() * 1_000 - 5_000_000;
    const turn = protocolOf(queued).waitForTurn("turn", { place });
    const later = claiming.acquire("turn", { timeout: 20_000, ttl: 20_000 });
    await inLine(holding, "turn", 2);
    await lock.release();
    await turn;
    const claimed = await protocolOf(claiming).acquireAt(["turn"], { place, timeout: 5_000 });
    expect(claimed.isHeld()).toBe(true);
    await claimed.release();
    await (await later).release();
  });

  it("ends the wait for a turn when the caller cancels, and removes the waiter from the line", async () => {
    const redlock = openRedlock(servers);
    const lock = await redlock.acquire("no turn", { ttl: 30_000 });
    const controller = new AbortController();
    const turn = errorOf(protocolOf(redlock).waitForTurn("no turn", { signal: controller.signal }));
    await inLine(redlock, "no turn", 1);
    controller.abort("enough");
    expect(await turn).toBe("enough");
    await expect
      .poll(async () => (await redlock.inspect("no turn")).nodes.every((node) => node.waiters === 0))
      .toBe(true);
    await lock.release();
  });
});

describe("waiting on nodes of several clients, one of which cannot count the receivers of a message", () => {
  /** ioredis, node-redis and, where there is one, GLIDE. */
  function openMixed(servers: readonly RedisServer[]): Redlock {
    const [first = "", second = "", third = ""] = servers.map(({ port }) => `redis://127.0.0.1:${port}`);
    const last = IoredisNode.connect(third, { nodeTimeoutMs: 10_000, clock: systemClock });
    return openRedlock([createClient({ url: first }), clients["GLIDE"]?.(second) ?? second, uncounting(last)]);
  }

  it("skips a dead waiter on the other nodes, and grants the lock to the next waiter", async () => {
    const servers = await startNodes(3);
    const [holding, waiting, third] = [openMixed(servers), openMixed(servers), openMixed(servers)];
    for (const redlock of [holding, waiting, third]) await everyNodeAnswers(redlock);
    const lock = await holding.acquire("r", { ttl: 60_000 });
    await expect
      .poll(async () => (await holding.inspect("r")).nodes.map(({ state }) => state))
      .toEqual(["held", "held", "held"]);
    const behind = waiting.acquire("r", { ttl: 60_000, timeout: 30_000 });
    await expect.poll(async () => (await holding.inspect("r")).nodes.map(({ waiters }) => waiters)).toEqual([1, 1, 1]);
    for (const server of servers) await putInLine(server, "r", [memberOf(1, "x:redlock:dead#1")]);
    expect(await lock.release()).toBe(true);
    const values = await Promise.all(servers.map((server) => server.call("GET", "r")));
    const next = await behind;
    expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
    expect(await third.tryAcquire("r")).toBeNull();
    expect(values.slice(0, 2)).not.toContain(`reserved:${memberOf(1, "x:redlock:dead#1")}`);
    await next.release();
    expect((await third.acquire("r", { timeout: 30_000 })).fencingToken).toBeGreaterThan(next.fencingToken);
  });
});

/** The node as it appears through an adapter that cannot count the receivers of a message. */
function uncounting(node: LockNode): LockNode {
  return Object.assign(node, { countsReceivers: false });
}

describe("a waiter", () => {
  it.each([60_000, -60_000])("neither overtakes nor is overtaken when its clock is %i ms off", async (offMs) => {
    const [server] = await startNodes(1);
    const clock = { ...systemClock, wallMs: (): number => systemClock.wallMs() + offMs };
    const holder = await openRedlock([server as RedisServer]).acquire("skewed", { ttl: 20_000 });
    const clients = [openRedlock([server as RedisServer]), openRedlock([server as RedisServer], { clock })];
    if (offMs > 0) clients.reverse();
    const served: number[] = [];
    const waits = clients.map(async (client, index) => {
      if (index > 0) {
        await expect.poll(() => waitersOf(server as RedisServer, "skewed")).toBe(1);
        // At this distance no client mistakes the order because of its error about the node's clock.
        await delay(300);
      }
      const lock = await client.acquire("skewed", { timeout: 20_000 });
      served.push(index);
      await lock.release();
    });
    await expect.poll(() => waitersOf(server as RedisServer, "skewed")).toBe(2);
    await holder.release();
    await Promise.all(waits);
    expect(served).toEqual([0, 1]);
  });

  it("is not notified of its turn while a quorum is held, even if one node is free", async () => {
    const servers = await startNodes(3);
    const clock = new ManualClock();
    const [holding, queued] = [openRedlock(servers), openRedlock(servers, { clock })];
    const states = async (): Promise<unknown[]> =>
      (await holding.inspect("minority")).nodes.map((node) => node.state ?? node.error);
    await expect.poll(states).toEqual(["free", "free", "free"]);
    const lock = await holding.acquire("minority", { ttl: 20_000 });
    await expect.poll(states).toEqual(["held", "held", "held"]);
    await servers[2]?.call("DEL", "minority");
    const turns: string[] = [];
    const turn = protocolOf(queued)
      .waitForTurn("minority")
      .then(() => turns.push("turn"));
    await expect
      .poll(async () => (await holding.inspect("minority")).nodes.map((node) => node.waiters))
      .toEqual([1, 1, 0]);
    await pass(queued, clock, { steps: 10, stepMs: 100 });
    expect(turns).toEqual([]);
    await lock.release();
    await turn;
  });

  it("is notified of its turn even if a node hangs", async () => {
    const servers = await startNodes(3);
    const [holding, queued] = [openRedlock(servers), openRedlock(servers, { nodeTimeout: 60_000 })];
    for (const redlock of [holding, queued]) await everyNodeAnswers(redlock);
    const lock = await holding.acquire("hung", { ttl: 20_000 });
    servers[2]?.freeze();
    onTestFinished(() => servers[2]?.thaw());
    const turn = protocolOf(queued).waitForTurn("hung");
    await expect.poll(() => waitersOf(servers[0] as RedisServer, "hung")).toBe(1);
    await lock.release();
    await turn;
    expect(await servers[0]?.call("GET", "hung")).toMatch(/^reserved:/);
  });

  it("rejects with QuorumUnreachableError if the nodes failed, even if it was never first", async () => {
    const redlock = openRedlock([{ path: "/nowhere/1" }, { path: "/nowhere/2" }, { path: "/nowhere/3" }]);
    const calls = [1, 2].map(() => errorOf(redlock.acquire("down", { timeout: 300 })));
    expect(await calls[0]).toBeInstanceOf(QuorumUnreachableError);
    const error = await calls[1];
    expect(error).toBeInstanceOf(QuorumUnreachableError);
    expect((error as QuorumUnreachableError).votes).not.toHaveLength(0);
  });

  it.each([1, 2])("rejects with an error that names its own process as the holder: %i waiters", async (count) => {
    const redlock = openRedlock(await startNodes(1));
    const events: RedlockEvents["acquireFailed"][] = [];
    await redlock.using("same", async () => {
      redlock.on("acquireFailed", (event) => events.push(event));
      const nested = Array.from({ length: count }, () =>
        errorOf(redlock.using("same", () => undefined, { timeout: 200, reentrancy: "wait" })),
      );
      for (const error of await Promise.all(nested)) {
        expect(error).toBeInstanceOf(LockHeldError);
        expect(error).toMatchObject({ resource: "same", attempts: 0, votes: [] });
        expect((error as Error).message).toMatch(
          /^lock "same" is held by this process \(locks are not reentrant\): waited \d+ ms$/,
        );
      }
    });
    expect(events.map(({ reason }) => reason)).toEqual(Array.from({ length: count }, () => "held"));
  });

  it("rejects with an error that names its own process, even if the holder waited for another process", async () => {
    const servers = await startNodes(1);
    const [redlock, other] = [openRedlock(servers), openRedlock(servers)];
    const theirs = await other.acquire("handed over");
    const ours = redlock.acquire("handed over");
    // Longer than a loaded machine takes to hand the lock over.
    const behind = errorOf(redlock.acquire("handed over", { timeout: 8_000 }));
    await inLine(other, "handed over", 1);
    await theirs.release();
    expect((await ours).isHeld()).toBe(true);
    expect(((await behind) as Error).message).toContain("is held by this process");
  });

  it("rejects with an error that names its own process, even after an attempt", async () => {
    const servers = await startNodes(1);
    const [redlock, other] = [openRedlock(servers), openRedlock(servers)];
    await redlock.acquire("ours");
    await other.acquire("theirs");
    const messageOf = async (resources: readonly string[]): Promise<string> =>
      ((await errorOf(redlock.acquire(resources, { timeout: 0 }))) as Error).message;
    expect(await messageOf(["ours"])).toMatch(
      /^lock "ours" is held by this process \(locks are not reentrant\): 0 of 1 nodes granted, 1 needed \(1 attempt/,
    );
    expect(await messageOf(["free", "ours"])).toContain('"ours" is held by this process');
    expect(await messageOf(["theirs", "ours"])).toContain('"theirs" is held by another');
  });

  it("emits one `refused` event for a lock of its own process", async () => {
    const redlock = openRedlock(await startNodes(1));
    const waits: RedlockEvents["refused"][] = [];
    redlock.on("refused", (event) => waits.push(event));
    const lock = await redlock.acquire("told");
    const waiting = [1, 2].map(async () => {
      const next = await redlock.acquire("told");
      await redlock.inspect("told");
      await next.release();
    });
    expect(waits).toHaveLength(2);
    await lock.release();
    await Promise.all(waiting);
    const wait = { resources: ["told"], attempts: 0, votes: [] };
    expect(waits).toMatchObject([wait, wait]);
  });

  it.each(["redlock", "0".repeat(40), "0".repeat(41)])(
    "polls repeatedly while another library holds the lock, with the value %s",
    async (value) => {
      const [server] = await startNodes(1);
      const redlock = openRedlock([server as RedisServer]);
      await server?.call("SET", "foreign", value, "PX", "60000");
      const waiting = redlock.acquire("foreign", { timeout: 20_000 });
      await expect.poll(() => requestsOf(server)).toBeGreaterThan(4);
      await server?.call("DEL", "foreign");
      expect((await waiting).isHeld()).toBe(true);
    },
  );

  it("rejects with LockHeldError, not for failed nodes, if its time was too short for the last answers", async () => {
    const [server] = await startNodes(1);
    const proxy = await startProxy({ path: server?.path ?? "" });
    onTestFinished(() => proxy[Symbol.asyncDispose]());
    const redlock = openRedlock([{ host: proxy.host, port: proxy.port }], { retryJitter: 0, nodeTimeout: 500 });
    await (await redlock.acquire("ready")).release();
    const holder = `x${"0".repeat(40)}`;
    await server?.call("SET", "foreign", holder, "PX", "3000");
    const told = errorOf(redlock.acquire("foreign", { timeout: 3_300 }));
    await expect.poll(() => waitersOf(server as RedisServer, "foreign")).toBe(1);
    await server?.call("SET", "foreign", holder);
    proxy.delay(10_000, "down");
    expect(await told).toBeInstanceOf(LockHeldError);
  });

  it.each([
    ["ioredis", (url: string) => url],
    ["node-redis", (url: string) => createClient({ url })],
    ["node-redis 5", (url: string) => createClient5({ url }) as NodeSource],
  ])("subscribes again some time after its SUBSCRIBE was interrupted (%s)", async (_name, sourceOf) => {
    const [server] = await startNodes(1);
    const proxy = await startSubscriberProxy(server?.path ?? "");
    let aheadMs = 0;
    const clock = { ...systemClock, monotonicMs: (): number => systemClock.monotonicMs() + aheadMs };
    const redlock = openRedlock([sourceOf(proxy.url)], { clock });
    const lock = await openRedlock([server as RedisServer]).acquire("cut off", { ttl: 60_000 });
    proxy.cutNextSubscribe();
    await errorOf(redlock.acquire("cut off", { timeout: 300 }));
    aheadMs += 10_000;
    const next = redlock.acquire("cut off", { timeout: 20_000 });
    await expect.poll(() => proxy.subscriberCount()).toBe(1);
    await lock.release();
    await (await next).release();
  });

  it("repeats a refused subscription some time later, not at every attempt", async () => {
    const [server] = await startNodes(1);
    let aheadMs = 0;
    const clock = { ...systemClock, monotonicMs: (): number => systemClock.monotonicMs() + aheadMs };
    const [redlock, other] = [openRedlock([server as RedisServer], { clock }), openRedlock([server as RedisServer])];
    const asked = async (): Promise<string | undefined> =>
      /cmdstat_subscribe:.*rejected_calls=(\d+)/.exec(String(await server?.call("INFO", "commandstats")))?.[1];
    await server?.call("ACL", "SETUSER", "default", "resetchannels");
    const lock = await other.acquire("refused", { ttl: 60_000 });
    for (let round = 0; round < 5; round += 1) await errorOf(redlock.acquire("refused", { timeout: 100 }));
    expect(await asked()).toBe("1");
    await server?.call("ACL", "SETUSER", "default", "allchannels");
    aheadMs += 10_000;
    const next = redlock.acquire("refused", { timeout: 20_000 });
    await expect.poll(() => server?.call("PUBSUB", "CHANNELS", "x:redlock:*")).toHaveLength(1);
    await lock.release();
    await (await next).release();
  });

  it("causes a refused subscription to be repeated, which does not happen without a waiter", async () => {
    const [server] = (await startNodes(1)) as [RedisServer];
    const clock = new ManualClock();
    const node = IoredisNode.connect(server.path, { nodeTimeoutMs: 10_000, clock: systemClock });
    let asked = 0;
    node.subscribe = () => {
      asked += 1;
      return Promise.reject(new Error("NOPERM"));
    };
    const [redlock, other] = [openRedlock([node], { clock }), openRedlock([server])];
    await other.acquire("refused", { ttl: 60_000 });
    const waiters = async (): Promise<number | undefined> => {
      await pass(redlock, clock, { steps: 1, stepMs: 100 });
      return (await other.inspect("refused")).nodes[0]?.waiters;
    };
    const waitOnce = async (): Promise<void> => {
      const cancelled = new AbortController();
      const waited = errorOf(redlock.acquire("refused", { timeout: 600_000, signal: cancelled.signal }));
      await expect.poll(waiters).toBe(1);
      cancelled.abort();
      await waited;
      await expect.poll(waiters).toBe(0);
    };
    await waitOnce();
    await pass(redlock, clock, { steps: 10, stepMs: 5_000 });
    expect(asked).toBe(1);
    await waitOnce();
    expect(asked).toBe(2);
  });
});
