/**
 * Locks of other libraries and of this project on the same keys of real nodes: each library sees the other's lock as
 * held.
 */
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { Redlock as CompatRedlock } from "@x/node-redlock";
import { Redlock, type RedlockOptions } from "@x/redlock-core";
import { type RedisServer, startRedis, startRedisNodes } from "@x/test-support";
import { Redis, type RedisOptions } from "ioredis";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { NodeRedlock5, type Peer, type PeerKind, peerKinds, type Redlock5, type Release } from "./peers.ts";

const cases = peerKinds.flatMap((kind) => [1, 3].map((nodeCount) => ({ kind, name: kind.name, nodeCount })));

describe.each(cases)("$name and this project on $nodeCount nodes", ({ kind, nodeCount }) => {
  let servers: RedisServer[];
  beforeAll(async () => {
    servers = await startRedisNodes(nodeCount);
  });
  afterAll(async () => {
    await Promise.all(servers.map((server) => server.stop()));
  });

  const open = (options: RedlockOptions = {}): { readonly ours: Redlock; readonly theirs: Peer } => ({
    ours: openOurs(servers, kind, options),
    theirs: openTheirs(servers, kind),
  });

  it("the peer sees a lock of this project as held, until it is released", async () => {
    const { ours, theirs } = open();
    const lock = await ours.acquire("a");
    expect(await theirs.tryAcquire("a")).toBeNull();
    expect(lock.isHeld()).toBe(true);
    expect(await lock.release()).toBe(true);
    const release = await untilAcquired(theirs, "a");
    await release();
  });

  it("this project sees a lock of the peer as held, and waits until it is released", async () => {
    const { ours, theirs } = open();
    const release = await untilAcquired(theirs, "b");
    expect(await ours.tryAcquire("b")).toBeNull();
    expect((await ours.inspect("b")).verdict).toBe("held");
    await release();
    const lock = await untilOurs(ours, "b");
    expect(await lock.release()).toBe(true);
  });

  it("neither releases or extends a lock of the other", async () => {
    const { ours, theirs } = open();
    const before = await untilAcquired(theirs, "c");
    await Promise.all(servers.map((server) => server.call("DEL", `${kind.keyPrefix}c`)));
    const lock = await ours.acquire("c");
    await Promise.allSettled([before()]);
    await lock.extend();
    expect(lock.isHeld()).toBe(true);
    await Promise.all(servers.map((server) => server.call("DEL", `${kind.keyPrefix}c`)));
    const release = await untilAcquired(theirs, "c");
    expect(await lock.release()).toBe(false);
    expect(await ours.tryAcquire("c")).toBeNull();
    await release();
  });

  it("the peer treats a reservation as a held lock, and leaves the lock to the waiter", async () => {
    const { ours, theirs } = open();
    const lock = await ours.acquire("d");
    // The value that the release script writes for a waiter, with a longer lifetime.
    const reservation = "reserved:1:x:redlock:gone#1";
    const key = `${kind.keyPrefix}d`;
    await Promise.all(servers.map((server) => server.call("SET", key, reservation, "PX", 60_000)));
    expect(await lock.release()).toBe(false);
    expect(await theirs.tryAcquire("d")).toBeNull();
    expect(await Promise.all(servers.map((server) => server.call("GET", key)))).toEqual(servers.map(() => reservation));
    await Promise.all(servers.map((server) => server.call("DEL", key)));
    await (await untilAcquired(theirs, "d"))();
  });

  it("the side keys of this project do not disturb the peer, and their absence does not disturb this project", async () => {
    const { ours, theirs } = open();
    const first = await ours.acquire("e");
    await first.release();
    const kept = await Promise.all(servers.map((server) => server.call("EXISTS", "{x}:node", "{x}:node:last")));
    expect(kept.filter((count) => count === 1).length).toBeGreaterThanOrEqual(ours.quorum);
    await (await untilAcquired(theirs, "e"))();
    const second = await untilOurs(ours, "e");
    expect(second.fencingToken).toBeGreaterThan(first.fencingToken);
    await second.release();
    await Promise.all(servers.map((server) => server.flush()));
    await (await untilAcquired(theirs, "e"))();
    await (await untilOurs(ours, "e")).release();
  });

  it("no holders overlap under contention, and every participant acquires the lock", async () => {
    const participants = [0, 1, 2, 3].map((index) => {
      const { ours, theirs } = open({ timeout: 20_000 });
      return index < 2 ? { theirs } : { ours };
    });
    let inside = 0;
    let overlaps = 0;
    const grants = [0, 0, 0, 0];
    const enter = async (index: number, release: Release): Promise<void> => {
      inside += 1;
      if (inside > 1) overlaps += 1;
      await servers[0]?.call("PING");
      inside -= 1;
      grants[index] = (grants[index] ?? 0) + 1;
      await release();
    };
    await Promise.all(
      participants.map(async ({ ours, theirs }, index) => {
        for (let grant = 0; grant < 15; grant += 1) {
          if (theirs !== undefined) await enter(index, await untilAcquired(theirs, "contended"));
          else if (ours !== undefined) {
            const lock = await ours.acquire("contended");
            await enter(index, () => lock.release());
          }
          await delay(Math.random() * 4);
        }
      }),
    );
    expect(overlaps).toBe(0);
    expect(grants).toEqual([15, 15, 15, 15]);
  });
});

