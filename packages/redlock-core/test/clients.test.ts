import { createRequire } from "node:module";
import { setTimeout as delay } from "node:timers/promises";
import type { GlideClient } from "@valkey/valkey-glide";
import { errorOf, type RedisCluster, type RedisServer, startCluster, startRedis, waitersOf } from "@x/test-support";
import { Cluster, Redis } from "ioredis";
import { Redis as Redis5 } from "ioredis5";
import { BasicClientSideCache, createClient, createSentinel } from "redis";
import { BasicClientSideCache as BasicClientSideCache5, createClient as createClient5 } from "redis5";
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from "vitest";
import { type Lock, type NodeSource, Redlock, systemClock } from "../src/index.ts";
import { glideNode } from "../src/nodes/glide-node.ts";
import { IoredisNode } from "../src/nodes/ioredis.ts";
import { defineScript, protocolOf } from "../src/protocol.ts";
import { hasStableSlot, slotOf } from "../src/rules/keys.ts";
import { glideClass, hasGlide } from "./support/clients.ts";
import { openRedlock } from "./support/nodes.ts";

/** A fork of ioredis 5, with its types. */
const iovalkey = createRequire(import.meta.url)("iovalkey") as { readonly Redis: typeof Redis };

/** The duties of every client: exclude, wait, extend, hand over, survive a restart of the server. */
async function exercise(server: RedisServer, sources: () => NodeSource): Promise<void> {
  const [a, b] = [openRedlock([sources()], { timeout: 15_000 }), openRedlock([sources()], { timeout: 15_000 })];
  const lock = await a.acquire("r", { ttl: 20_000 });
  expect(await server.call("GET", "r")).toBe(lock.token);
  expect(await b.tryAcquire("r")).toBeNull();
  const waiting = b.acquire("r", { ttl: 20_000 });
  await expect.poll(() => waitersOf(server, "r")).toBe(1);
  await lock.extend();
  expect(await lock.release()).toBe(true);
  const next = await waiting;
  expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
  expect((await a.inspect("r")).verdict).toBe("held");
  expect(await a.check()).toContainEqual(expect.objectContaining({ code: "NO_PERSISTENCE" }));
  expect(await next.release()).toBe(true);
  await server.restart();
  const after = await a.acquire("r");
  expect(after.isHeld()).toBe(true);
  const behind = b.acquire("r", { timeout: 15_000 });
  await expect.poll(() => waitersOf(server, "r"), { timeout: 10_000 }).toBe(1);
  await after.release();
  expect(await (await behind).release()).toBe(true);
}

