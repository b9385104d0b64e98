import { setTimeout as delay } from "node:timers/promises";
import { errorOf, type RedisServer, startProxy, waitersOf } from "@x/test-support";
import { createClient } from "redis";
import { createClient as createClient5 } from "redis5";
import { describe, expect, it, onTestFinished } from "vitest";
import { type Clock, systemClock } from "../src/index.ts";
import { protocolOf } from "../src/protocol.ts";
import { clients } from "./support/clients.ts";
import { everyNodeAnswers, openRedlock, startNodes } from "./support/nodes.ts";
import { startSubscriberProxy } from "./support/subscriber-proxy.ts";

/** The wait for a connection's last sign of life is cut from 15 seconds to a moment. */
const hasty: Clock = {
  ...systemClock,
  schedule: (afterMs, run, options) => systemClock.schedule(afterMs >= 15_000 ? 300 : afterMs, run, options),
};

describe("a dead connection that was not closed", () => {
  it.each(Object.keys(clients))("is replaced (%s)", async (name) => {
    const [server] = await startNodes(1);
    const proxy = await startProxy({ path: server?.path ?? "" });
    onTestFinished(() => proxy.stop());
    const redlock = openRedlock([clients[name]?.(proxy.url, { nodeTimeoutMs: 100, clock: hasty }) ?? ""], {
      nodeTimeout: 100,
      clock: hasty,
    });
    await (await redlock.acquire("r")).release();
    const states: string[] = [];
    redlock.on("nodeChanged", ({ state }) => states.push(state));
    proxy.blackhole();
    await expect
      .poll(async () => {
        await redlock.tryAcquire("r").catch(() => undefined);
        return states;
      })
      .toContain("down");
    proxy.heal();
    // The new connection may have been made while the proxy swallowed everything.
    proxy.drop();
    await expect
      .poll(async () => (await redlock.tryAcquire("r").catch(() => null))?.isHeld(), { timeout: 8_000 })
      .toBe(true);
  });

  it("is replaced while the other nodes are enough for a quorum", async () => {
    const servers = await startNodes(3);
    const proxy = await startProxy({ path: servers[2]?.path ?? "" });
    onTestFinished(() => proxy.stop());
    const redlock = openRedlock([servers[0] ?? "", servers[1] ?? "", proxy.url], { nodeTimeout: 100, clock: hasty });
    await everyNodeAnswers(redlock);
    const states: string[] = [];
    redlock.on("nodeChanged", ({ node, state }) => states.push(`${node === "127.0.0.1:" + proxy.port} ${state}`));
    proxy.blackhole();
    await expect
      .poll(async () => {
        await (await redlock.acquire("r")).release();
        return states;
      })
      .toContain("true down");
  });

  it("is kept while the node is only slow", async () => {
    const [server] = await startNodes(1);
    const proxy = await startProxy({ path: server?.path ?? "" });
    onTestFinished(() => proxy.stop());
    const redlock = openRedlock([proxy.url], { nodeTimeout: 100, clock: hasty });
    await (await redlock.acquire("r")).release();
    const states: string[] = [];
    redlock.on("nodeChanged", ({ state }) => states.push(state));
    proxy.delay(200, "down");
    for (let round = 0; round < 6; round += 1) await redlock.tryAcquire("r").catch(() => undefined);
    expect(states).toEqual([]);
  });
});

describe.each(Object.keys(clients))("a connection whose handshake is not answered (%s)", (name) => {
  it("is replaced, whether it is the first or a later one", async () => {
    const [server] = await startNodes(1);
    const proxy = await startSubscriberProxy(server?.path ?? "");
    const redlock = openRedlock([clients[name]?.(proxy.url, { nodeTimeoutMs: 100, clock: hasty }) ?? ""], {
      nodeTimeout: 100,
      clock: hasty,
    });
    const take = async (): Promise<boolean | undefined> => {
      const lock = await redlock.tryAcquire("r").catch(() => null);
      await lock?.release();
      return lock !== null;
    };
    for (let round = 0; round < 2; round += 1) {
      proxy.silencesNew = true;
      proxy.drop();
      await expect
        .poll(async () => String(await errorOf(redlock.acquire("r", { timeout: 0 }))), { timeout: 8_000 })
        .toContain("no answer to the handshake");
      proxy.silencesNew = false;
      await expect.poll(take, { timeout: 8_000 }).toBe(true);
    }
  });

  it("is replaced as a connection for messages as well", async () => {
    const [server] = await startNodes(1);
    const proxy = await startSubscriberProxy(server?.path ?? "");
    const waiting = openRedlock([clients[name]?.(proxy.url, { nodeTimeoutMs: 100, clock: hasty }) ?? ""], {
      nodeTimeout: 100,
      clock: hasty,
    });
    await (await waiting.acquire("r")).release();
    proxy.silencesNew = true;
    const heard: string[] = [];
    await protocolOf(waiting).subscribe("hints", (message) => heard.push(message));
    proxy.silencesNew = false;
    await expect
      .poll(
        async () => {
          await server?.call("PUBLISH", "hints", "heard");
          return heard;
        },
        { timeout: 8_000 },
      )
      .toContain("heard");
  });
});

