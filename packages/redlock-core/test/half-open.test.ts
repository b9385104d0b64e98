import { startProxy } from "@x/test-support";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { describe, expect, it, onTestFinished } from "vitest";
import { type Clock, type NodeSource, systemClock } from "../src/index.ts";
import { openRedlock, startNodes } from "./support/nodes.ts";

/** The wait for a connection's last sign of life is cut from 15 seconds to a moment. */
const hasty: Clock = {
  ...systemClock,
  schedule: (afterMs, run, options) => systemClock.schedule(afterMs >= 15_000 ? 300 : afterMs, run, options),
};

const clients: Readonly<Record<string, (url: string) => NodeSource>> = {
  ioredis: (url) => {
    const client = new Redis(url);
    onTestFinished(() => client.disconnect());
    return client;
  },
  "node-redis": (url) => createClient({ url }),
};

describe("a connection that is dead without having been closed", () => {
  it.each(Object.keys(clients))("is replaced (%s)", async (name) => {
    const [server] = await startNodes(1);
    const proxy = await startProxy({ path: server?.path ?? "" });
    onTestFinished(() => proxy.stop());
    const redlock = openRedlock([clients[name]?.(proxy.url) ?? ""], { nodeTimeout: 100, clock: hasty });
    await (await redlock.acquire("r")).release();
    const states: string[] = [];
    redlock.on("node", ({ state }) => states.push(state));
    proxy.blackhole();
    await redlock.tryAcquire("r").catch(() => undefined);
    await expect.poll(() => states).toContain("down");
    proxy.heal();
    // The new connection may have been made while the proxy swallowed everything.
    proxy.drop();
    await expect
      .poll(async () => (await redlock.tryAcquire("r").catch(() => null))?.isHeld(), { timeout: 8_000 })
      .toBe(true);
  });

  it("is replaced while the other nodes are enough", async () => {
    const servers = await startNodes(3);
    const proxy = await startProxy({ path: servers[2]?.path ?? "" });
    onTestFinished(() => proxy.stop());
    const redlock = openRedlock([servers[0] ?? "", servers[1] ?? "", proxy.url], { nodeTimeout: 100, clock: hasty });
    await expect
      .poll(async () => (await redlock.inspect("r")).nodes.every(({ error }) => error === undefined))
      .toBe(true);
    const states: string[] = [];
    redlock.on("node", ({ node, state }) => states.push(`${node === "127.0.0.1:" + proxy.port} ${state}`));
    proxy.blackhole();
    await expect
      .poll(async () => {
        await (await redlock.acquire("r")).release();
        return states;
      })
      .toContain("true down");
  });

  it("is left alone while the node is only slow", async () => {
    const [server] = await startNodes(1);
    const proxy = await startProxy({ path: server?.path ?? "" });
    onTestFinished(() => proxy.stop());
    const redlock = openRedlock([proxy.url], { nodeTimeout: 100, clock: hasty });
    await (await redlock.acquire("r")).release();
    const states: string[] = [];
    redlock.on("node", ({ state }) => states.push(state));
    proxy.delay(200, "down");
    for (let round = 0; round < 6; round += 1) await redlock.tryAcquire("r").catch(() => undefined);
    expect(states).toEqual([]);
  });
});
