/** Waiters whose messages are lost, whose process's clock is wrong, or that leave their line. */
import { EventEmitter } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { errorOf, memberOf, putInLine, type RedisServer, startCluster, startProxy, waitersOf } from "@x/test-support";
import { Cluster } from "ioredis";
import { Cluster as Cluster5 } from "ioredis5";
import { describe, expect, it, onTestFinished } from "vitest";
import { type Clock, type Lock, LockHeldError, type Redlock, type RedlockOptions, systemClock } from "../src/index.ts";
import { IoredisNode } from "../src/nodes/ioredis.ts";
import { protocolOf } from "../src/protocol.ts";
import { nodeKeysOf } from "../src/rules/keys.ts";
import { clients } from "./support/clients.ts";
import { everyNodeAnswers, openRedlock, startNodes } from "./support/nodes.ts";
import { granted, StubNode } from "./support/stub-node.ts";

const far = { ttl: 60_000, timeout: 60_000 } as const;

/** A clock whose timers of `longMs` run after 500 ms. */
function hurried(longMs: number): Clock {
  return {
    ...systemClock,
    schedule: (afterMs, run, options) => systemClock.schedule(afterMs === longMs ? 500 : afterMs, run, options),
  };
}

/** A connection that is asked for a sign of life every 15 seconds is asked every half of one. */
const curious = hurried(15_000);

/** Clients that are connected to every node, so that a lock is held on all nodes. */
async function connected(servers: readonly RedisServer[], count: number, options?: RedlockOptions): Promise<Redlock[]> {
  const redlocks = Array.from({ length: count }, () => openRedlock(servers, options));
  for (const redlock of redlocks) await everyNodeAnswers(redlock);
  return redlocks;
}

/** Resolves when all nodes hold the lock, including the nodes that the grant did not wait for. */
async function heldEverywhere(redlock: Redlock, resource: string): Promise<void> {
  await expect
    .poll(async () => (await redlock.inspect(resource)).nodes.every(({ state }) => state === "held"))
    .toBe(true);
}

async function enrolled(redlock: Redlock, resource: string, waiters: readonly number[]): Promise<void> {
  await expect
    .poll(async () => (await redlock.inspect(resource)).nodes.map((node) => node.waiters))
    .toEqual([...waiters]);
}

describe("a waiter whose connections for messages break just as the lock is released", () => {
  it.each(Object.keys(clients))("acquires the lock as soon as it receives messages again (%s)", async (name) => {
    const [server] = (await startNodes(1)) as [RedisServer];
    const holding = openRedlock([server]);
    const waiting = openRedlock([clients[name]?.(`redis://127.0.0.1:${server.port}`) ?? ""], { clock: curious });
    const lock = await holding.acquire("r", far);
    const next = waiting.acquire("r", far);
    await enrolled(holding, "r", [1]);
    await server.call("CLIENT", "KILL", "TYPE", "pubsub");
    await lock.release();
    expect(await waitersOf(server, "r")).toBe(0);
    expect((await next).isHeld()).toBe(true);
  });

  it("acquires the lock on several nodes, as do all waiters behind it", async () => {
    const servers = await startNodes(3);
    const [holding, waiting] = (await connected(servers, 2)) as [Redlock, Redlock];
    const lock = await holding.acquire("r", far);
    const nexts = [1, 2, 3].map(async () => await (await waiting.acquire("r", far)).release());
    await expect
      .poll(async () => (await holding.inspect("r")).nodes.filter((node) => node.waiters === 1).length)
      .toBeGreaterThanOrEqual(2);
    await Promise.all(servers.map((server) => server.call("CLIENT", "KILL", "TYPE", "pubsub")));
    await lock.release();
    expect(await Promise.all(nexts)).toEqual([true, true, true]);
  });
});

describe("a waiter on a Cluster whose connections for messages break just as the lock is released", () => {
  it.each([
    ["ioredis", Cluster],
    ["ioredis 5", Cluster5],
  ])("acquires the lock soon (%s)", async (_name, Client) => {
    await using cluster = await startCluster({ masters: 3 });
    const [holding, waiting] = [1, 2].map(() => {
      const client = new Client([{ host: "127.0.0.1", port: cluster.nodes[0]?.port ?? 0 }]);
      client.on("error", () => undefined);
      onTestFinished(() => client.disconnect());
      return openRedlock([client], { nodeTimeout: 50 });
    }) as [Redlock, Redlock];
    for (const redlock of [holding, waiting]) {
      await expect.poll(async () => await (await redlock.acquire("warm")).release().catch(() => false)).toBe(true);
    }
    const lock = await holding.acquire("r", far);
    const next = waiting.acquire("r", far);
    await enrolled(holding, "r", [1]);
    const kill = async (node: RedisServer): Promise<unknown> => await node.call("CLIENT", "KILL", "TYPE", "pubsub");
    await Promise.all(cluster.nodes.map(kill));
    await lock.release();
    expect((await next).isHeld()).toBe(true);
  });
});