describe.each(["node-redlock 5", "ours with its class"] as const)("%s while Redis is unreachable", (name) => {
  async function open(
    options: Pick<RedisOptions, "maxRetriesPerRequest" | "enableOfflineQueue"> = {},
  ): Promise<{ readonly server: RedisServer; readonly client: Redis; readonly peer: Redlock5 }> {
    const server = await startRedis();
    const client = new Redis({ port: server.port, ...options });
    client.on("error", () => undefined);
    onTestFinished(async () => {
      client.disconnect();
      await server.stop();
    });
    if (client.status !== "ready") await once(client, "ready");
    await server.kill();
    await expect.poll(() => client.status).toBe("reconnecting");
    const Class = name === "node-redlock 5" ? NodeRedlock5 : (CompatRedlock as unknown as typeof NodeRedlock5);
    const peer = new Class([client], { retryCount: 0 });
    peer.on("error", () => undefined);
    return { server, client, peer };
  }

  it("waits for Redis, without its own retries", async () => {
    const { server, client, peer } = await open();
    let isSettled = false;
    const waiting = peer.acquire(["later"], 20_000).finally(() => {
      isSettled = true;
    });
    waiting.catch(() => undefined);
    // Wait until the client has tried twice to reach the node.
    for (let times = 0; times < 2; times += 1) await new Promise((resolve) => client.once("reconnecting", resolve));
    expect(isSettled).toBe(false);
    await server.restart();
    await (await waiting).release();
  });

  it.each([
    ["gives up a command", { maxRetriesPerRequest: 1 }],
    ["has no offline queue", { enableOfflineQueue: false }],
  ])("rejects when the client %s", async (_, options) => {
    const { peer } = await open({ ...options });
    await expect(peer.acquire(["never"], 20_000)).rejects.toMatchObject({ name: "ExecutionError" });
  });
});

function openOurs(servers: readonly RedisServer[], kind: PeerKind, options: RedlockOptions): Redlock {
  const redlock = new Redlock(
    servers.map(({ path }) => ({ path })),
    { keyPrefix: kind.keyPrefix, quarantine: false, ...options },
  );
  onTestFinished(() => redlock.close());
  return redlock;
}

function openTheirs(servers: readonly RedisServer[], kind: PeerKind): Peer {
  const clients = servers.map(({ path }) => new Redis(path));
  for (const client of clients) client.on("error", () => undefined);
  onTestFinished(() => {
    for (const client of clients) client.disconnect();
  });
  return kind.open(clients);
}

async function untilAcquired(peer: Peer, resource: string): Promise<Release> {
  for (;;) {
    const release = await peer.tryAcquire(resource);
    if (release !== null) return release;
    await delay(2 + Math.random() * 6);
  }
}

/** Acquires the lock, even while releases are still on their way to some of the nodes. */
async function untilOurs(redlock: Redlock, resource: string): ReturnType<Redlock["acquire"]> {
  return await redlock.acquire(resource, { timeout: 20_000 });
}
