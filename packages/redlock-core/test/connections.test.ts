import {
  errorOf,
  ManualClock,
  memberOf,
  putInLine,
  type RedisServer,
  sinceRedis7,
  spawnChild,
  startProxy,
  waitersOf,
  watchForLeaks,
} from "@x/test-support";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { type LockNode, QuorumUnreachableError, Redlock, systemClock } from "../src/index.ts";
import { defineScript, protocolOf } from "../src/protocol.ts";
import { openRedlock, pass, requestsOf, startNodes } from "./support/nodes.ts";

const rejections: unknown[] = [];
const onRejection = (reason: unknown): void => {
  rejections.push(reason);
};
beforeEach(() => {
  rejections.length = 0;
  process.on("unhandledRejection", onRejection);
});
afterEach(() => {
  process.off("unhandledRejection", onRejection);
  if (rejections.length > 0) throw new AggregateError(rejections, "unhandled rejections");
});

async function messageOf(redlock: Redlock): Promise<string> {
  const error = await errorOf(redlock.tryAcquire("refused"));
  expect(error).toBeInstanceOf(QuorumUnreachableError);
  return (error as Error).message;
}

/** Resolves when the node has received two more requests, so that it has refused a repeated release. */
async function askedAgain(server: RedisServer | undefined): Promise<void> {
  const before = await requestsOf(server);
  await expect.poll(() => requestsOf(server)).toBeGreaterThan(before + 1);
}