/** A Cluster as ioredis makes it, as far as messages go over it. */
class CarrierCluster extends EventEmitter {
  readonly isCluster = true;
  readonly options = {};
  readonly status = "ready";
  carrier = { status: "wait", ping: async (): Promise<string> => "PONG" };
  confirm: () => void = () => undefined;
  readonly subscriber = { getInstance: (): object => this.carrier };
  duplicate(): this {
    return this;
  }
  subscribe(): Promise<void> {
    return new Promise((resolve) => (this.confirm = resolve));
  }
  disconnect(): void {
    this.carrier.status = "end";
  }
}

it("a Cluster's connection for messages is reported missing if it is replaced between two checks", async () => {
  const cluster = new CarrierCluster();
  const node = IoredisNode.of(cluster, { nodeTimeoutMs: 50, clock: systemClock });
  let gaps = 0;
  const subscribed = node.subscribe(
    "news",
    () => undefined,
    () => (gaps += 1),
  );
  await new Promise(setImmediate);
  node.checkMessages();
  cluster.carrier.status = "ready";
  cluster.confirm();
  await subscribed;
  cluster.carrier = { ...cluster.carrier };
  node.checkMessages();
  await expect.poll(() => gaps).toBe(1);
  await node.close();
});

describe("a waiter whose user loses the right to channels", () => {
  /** The waiter was refused the channel on a new connection, and has the right to it again. */
  async function refusedOnce(
    name: string,
    clock: Clock,
  ): Promise<{ server: RedisServer; lock: Lock; next: Promise<Lock> }> {
    const [server] = (await startNodes(1)) as [RedisServer];
    await server.call("ACL", "SETUSER", "waiting", "on", ">secret", "~*", "&*", "+@all");
    const holding = openRedlock([server]);
    const url = `redis://waiting:secret@127.0.0.1:${server.port}`;
    const waiting = openRedlock([clients[name]?.(url) ?? ""], { clock });
    const lock = await holding.acquire("r", far);
    const next = waiting.acquire("r", far);
    await enrolled(holding, "r", [1]);
    await server.call("ACL", "SETUSER", "waiting", "resetchannels");
    await server.call("CLIENT", "KILL", "TYPE", "pubsub");
    await expect.poll(async () => String(await server.call("ACL", "LOG"))).toContain("channel");
    await server.call("ACL", "SETUSER", "waiting", "allchannels");
    return { server, lock, next };
  }

  it.each(Object.keys(clients))("receives messages again once the right is restored (%s)", async (name) => {
    const { lock, next } = await refusedOnce(name, curious);
    await lock.release();
    expect((await next).isHeld()).toBe(true);
  });

  it.each(Object.keys(clients))("subscribes again while it waits, once the right is restored (%s)", async (name) => {
    const { server, lock, next } = await refusedOnce(name, hurried(5_000));
    await expect.poll(() => server.call("PUBSUB", "CHANNELS", "x:redlock:*"), { timeout: 10_000 }).toHaveLength(1);
    await lock.release();
    expect((await next).isHeld()).toBe(true);
  });

  it.each(Object.keys(clients))("polls without the right, and acquires the lock soon (%s)", async (name) => {
    const [server] = (await startNodes(1)) as [RedisServer];
    await server.call("ACL", "SETUSER", "waiting", "on", ">secret", "~*", "&*", "+@all");
    const holding = openRedlock([server]);
    const waiting = openRedlock([clients[name]?.(`redis://waiting:secret@127.0.0.1:${server.port}`) ?? ""], {
      clock: curious,
    });
    const lock = await holding.acquire("r", far);
    const next = waiting.acquire("r", far);
    await enrolled(holding, "r", [1]);
    await server.call("ACL", "SETUSER", "waiting", "resetchannels");
    await server.call("CLIENT", "KILL", "TYPE", "pubsub");
    await expect.poll(async () => String(await server.call("ACL", "LOG"))).toContain("channel");
    await lock.release();
    expect((await next).isHeld()).toBe(true);
  });
});