describe("clients of one server", () => {
  let server: RedisServer;
  beforeAll(async () => {
    server = await startRedis();
  });
  afterAll(() => server.stop());

  it("ioredis 6", () => {
    const client = new Redis({ path: server.path });
    client.on("error", () => undefined);
    onTestFinished(() => client.disconnect());
    return exercise(server, () => client);
  });

  it("ioredis 5", () => {
    const client = new Redis5({ path: server.path });
    client.on("error", () => undefined);
    onTestFinished(() => client.disconnect());
    return exercise(server, () => client);
  });

  it("iovalkey", () => {
    const client = new iovalkey.Redis({ path: server.path });
    client.on("error", () => undefined);
    onTestFinished(() => client.disconnect());
    return exercise(server, () => client);
  });

  it.skipIf(!hasGlide)("Valkey GLIDE", () => {
    const { host, port } = server;
    return exercise(server, () => glideNode(glideClass(), { addresses: [{ host, port }] }));
  });

  describe.skipIf(!hasGlide)("Valkey GLIDE", () => {
    const push = defineScript("push", "return redis.call('RPUSH', KEYS[1], ARGV[1])");
    const pushOn = async (nodeTimeout: number): Promise<(key: string, value: number) => Promise<unknown>> => {
      const { host, port } = server;
      const node = glideNode(glideClass(), { addresses: [{ host, port }] }, { nodeTimeout });
      onTestFinished(() => node.close());
      await expect.poll(() => node.state, { timeout: 10_000 }).toBe("ready");
      return async (key, value) => await node.eval(push, [key], [String(value)]);
    };

    it("sends commands in the order of the calls", async () => {
      const ask = await pushOn(60_000);
      const values = Array.from({ length: 300 }, (_, n) => n);
      await Promise.all(values.map((n) => ask("in order", n)));
      expect(await server.call("LRANGE", "in order", 0, -1)).toEqual(values.map(String));
    });

    it("sends no command after the timeout of its call", async () => {
      const nodeTimeout = 1_000;
      const ask = await pushOn(nodeTimeout);
      await expect.poll(() => ask("in time", 1).catch(() => 0), { timeout: 10_000 }).toBeGreaterThan(0);
      await server.kill();
      // GLIDE notices the loss, and keeps the commands for the next connection, which it opens after 5 s.
      const answers = Promise.allSettled([1, 2, 3].map((n) => ask("late", n)));
      await Promise.race([answers, delay(2 * nodeTimeout)]);
      await server.start();
      // The restarted server knows no script, and reports this for late commands.
      const reasons = (await answers).map((answer) => (answer.status === "rejected" ? String(answer.reason) : "done"));
      expect(reasons.filter((reason) => /done|NOSCRIPT/.test(reason))).toEqual([]);
      await expect.poll(() => ask("alive", 1).catch(() => 0), { timeout: 10_000 }).toBe(1);
      expect(await server.call("EXISTS", "late")).toBe(0);
    });
  });

  it.skipIf(!hasGlide)(
    "Valkey GLIDE, which is not asked for a client of a server that is down because it would never give up",
    async () => {
      const stopped = await startRedis();
      const { host, port } = stopped;
      await stopped.stop();
      let asked = 0;
      const createClient = async (): Promise<GlideClient> => {
        asked += 1;
        throw new Error("no client");
      };
      const node = glideNode({ createClient }, { addresses: [{ host, port }] });
      onTestFinished(() => node.close());
      await expect.poll(() => node.lastError?.message).toContain("ECONNREFUSED");
      expect([node.state, asked]).toEqual(["down", 0]);
      const refused = glideNode({ createClient }, { addresses: [{ host: server.host, port: server.port }] });
      onTestFinished(() => refused.close());
      await expect.poll(() => refused.lastError?.message).toBe("no client");
      await expect.poll(() => asked, { timeout: 10_000 }).toBe(2);
    },
  );

  it.skipIf(!hasGlide)("Valkey GLIDE, whose errors read like errors of the server", async () => {
    const { host, port } = server;
    const node = glideNode(glideClass(), { addresses: [{ host, port }] });
    onTestFinished(() => node.close());
    await expect.poll(() => node.state, { timeout: 10_000 }).toBe("ready");
    const fail = async (message: string): Promise<unknown> =>
      await errorOf(node.eval(defineScript("fail", `return redis.error_reply(${JSON.stringify(message)})`), [], []));
    for (const message of ["MINE is mine", "ERR what: ever", "READONLY You can't write", "NOSCRIPT No matching script"])
      expect(await fail(message)).toEqual(new Error(message));
    expect(await node.config?.("appendonly")).toBe("no");
    await (await openRedlock([node]).acquire("flushed")).release();
    await server.call("SCRIPT", "FLUSH");
    expect((await openRedlock([node]).acquire("flushed")).isHeld()).toBe(true);
  });

  it.each([
    ["ioredis 6", Redis],
    ["ioredis 5", Redis5 as unknown as typeof Redis],
  ])("%s: passes a request on as one text, unless a name is not ASCII", async (_name, Client) => {
    const client = new Client({ path: server.path });
    onTestFinished(() => client.disconnect());
    const sent = vi.spyOn(Client.prototype, "sendCommand");
    onTestFinished(() => sent.mockRestore());
    const redlock = openRedlock([client]);
    const partsOf = async (resources: readonly string[]): Promise<readonly number[]> => {
      sent.mockClear();
      const locks = await Promise.all(resources.map((resource) => redlock.acquire(resource)));
      expect(await server.call("MGET", ...resources)).toEqual(locks.map(({ token }) => token));
      expect(await Promise.all(locks.map((lock) => lock.release()))).toEqual(resources.map(() => true));
      const requests = sent.mock.calls.map(([command]) => command).filter(({ name }) => name === "evalsha");
      return requests.map(({ args }) => args.length);
    };
    await partsOf(["first"]);
    expect(await partsOf(["one"])).toEqual([1, 1]);
    expect(new Set(await partsOf(Array.from({ length: 200 }, (_, n) => `many:${n}`)))).toEqual(new Set([1]));
    expect(Math.min(...(await partsOf(["ünï", "two"])))).toBeGreaterThan(1);
  });

  it.each([
    ["node-redis 6", createClient],
    ["node-redis 5", createClient5],
  ] as const)("%s", async (_name, create) => {
    const client = (create as typeof createClient)({ url: server.url });
    client.on("error", () => undefined);
    await client.connect();
    onTestFinished(() => client.destroy());
    await exercise(server, () => client);
  });

  it.each([
    ["node-redis 6", createClient],
    ["node-redis 5", createClient5],
  ] as const)("%s, even after its own ping was answered with an error", async (_name, create) => {
    const busy = await startRedis({ args: ["--lua-time-limit", "50"] });
    onTestFinished(() => busy.stop());
    const client = (create as typeof createClient)({ url: busy.url, pingInterval: 50 });
    client.on("error", () => undefined);
    const redlock = openRedlock([client]);
    await redlock.acquire("before");
    const blocked = busy.call("EVAL", "while true do end", 0).catch(() => undefined);
    // Ten pings, which only the client itself can see.
    await delay(500);
    await busy.call("SCRIPT", "KILL");
    await blocked;
    expect((await redlock.acquire("after")).isHeld()).toBe(true);
  });

  it.each([
    ["node-redis 6", createClient, BasicClientSideCache],
    ["node-redis 5", createClient5, BasicClientSideCache5],
  ] as const)("%s, whose client-side cache stays separate", async (_name, create, Cache) => {
    const clientSideCache = new Cache({ ttl: 0, maxEntries: 0 }) as BasicClientSideCache;
    const client = (create as typeof createClient)({ url: server.url, RESP: 3, clientSideCache });
    client.on("error", () => undefined);
    await client.connect();
    onTestFinished(() => client.destroy());
    await client.get("cached");
    const redlock = openRedlock([client]);
    await (await redlock.acquire("r")).release();
    const connections = String(await server.call("CLIENT", "LIST")).split("\n");
    expect(connections.filter((line) => line.includes("flags=t"))).toHaveLength(1);
    await redlock.close();
    expect(clientSideCache.size()).toBe(1);
  });

  it("not a Sentinel client of node-redis, which is refused", () => {
    const sentinel = createSentinel({ name: "lock", sentinelRootNodes: [{ host: "127.0.0.1", port: 1 }] });
    expect(() => new Redlock([sentinel])).toThrow(
      new TypeError("node must not be a node-redis Sentinel: use ioredis with sentinels, or a LockNode"),
    );
  });

  it("a URL with a port, a URL with a socket, a path, and options", async () => {
    await exercise(server, () => server.url);
    await exercise(server, () => `unix://${server.path}`);
    await exercise(server, () => server.path);
    await exercise(server, () => ({ host: server.host, port: server.port }));
  });

  it("an ioredis client whose subscription failed once, which is tried again", async () => {
    const node = IoredisNode.connect(server.path, { nodeTimeoutMs: 500, clock: systemClock });
    onTestFinished(() => node.close());
    await server.call("ACL", "SETUSER", "default", "resetchannels");
    await errorOf(node.subscribe("hints", () => undefined));
    await server.call("ACL", "SETUSER", "default", "allchannels");
    const heard: string[] = [];
    const stop = await node.subscribe("hints", (message) => heard.push(message));
    await server.call("PUBLISH", "hints", "heard");
    await expect.poll(() => heard).toEqual(["heard"]);
    stop();
  });

  it("names its nodes so that operators recognize them", async () => {
    const names = async (source: NodeSource): Promise<readonly string[]> =>
      (await openRedlock([source]).inspect("name")).nodes.map((node) => node.node);
    expect(await names(server.url)).toEqual([`127.0.0.1:${server.port}`]);
    expect(await names({ path: server.path })).toEqual([server.path]);
  });
});