describe("a node", () => {
  it("receives a release again that it refused as a write, once it accepts writes", async () => {
    const [server] = await startNodes(1);
    const redlock = openRedlock([server as RedisServer]);
    const lock = await redlock.acquire("kept");
    await server?.call("CONFIG", "SET", "min-replicas-to-write", "1");
    expect(await lock.release()).toBe(false);
    await askedAgain(server);
    await server?.call("CONFIG", "SET", "min-replicas-to-write", "0");
    await expect.poll(() => server?.call("EXISTS", "kept")).toBe(0);
  });

  it("receives a refused release again even if the last extension asked for less than the key's remaining time", async () => {
    const [server] = await startNodes(1);
    const redlock = openRedlock([server as RedisServer]);
    const lock = await redlock.acquire("kept", { ttl: 20_000 });
    await lock.extend(100);
    await server?.call("CONFIG", "SET", "min-replicas-to-write", "1");
    expect(await lock.release()).toBe(false);
    await askedAgain(server);
    await server?.call("CONFIG", "SET", "min-replicas-to-write", "0");
    await expect.poll(() => server?.call("EXISTS", "kept")).toBe(0);
  });

  it("receives a refused release again for as long as an unanswered extension may have prolonged the lock", async () => {
    const [server] = await startNodes(1);
    const proxy = await startProxy({ path: server?.path ?? "" });
    onTestFinished(() => proxy.stop());
    let aheadMs = 0;
    const clock = { ...systemClock, monotonicMs: (): number => systemClock.monotonicMs() + aheadMs };
    const lock = await openRedlock([proxy.url], { clock }).acquire("kept", { ttl: 5_000 });
    proxy.blackhole("down");
    const extended = lock.extend(20_000).catch(() => undefined);
    await expect.poll(() => server?.call("PTTL", "kept")).toBeGreaterThan(10_000);
    await server?.call("CONFIG", "SET", "min-replicas-to-write", "1");
    proxy.heal();
    proxy.drop();
    expect(await lock.release()).toBe(false);
    await extended;
    aheadMs = 6_000;
    await askedAgain(server);
    await server?.call("CONFIG", "SET", "min-replicas-to-write", "0");
    await expect.poll(() => server?.call("EXISTS", "kept")).toBe(0);
  });

  it("is reported with the reason if it refuses because of a missing password", async () => {
    const [server] = await startNodes(1, { args: ["--requirepass", "secret"] });
    const redlock = openRedlock([{ path: server?.path ?? "" }], { nodeTimeout: 1_000 });
    expect(await messageOf(redlock)).toMatch(/NOAUTH|not connected/);
  });

  it("is reported with the reason if it refuses as a replica, including by check()", async () => {
    const [master, replica] = await startNodes(2);
    await replica?.call("REPLICAOF", "127.0.0.1", master?.port ?? 0);
    await expect.poll(() => replica?.call("INFO", "replication"), { timeout: 20_000 }).toMatch(/master_link_status:up/);
    const redlock = openRedlock([replica as RedisServer]);
    expect(await messageOf(redlock)).toContain("READONLY");
    expect((await redlock.check()).map((finding) => finding.code)).toContain("REPLICA");
  });

  it.each(["ioredis", "node-redis"])(
    "is left if it became a replica and its name now leads to another server, with %s",
    async (client) => {
      const [old, promoted] = await startNodes(2);
      const proxy = await startProxy({ path: old?.path ?? "" });
      onTestFinished(() => proxy.stop());
      const node = client === "ioredis" ? proxy.url : createClient({ url: proxy.url });
      const redlock = openRedlock([node], { nodeTimeout: 1_000, timeout: 0 });
      await (await redlock.acquire("r")).release();
      await old?.call("REPLICAOF", "127.0.0.1", promoted?.port ?? 0);
      proxy.redirect({ path: promoted?.path ?? "" });
      expect(await messageOf(redlock)).toContain("READONLY");
      const used = async (): Promise<unknown> =>
        await redlock.using("r", () => "used").catch((error: unknown) => error);
      await expect.poll(used, { timeout: 30_000 }).toBe("used");
      expect(proxy.connectionCount).toBe(1);
    },
  );

  it("is left if it became a replica, even if each attempt asks it only once a minute", async () => {
    const [old, promoted] = await startNodes(2);
    const proxy = await startProxy({ path: old?.path ?? "" });
    onTestFinished(() => proxy.stop());
    let skippedMs = 0;
    const clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + skippedMs };
    const redlock = openRedlock([proxy.url], { nodeTimeout: 1_000, timeout: 0, clock });
    await (await redlock.acquire("r")).release();
    await old?.call("REPLICAOF", "127.0.0.1", promoted?.port ?? 0);
    proxy.redirect({ path: promoted?.path ?? "" });
    expect(await messageOf(redlock)).toContain("READONLY");
    const used = async (): Promise<unknown> => {
      skippedMs += 60_000;
      return await redlock.using("r", () => "used").catch((error: unknown) => error);
    };
    await expect.poll(used).toBe("used");
  });

  it("is reported with the reason if it refuses because its memory is full, and still releases", async () => {
    const [server] = await startNodes(1);
    const redlock = openRedlock([server as RedisServer]);
    const held = await redlock.acquire("held", { ttl: 20_000 });
    await server?.call("CONFIG", "SET", "maxmemory", "1");
    expect(await messageOf(redlock)).toContain("OOM");
    await held.extend();
    expect(await held.release()).toBe(true);
  });

  it("is reported with the reason if it refuses because a script keeps it busy", async () => {
    const [server] = await startNodes(1, { args: ["--lua-time-limit", "100"] });
    const redlock = openRedlock([server as RedisServer], { nodeTimeout: 5_000 });
    await (await redlock.acquire("warm")).release();
    const busy = server?.call("EVAL", "while true do end", 0).catch(() => undefined);
    await expect.poll(() => server?.call("PING").catch(String)).toContain("BUSY");
    expect(await messageOf(redlock)).toContain("BUSY");
    await server?.call("SCRIPT", "KILL");
    await busy;
    expect((await redlock.tryAcquire("refused"))?.isHeld()).toBe(true);
  });

  it("receives a command again immediately when its script cache was flushed", async () => {
    const [server] = await startNodes(1);
    const redlock = openRedlock([server as RedisServer]);
    for (let round = 0; round < 3; round += 1) {
      const lock = await redlock.tryAcquire("flushed");
      await server?.call("SCRIPT", "FLUSH");
      await lock?.extend();
      await server?.call("SCRIPT", "FLUSH");
      expect(await lock?.release()).toBe(true);
      expect(await server?.call("EXISTS", "flushed")).toBe(0);
    }
  });

  it("receives a command again immediately when its script cache was flushed, even if no lock of the process is concerned", async () => {
    const servers = await startNodes(3);
    const [redlock, operator] = [openRedlock(servers), openRedlock(servers)];
    const flush = async (): Promise<unknown> =>
      await Promise.all(servers.map((server) => server.call("SCRIPT", "FLUSH")));
    await redlock.acquire("flushed");
    const run = { keys: ["k"], args: [] };
    const script = defineScript("one", "return 1");
    for (const call of [
      async () => (await operator.inspect("flushed")).verdict === "held",
      async () => (await operator.check()).every(({ code }) => code !== "UNREACHABLE"),
      async () => (await protocolOf(operator).run(script, run)).every(({ ok }) => ok),
      async () => !(await operator.forceRelease("other")),
      async () => await operator.forceRelease("flushed"),
    ]) {
      await call();
      await redlock.tryAcquire("flushed");
      await flush();
      expect(await call()).toBe(true);
    }
  });

  it("is used once it is ready, even if it refused while it loaded its data", async () => {
    const [server] = await startNodes(1, { persistence: true, args: sinceRedis7("--enable-debug-command", "yes") });
    await server?.call("DEBUG", "POPULATE", 200_000);
    await server?.call("CONFIG", "SET", "key-load-delay", "10");
    await server?.call("BGREWRITEAOF");
    const redlock = openRedlock([server as RedisServer], { timeout: 25_000 });
    await expect.poll(() => server?.call("INFO", "persistence")).toMatch(/aof_rewrite_in_progress:0/);
    await server?.restart();
    expect((await redlock.acquire("loading")).isHeld()).toBe(true);
  });
});