describe("subscribe", () => {
  it.each(Object.keys(clients))("receives messages from a node that refused at first (%s)", async (name) => {
    const [server] = (await startNodes(1)) as [RedisServer];
    await server.call("ACL", "SETUSER", "deaf", "on", ">secret", "~*", "resetchannels", "+@all");
    const redlock = openRedlock([clients[name]?.(`redis://deaf:secret@127.0.0.1:${server.port}`) ?? ""]);
    const heard: string[] = [];
    const stop = await protocolOf(redlock).subscribe("news", (message) => heard.push(message));
    await server.call("ACL", "SETUSER", "deaf", "allchannels");
    // A client may drop messages that arrive before it knows that it is subscribed.
    const publish = async (): Promise<boolean> => {
      await server.call("PUBLISH", "news", "heard");
      return heard.includes("heard");
    };
    await expect.poll(publish, { interval: 200, timeout: 20_000 }).toBe(true);
    stop();
    await expect.poll(async () => await server.call("PUBSUB", "CHANNELS")).toEqual([]);
  });
});

describe("waiters of one process whose clock is ahead", () => {
  it("are all served before later waiters", async () => {
    const [server] = (await startNodes(1)) as [RedisServer];
    const clock = { ...systemClock, wallMs: (): number => systemClock.wallMs() + 3_600_000 };
    const [ahead, right] = [openRedlock([server], { clock }), openRedlock([server])];
    const lock = await right.acquire("r", far);
    const served: string[] = [];
    const queue = async (redlock: Redlock, name: string): Promise<void> => {
      const held = await redlock.acquire("r", far);
      served.push(name);
      await held.release();
    };
    const first = [queue(ahead, "first"), queue(ahead, "second"), queue(ahead, "third")];
    await enrolled(right, "r", [1]);
    const last = queue(openRedlock([server]), "last");
    await enrolled(right, "r", [2]);
    await lock.release();
    await Promise.all([...first, last]);
    expect(served).toEqual(["first", "second", "third", "last"]);
  });
});

describe("a process that was frozen while an answer arrived", () => {
  it("does not correct its clock", async () => {
    const [server] = (await startNodes(1)) as [RedisServer];
    let frozenMs = 0;
    const clock = {
      ...systemClock,
      monotonicMs: (): number => systemClock.monotonicMs() + frozenMs,
      wallMs: (): number => systemClock.wallMs() + frozenMs,
    };
    const [holding, blocked] = [openRedlock([server]), openRedlock([server], { nodeTimeout: 10_000, clock })];
    await holding.acquire("r", far);
    expect(await blocked.tryAcquire("r")).toBeNull();
    const before = protocolOf(blocked).placeAt(0);
    const attempt = blocked.tryAcquire("r");
    // The request has been sent.
    await Promise.resolve();
    await new Promise((resolve) => process.nextTick(resolve));
    frozenMs = 2_000;
    expect(await attempt).toBeNull();
    expect(Math.abs(protocolOf(blocked).placeAt(1e12) - 1e15 - before)).toBeLessThan(1_000_000);
  });
});

describe("the line on a node", () => {
  it("keeps no waiter for a turn once the lease must have ended", async () => {
    const [server] = (await startNodes(1)) as [RedisServer];
    const redlock = openRedlock([server]);
    const lock = await redlock.acquire("r", { ttl: 2_000, autoExtend: true });
    await protocolOf(redlock).waitForTurn("r");
    expect(lock.isHeld()).toBe(true);
    await enrolled(redlock, "r", [0]);
  });

  it("keeps no waiter that left while the node was unreachable", async () => {
    const [server] = (await startNodes(1)) as [RedisServer];
    const proxy = await startProxy({ path: server.path });
    onTestFinished(() => proxy.stop());
    const [holding, waiting] = [openRedlock([server]), openRedlock([proxy.url])];
    await holding.acquire("r", far);
    const cancelled = new AbortController();
    const wait = waiting.acquire("r", { ...far, signal: cancelled.signal });
    await enrolled(holding, "r", [1]);
    proxy.refuse();
    proxy.drop();
    cancelled.abort();
    await expect(wait).rejects.toThrow("aborted");
    proxy.heal();
    await enrolled(holding, "r", [0]);
  });

  it("keeps no waiter that the other nodes have granted the lock", async () => {
    const servers = await startNodes(3);
    const [holding, waiting] = (await connected(servers, 2)) as [Redlock, Redlock];
    await servers[2]?.call("SET", "r", "somebody else's");
    const lock = await holding.acquire("r", far);
    await heldEverywhere(holding, "r");
    const next = waiting.acquire("r", far);
    await enrolled(holding, "r", [1, 1, 1]);
    await lock.release();
    expect((await next).isHeld()).toBe(true);
    await enrolled(holding, "r", [0, 0, 0]);
  });

  it("receives no request to remove a waiter that gave up behind a lock of its own process", async () => {
    const node = Object.assign(new StubNode(), { subscribe: () => Promise.resolve(() => undefined) });
    node.answer = (operations) => Promise.resolve(granted(operations));
    const redlock = openRedlock([node]);
    await redlock.acquire("r", far);
    const controller = new AbortController();
    const { signal } = controller;
    const behind = [{ timeout: 50 }, { ...far, signal }, { ...far, signal }].map((options) =>
      errorOf(redlock.acquire("r", options)),
    );
    expect(await behind[0]).toBeInstanceOf(LockHeldError);
    controller.abort();
    await Promise.all(behind);
    await redlock.close();
    expect(node.operations.map(([kind = ""]) => kind.toUpperCase())).toEqual(["A", "R"]);
  });
});