it.each(Object.keys(clients))(
  "a connection that breaks during its handshake is followed by another one (%s)",
  async (name) => {
    const [server] = await startNodes(1);
    const proxy = await startSubscriberProxy(server?.path ?? "");
    const settings = { nodeTimeoutMs: 60_000, clock: systemClock };
    const redlock = openRedlock([clients[name]?.(proxy.url, settings) ?? ""], { nodeTimeout: 60_000 });
    await (await redlock.acquire("r")).release();
    proxy.breaksHandshakes = true;
    proxy.drop();
    await expect.poll(() => proxy.brokenHandshakes, { timeout: 20_000 }).toBeGreaterThan(0);
    proxy.breaksHandshakes = false;
    await (await redlock.acquire("r", { timeout: 30_000 })).release();
  },
);

it.each([
  ["node-redis", createClient],
  ["node-redis 5", createClient5],
] as const)("a connection that breaks before its credentials are available is replaced (%s)", async (_name, create) => {
  const [server] = await startNodes(1);
  const proxy = await startSubscriberProxy(server?.path ?? "");
  await server?.call("ACL", "SETUSER", "late", "on", ">secret", "~*", "&*", "+@all");
  const credentials = async (): Promise<{ readonly username: string; readonly password: string }> => {
    await delay(200);
    return { username: "late", password: "secret" };
  };
  const credentialsProvider = { type: "async-credentials-provider", credentials } as const;
  const client = (create as typeof createClient)({ url: proxy.url, credentialsProvider });
  const redlock = openRedlock([client], { nodeTimeout: 1_000, clock: hasty });
  await expect.poll(() => proxy.connectionCount, { interval: 1 }).toBe(1);
  proxy.drop();
  const take = async (): Promise<boolean> => (await redlock.tryAcquire("r").catch(() => null)) !== null;
  await expect.poll(take, { timeout: 8_000 }).toBe(true);
});

describe.each(Object.keys(clients))("a dead idle connection for messages (%s)", (name) => {
  it("is replaced while a waiter needs it", async () => {
    const [server] = await startNodes(1);
    const proxy = await startSubscriberProxy(server?.path ?? "");
    const holding = openRedlock([server?.path ?? ""]);
    const waiting = openRedlock([clients[name]?.(proxy.url, { nodeTimeoutMs: 1_000, clock: hasty }) ?? ""], {
      nodeTimeout: 1_000,
      clock: hasty,
    });
    const handOver = async (meanwhile: () => Promise<void>): Promise<void> => {
      const lock = await holding.acquire("r", { ttl: 60_000 });
      const next = waiting.acquire("r", { timeout: 30_000 });
      next.catch(() => undefined);
      await expect.poll(() => waitersOf(server as RedisServer, "r")).toBe(1);
      await meanwhile();
      await lock.release();
      await (await next).release();
    };
    await handOver(async () => {
      await expect.poll(() => proxy.subscriberCount()).toBe(1);
      proxy.silenceSubscribers();
      await expect.poll(() => proxy.subscriberCount(), { timeout: 8_000 }).toBe(1);
    });
    await handOver(() => Promise.resolve());
  });

  it("is pinged while a waiter needs it, and only then", async () => {
    const [server] = await startNodes(1);
    const redlock = openRedlock([clients[name]?.(server?.url ?? "", { nodeTimeoutMs: 1_000, clock: hasty }) ?? ""], {
      nodeTimeout: 1_000,
      clock: hasty,
    });
    const pings = async (): Promise<number> =>
      Number(/cmdstat_(?:ping|wait):calls=(\d+)/.exec(String(await server?.call("INFO", "commandstats")))?.[1] ?? 0);
    const lock = await openRedlock([server?.path ?? ""]).acquire("r", { ttl: 60_000 });
    const cancelling = new AbortController();
    const waiting = errorOf(redlock.acquire("r", { timeout: 60_000, signal: cancelling.signal }));
    await expect.poll(pings, { timeout: 8_000 }).toBeGreaterThan(1);
    cancelling.abort();
    await waiting;
    // A ping that was already due is sent within the 300 ms between two pings.
    await delay(400);
    const before = await pings();
    // Twice as long as between two.
    await delay(800);
    expect(await pings()).toBe(before);
    await lock.release();
  });
});