describe("a connection", () => {
  it("is opened before the first request, which waits for it", async () => {
    const servers = await startNodes(3);
    expect((await openRedlock(servers).tryAcquire("first"))?.isHeld()).toBe(true);
  });

  it("is reopened whenever it is lost", async () => {
    const [server] = await startNodes(1);
    const redlock = openRedlock([server as RedisServer], { timeout: 15_000 });
    for (let round = 0; round < 5; round += 1) {
      await (await redlock.acquire("again")).release();
      await server?.restart();
    }
    expect((await redlock.acquire("again")).isHeld()).toBe(true);
  });

  it("makes the call fail in time with the reason if no server listens", async () => {
    const redlock = openRedlock(["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"]);
    const error = await errorOf(redlock.acquire("nobody", { timeout: 300 }));
    expect(error).toBeInstanceOf(QuorumUnreachableError);
    expect((error as Error).message).toContain("ECONNREFUSED");
  });

  it("belongs to the library: the caller's client is neither used nor closed", async () => {
    const [server] = await startNodes(1);
    const client = new Redis({ path: server?.path ?? "" });
    onTestFinished(() => client.disconnect());
    const redlock = new Redlock([client]);
    await redlock.using("own", () => undefined);
    await redlock.close();
    expect(await client.ping()).toBe("PONG");
  });

  it("uses the key prefix of the caller's client for every key", async () => {
    const [server] = await startNodes(1);
    const client = new Redis({ path: server?.path ?? "", keyPrefix: "app:" });
    onTestFinished(() => client.disconnect());
    const redlock = openRedlock([client], { keyPrefix: "lock:" });
    const lock = await redlock.acquire("r");
    expect(await server?.call("GET", "app:lock:r")).toBe(lock.token);
    const waiter = errorOf(protocolOf(redlock).acquireAt(["r"], { timeout: 500, place: 1 }));
    await expect.poll(() => waitersOf(server as RedisServer, "app:lock:r")).toBe(1);
    await waiter;
  });

  it("refuses a resource that the prefix turns into the key of another lock's fence or line", async () => {
    const [server] = await startNodes(1);
    const client = new Redis({ path: server?.path ?? "", keyPrefix: "{app}:" });
    onTestFinished(() => client.disconnect());
    for (const redlock of [openRedlock([client]), openRedlock([server as RedisServer], { keyPrefix: "{app}:" })]) {
      for (const resource of ["foo:fence", "foo:note", "foo:node:last"]) {
        expect(await errorOf(redlock.acquire(resource))).toBeInstanceOf(RangeError);
        expect(await errorOf(redlock.acquire(["bar", resource]))).toBeInstanceOf(RangeError);
        expect(await errorOf(redlock.forceRelease(resource))).toBeInstanceOf(RangeError);
      }
    }
    expect(await server?.call("DBSIZE")).toBe(0);
  });

  it("is closed by close() after locks, waits, losses and failures", async () => {
    const servers = await startNodes(3);
    const noLeak = watchForLeaks();
    const redlock = new Redlock(
      servers.map((server) => ({ path: server.path })),
      { quarantine: false },
    );
    const lock = await redlock.acquire("a", { autoExtend: true });
    void lock.signal;
    await errorOf(redlock.acquire("a", { timeout: 100 }));
    await redlock.acquire("b", { ttl: 60 });
    await protocolOf(redlock).waitForTurn("c");
    await redlock.close();
    await redlock.close();
    await noLeak();
  });

  it("is closed by close() even if no node has answered its subscriptions", async () => {
    const noLeak = watchForLeaks();
    const redlock = new Redlock([{ path: "/nowhere/1" }, { path: "/nowhere/2" }], {
      quarantine: false,
      nodeTimeout: 60_000,
    });
    const waits = ["first", "behind"].map(() => errorOf(redlock.acquire("down", { timeout: 300 })));
    for (const error of await Promise.all(waits)) expect(error).toBeInstanceOf(QuorumUnreachableError);
    const subscribed = protocolOf(redlock).subscribe("x:test", () => undefined);
    await redlock.close();
    await noLeak();
    await subscribed;
  });

  it("does not keep the process alive when the caller forgets to close it", async () => {
    const servers = await startNodes(1);
    await using child = spawnChild(new URL("./children/closes-nothing.ts", import.meta.url), {
      args: servers.map((server) => server.path),
    });
    expect(await child.exited).toMatchObject({ code: 0 });
    expect(child.output).toContain("done");
  });

  it("keeps the process alive until check() is answered, even if check() reads a setting", async () => {
    const servers = await startNodes(1, { args: ["--appendonly", "yes", "--appendfsync", "no"] });
    await using child = spawnChild(new URL("./children/checks-only.ts", import.meta.url), {
      args: servers.map((server) => server.path),
    });
    expect(await child.exited).toMatchObject({ code: 0 });
    expect(child.output).toContain("done NO_PERSISTENCE");
  });
});