describe("forceRelease", () => {
  it("does not release the lock that a waiter of the same process acquires because of it", async () => {
    const servers = await startNodes(3);
    const [holding, operator] = (await connected(servers, 2, { nodeTimeout: 1_000 })) as [Redlock, Redlock];
    await holding.acquire("r", far);
    await heldEverywhere(holding, "r");
    const next = operator.acquire("r", far);
    await enrolled(holding, "r", [1, 1, 1]);
    servers[2]?.freeze();
    expect(await operator.forceRelease("r")).toBe(true);
    expect((await next).isHeld()).toBe(true);
  });

  it("releases no lock when it reaches only a minority", async () => {
    const servers = await startNodes(3);
    const [redlock] = (await connected(servers, 1, { nodeTimeout: 1_000 })) as [Redlock];
    const lock = await redlock.acquire("r", far);
    for (const server of servers.slice(1)) server.freeze();
    expect(await redlock.forceRelease("r")).toBe(false);
    expect(lock.isHeld()).toBe(true);
  });
});

describe("a Redis user without rights to channels", () => {
  it("acquires a free lock even if dead waiters are in line", async () => {
    const [server] = (await startNodes(1)) as [RedisServer];
    await server.call("ACL", "SETUSER", "deaf", "on", ">secret", "~*", "resetchannels", "+@all");
    const url = `redis://deaf:secret@127.0.0.1:${server.port}`;
    const [holding, other, third] = [openRedlock([url]), openRedlock([url]), openRedlock([url])];
    const lock = await holding.acquire("r", far);
    await expect(other.acquire("r", { timeout: 300 })).rejects.toThrow("held");
    await putInLine(
      server,
      "r",
      [1, 2, 3].map((each) => memberOf(each, `x:redlock:gone#${each}`)),
    );
    await lock.release();
    expect((await third.tryAcquire("r"))?.isHeld()).toBe(true);
  });
});

describe("a lock in a Cluster slot that is moved", () => {
  it.each([380, 440, 470])(
    "exists on the new node only if the attempt acquired it (moved after %i ms)",
    async (moveMs) => {
      await using cluster = await startCluster({ masters: 3 });
      const [from, to] = cluster.nodes as [RedisServer, RedisServer];
      const client = new Cluster([{ host: "127.0.0.1", port: from.port }]);
      client.on("error", () => undefined);
      onTestFinished(() => client.disconnect());
      const redlock = openRedlock([client], { nodeTimeout: 500 });
      const slotOf = async (name: string): Promise<number> => Number(await from.call("CLUSTER", "KEYSLOT", name));
      let resource = "r";
      while ((await slotOf(resource)) > 5_000) resource += "r";
      await (await redlock.acquire(resource)).release();
      const slot = await slotOf(resource);
      const [fromId, toId] = [await from.call("CLUSTER", "MYID"), await to.call("CLUSTER", "MYID")];
      await from.call("DEL", ...Object.values(nodeKeysOf(slot)));
      await to.call("CLUSTER", "SETSLOT", slot, "IMPORTING", String(fromId));
      await from.call("CLUSTER", "SETSLOT", slot, "MIGRATING", String(toId));
      const attempt = redlock.tryAcquire(resource, { ttl: 60_000 }).catch(() => null);
      await delay(moveMs);
      await Promise.all([to, from].map((node) => node.call("CLUSTER", "SETSLOT", slot, "NODE", String(toId))));
      const lock = await attempt;
      // Twice the time that a request may take, by way of another node, to the node that has the slot now.
      await delay(1_000);
      await expect.poll(async () => Number(await to.call("PTTL", resource)) > 0).toBe(lock?.isHeld() === true);
    },
  );
});