describe("a Redis Cluster behind one client", () => {
  let cluster: RedisCluster;
  let client: Cluster;
  beforeAll(async () => {
    cluster = await startCluster();
    client = new Cluster(cluster.nodes.map((node) => ({ host: node.host, port: node.port })));
    client.on("error", () => undefined);
  });
  afterAll(async () => {
    client.disconnect();
    await cluster.stop();
  });

  it("reconnects in time when all connections break, so that an extended lock is kept", async () => {
    const [seed] = cluster.nodes.map((node) => ({ host: node.host, port: node.port }));
    const one = new Cluster(seed === undefined ? [] : [seed]);
    one.on("error", () => undefined);
    onTestFinished(() => one.disconnect());
    const redlocks = Array.from({ length: 12 }, () => openRedlock([one], { timeout: 4_000 }));
    const take = async (redlock: Redlock, index: number): Promise<Lock> =>
      await redlock.acquire(`kept:${index}`, { ttl: 8_000, autoExtend: true });
    const locks = await Promise.all(redlocks.map(take));
    await Promise.all(cluster.nodes.map((node) => node.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")));
    const extended = new Set<Redlock>();
    for (const redlock of redlocks) redlock.on("extended", () => extended.add(redlock));
    await expect.poll(() => extended.size, { timeout: 20_000 }).toBe(redlocks.length);
    expect(locks.map((lock) => lock.isHeld())).toEqual(locks.map(() => true));
  });

  it("acquires many locks in any slot at once, and hands them over", async () => {
    const [a, b] = [openRedlock([client], { timeout: 20_000 }), openRedlock([client], { timeout: 20_000 })];
    const resources = Array.from({ length: 60 }, (_, index) => `slot:${index}`);
    const locks = await Promise.all(resources.map((resource) => a.acquire(resource)));
    expect(await b.tryAcquire("slot:7")).toBeNull();
    const waiting = resources.map((resource) => b.acquire(resource));
    await expect
      .poll(
        async () =>
          (await Promise.all(resources.map(async (resource) => await a.inspect(resource)))).every(
            (seen) => seen.nodes[0]?.waiters === 1,
          ),
        {
          timeout: 10_000,
        },
      )
      .toBe(true);
    expect(await Promise.all(locks.map((lock) => lock.release()))).toEqual(resources.map(() => true));
    const next = await Promise.all(waiting);
    for (const [index, lock] of next.entries())
      expect(lock.fencingToken).toBeGreaterThan(locks[index]?.fencingToken ?? 0);
  });

  it("keeps all keys of a resource in one slot, as counted by Redis", async () => {
    const redlock = openRedlock([client]);
    for (const resource of ["plain", "{tag}:r", "a{tag}b", "ünï", "a{b", "x y"]) {
      expect(hasStableSlot(resource)).toBe(true);
      const slots = await Promise.all(
        [
          resource,
          protocolOf(redlock).keys.sideKey(resource, "fence"),
          protocolOf(redlock).keys.sideKey(resource, "note"),
        ].map(async (key) => await cluster.nodes[0]?.call("CLUSTER", "KEYSLOT", key)),
      );
      expect(new Set(slots)).toEqual(new Set([slotOf(resource)]));
      await (await redlock.acquire(resource)).release();
    }
  });

  it("acquires several resources that share a tag, and refuses others before a command is sent", async () => {
    const redlock = openRedlock([client]);
    await (await redlock.acquire(["{user}:a", "{user}:b"])).release();
    const error = await errorOf(redlock.acquire(["a", "b"]));
    expect(error).toBeInstanceOf(RangeError);
    expect((error as Error).message).toContain("share a hash slot");
    expect(await errorOf(redlock.acquire("a}b"))).toBeInstanceOf(RangeError);
  });

  it("is one node without quarantine, and reports this if quarantine is requested", () => {
    expect(() => new Redlock([client], { quarantine: true })).toThrow(RangeError);
    const redlock = openRedlock([client]);
    expect(redlock.nodeCount).toBe(1);
    expect(redlock.options.quarantine).toBe(false);
  });

  it("is reported as a mistake by check() if its members are passed as independent nodes", async () => {
    const redlock = openRedlock(cluster.nodes, { nodeTimeout: 2_000 });
    const codes = (await redlock.check()).map((finding) => finding.code);
    expect(codes.filter((code) => code === "CLUSTER_MEMBER")).toHaveLength(3);
  });

  it("continues with the slots of the other masters while one master hangs", async () => {
    const redlock = openRedlock([client], { nodeTimeout: 300 });
    const names = Array.from({ length: 200 }, (_, index) => `r:${index}`);
    const [first, last] = [0, 2];
    await Promise.all(names.map(async (name) => await (await redlock.acquire(name)).release()));
    // Otherwise the other nodes refuse commands as soon as they have noticed.
    await Promise.all(cluster.nodes.map((node) => node.call("CONFIG", "SET", "cluster-require-full-coverage", "no")));
    cluster.nodes[first]?.freeze();
    onTestFinished(() => cluster.nodes[first]?.thaw());
    const isOn = (name: string, node: number): boolean => Math.floor(slotOf(name) / (16_384 / 3)) === node;
    await Promise.all(
      names.filter((name) => isOn(name, first)).map((name) => redlock.tryAcquire(name).catch(() => null)),
    );
    for (const name of names.filter((each) => isOn(each, last))) {
      expect(await redlock.tryAcquire(name)).not.toBeNull();
    }
  });
});