describe("a node that hangs", () => {
  it("does not keep the process alive while its answer is pending", async () => {
    const servers = await startNodes(3);
    await using child = spawnChild(new URL("./children/hung-node.ts", import.meta.url), {
      args: servers.map((server) => server.path),
    });
    await expect.poll(() => child.messages, { timeout: 20_000 }).toContain("ready");
    servers[2]?.freeze();
    child.send("go");
    expect(await child.exited).toMatchObject({ code: 0 });
    expect(child.output).toContain("done");
  });
});

describe("a Redlock whose constructor throws", () => {
  it("leaves no connection open", async () => {
    const [server] = await startNodes(1);
    const nodes = [{ path: server?.path ?? "" }, 42 as unknown as string];
    expect(() => new Redlock(nodes)).toThrow(TypeError);
    await expect
      .poll(async () =>
        String(await server?.call("CLIENT", "LIST"))
          .trim()
          .split("\n"),
      )
      .toHaveLength(1);
  });
});

describe("a custom LockNode", () => {
  it("works by polling with nothing but eval and a state", async () => {
    const [server] = await startNodes(1);
    const client = new Redis({ path: server?.path ?? "" });
    onTestFinished(() => client.disconnect());
    let asked = 0;
    const node = (): LockNode => ({
      name: "mine",
      state: "ready",
      eval: (script, keys, args) => {
        asked += 1;
        return client.eval(script.source, keys.length, ...keys, ...args);
      },
      onStateChange: () => () => undefined,
      close: () => Promise.resolve(),
    });
    const [a, b] = [openRedlock([node()]), openRedlock([node()])];
    const lock = await a.acquire("mine");
    const waiting = b.acquire("mine", { timeout: 10_000 });
    await expect.poll(() => asked).toBeGreaterThan(4);
    await lock.release();
    expect((await waiting).isHeld()).toBe(true);
  });

  it("may throw instead of rejecting, and is asked again", async () => {
    const [server] = await startNodes(1);
    const client = new Redis({ path: server?.path ?? "" });
    onTestFinished(() => client.disconnect());
    let isBroken = true;
    const redlock = openRedlock([
      {
        name: "thrower",
        state: "ready",
        eval: (script, keys, args) => {
          if (isBroken) throw new Error("broken");
          return client.eval(script.source, keys.length, ...keys, ...args);
        },
        onStateChange: () => () => undefined,
        close: () => Promise.resolve(),
      } satisfies LockNode,
    ]);
    for (let round = 0; round < 20; round += 1) {
      await expect(redlock.tryAcquire("r")).rejects.toMatchObject({
        code: "QUORUM_UNREACHABLE",
        votes: [{ node: "thrower", error: "broken" }],
      });
    }
    isBroken = false;
    expect((await redlock.tryAcquire("r"))?.isHeld()).toBe(true);
  });

  it("keeps a force-released lock for the next waiter, without knowing all subscribers", async () => {
    const [server] = await startNodes(1);
    const client = new Redis({ path: server?.path ?? "" });
    onTestFinished(() => client.disconnect());
    const node: LockNode = {
      name: "partial",
      state: "ready",
      countsReceivers: false,
      eval: (script, keys, args) => client.eval(script.source, keys.length, ...keys, ...args),
      onStateChange: () => () => undefined,
      close: () => Promise.resolve(),
    };
    const redlock = openRedlock([node]);
    await redlock.acquire("kept for it");
    await putInLine(client, "kept for it", [memberOf(1, "x:redlock:elsewhere#1")]);
    expect(await redlock.forceRelease("kept for it")).toBe(true);
    expect(await client.get("kept for it")).toBe(`reserved:${memberOf(1, "x:redlock:elsewhere#1")}`);
  });
});

describe("requests made in one turn of the event loop", () => {
  it("are sent together: twenty acquisitions in one, two hundred in four, and their releases as well", async () => {
    const [server] = await startNodes(1);
    const redlock = openRedlock([server as RedisServer]);
    await (await redlock.acquire("warm")).release();
    const before = await requestsOf(server);
    const few = await Promise.all(Array.from({ length: 20 }, (_, index) => redlock.acquire(`few:${index}`)));
    expect((await requestsOf(server)) - before).toBe(1);
    const many = await Promise.all(Array.from({ length: 200 }, (_, index) => redlock.acquire(`many:${index}`)));
    expect((await requestsOf(server)) - before).toBe(5);
    await Promise.all(few.map((lock) => lock.release()));
    expect((await requestsOf(server)) - before).toBe(6);
    await Promise.all(many.map((lock) => lock.release()));
    expect((await requestsOf(server)) - before).toBe(10);
  });

  it.each([
    [1, 50],
    [3, 100],
  ])(
    "are sent before the turn ends if a node has little else to do, in order: %i nodes, %i operations",
    async (nodes, full) => {
      const servers = await startNodes(nodes);
      const sent: string[][] = servers.map(() => []);
      const redlock = openRedlock(
        servers.map((server, index): LockNode => {
          const client = new Redis({ path: server.path });
          onTestFinished(() => client.disconnect());
          return {
            name: `node ${index}`,
            state: "ready",
            eval: async (script, keys, args) => {
              sent[index]?.push(keys.filter((key) => /^r\d+$/.test(key)).join(" "));
              return await client.eval(script.source, keys.length, ...keys, ...args);
            },
            onStateChange: () => () => undefined,
            close: () => Promise.resolve(),
          };
        }),
      );
      const names = Array.from({ length: full + 3 }, (_, index) => `r${index}`);
      const alone = redlock.acquire("alone");
      await new Promise(setImmediate);
      const locks = names.map((name) => redlock.tryAcquire(name));
      const [early, late] = [names.slice(0, full).join(" "), names.slice(full).join(" ")];
      expect(sent.map((requests) => requests.filter(Boolean))).toEqual(servers.map(() => [early]));
      for (const lock of await Promise.all(locks)) expect(lock?.isHeld()).toBe(true);
      await alone;
      expect(sent.map((requests) => requests.filter(Boolean))).toEqual(servers.map(() => [early, late]));
    },
  );

  it("keep a thousand held locks alive with a handful of requests per lease", async () => {
    const [server] = await startNodes(1);
    const clock = new ManualClock();
    const redlock = openRedlock([server as RedisServer], { clock });
    const locks = await Promise.all(
      Array.from({ length: 1_000 }, (_, index) => redlock.acquire(`held:${index}`, { ttl: 30_000, autoExtend: true })),
    );
    const before = await requestsOf(server);
    const steps = 70;
    await pass(redlock, clock, { steps, stepMs: 500 });
    expect(locks.every((lock) => lock.isHeld())).toBe(true);
    // Three or four extensions of a lease, 250 operations a request.
    expect((await requestsOf(server)) - before - steps).toBeLessThanOrEqual(40);
  });

  it("keep their order, so that a release and the next acquisition of the same lock fit into one request", async () => {
    const [server] = await startNodes(1);
    const redlock = openRedlock([server as RedisServer]);
    let lock = await redlock.acquire("order");
    const before = await requestsOf(server);
    for (let round = 0; round < 20; round += 1) {
      const released = lock.release();
      lock = await redlock.acquire("order", { timeout: 0 });
      expect(await released).toBe(true);
    }
    expect((await requestsOf(server)) - before).toBe(20);
  });
});
