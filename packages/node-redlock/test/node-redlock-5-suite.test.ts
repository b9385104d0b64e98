/** The test cases of node-redlock 5 for one and for several instances, from mike-marcacci/node-redlock. */
import { setTimeout as delay } from "node:timers/promises";
import { startCluster, startRedis } from "@x/test-support";
import { Cluster, Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import Redlock, { type RedlockAbortSignal, ResourceLockedError } from "../src/index.ts";
import { executionErrorOf, votesAgainst } from "./support/node-redlock-5.ts";

/** The ttl in node-redlock's own tests: about 28,000 years. */
const forever = Math.floor(Number.MAX_SAFE_INTEGER / 10);

interface Place {
  readonly client: Redis | Cluster;
  readonly close: () => Promise<void>;
}

async function onInstance(): Promise<Place> {
  const server = await startRedis();
  const client = new Redis(server.path);
  return {
    client,
    close: async () => {
      client.disconnect();
      await server.stop();
    },
  };
}

async function onCluster(): Promise<Place> {
  const cluster = await startCluster({ masters: 1 });
  const client = new Cluster(cluster.nodes.map(({ host, port }) => ({ host, port })));
  return {
    client,
    close: async () => {
      client.disconnect();
      await cluster.stop();
    },
  };
}

/** Checks the expiry like node-redlock's tests, but with room for a slow machine. */
async function expectExpiry(client: Redis | Cluster, key: string, duration: number): Promise<void> {
  const pttl = await client.pttl(key);
  expect(pttl).toBeLessThanOrEqual(duration);
  expect(pttl).toBeGreaterThan(duration - 20_000);
}

describe.each([
  { namespace: "instance", open: onInstance },
  { namespace: "cluster", open: onCluster },
])("node-redlock's tests, single $namespace", ({ open }) => {
  let place: Place;
  let redis: Redis | Cluster;
  beforeAll(async () => {
    place = await open();
    redis = place.client;
  });
  afterAll(() => place.close());

  it("acquires, extends, and releases a single lock", async () => {
    const redlock = new Redlock([redis]);
    let lock = await redlock.acquire(["{redlock}a"], forever);
    expect(await redis.get("{redlock}a")).toBe(lock.value);
    await expectExpiry(redis, "{redlock}a", forever);
    lock = await lock.extend(3 * forever);
    expect(await redis.get("{redlock}a")).toBe(lock.value);
    await expectExpiry(redis, "{redlock}a", 3 * forever);
    await lock.release();
    expect(await redis.get("{redlock}a")).toBeNull();
  });

  it("acquires, extends, and releases a multi-resource lock", async () => {
    const redlock = new Redlock([redis]);
    let lock = await redlock.acquire(["{redlock}a1", "{redlock}a2"], forever);
    for (const key of ["{redlock}a1", "{redlock}a2"]) {
      expect(await redis.get(key)).toBe(lock.value);
      await expectExpiry(redis, key, forever);
    }
    lock = await lock.extend(3 * forever);
    for (const key of ["{redlock}a1", "{redlock}a2"]) {
      expect(await redis.get(key)).toBe(lock.value);
      await expectExpiry(redis, key, 3 * forever);
    }
    await lock.release();
    expect(await redis.get("{redlock}a1")).toBeNull();
    expect(await redis.get("{redlock}a2")).toBeNull();
  });

  it("fails when redis is unreachable", async () => {
    const down = await startRedis();
    await down.stop();
    const unreachable = new Redis({
      path: down.path,
      maxRetriesPerRequest: 0,
      autoResendUnfulfilledCommands: false,
      autoResubscribe: false,
      retryStrategy: () => null,
      reconnectOnError: () => false,
    });
    unreachable.on("error", () => undefined);
    onTestFinished(() => unreachable.disconnect());
    const redlock = new Redlock([unreachable]);
    const error = await executionErrorOf(redlock.acquire(["{redlock}b"], forever));
    expect(error.attempts).toHaveLength(11);
    const votes = await votesAgainst(error);
    expect(votes).toHaveLength(11);
    for (const vote of votes) expect(vote.message).toBe("Connection is closed.");
  });

  it("automatically expires locks", async () => {
    const redlock = new Redlock([redis]);
    const lock = await redlock.acquire(["{redlock}d"], 1_000);
    expect(await redis.get("{redlock}d")).toBe(lock.value);
    await expect.poll(() => redis.get("{redlock}d")).toBeNull();
    const lock2 = await redlock.acquire(["{redlock}d"], 2_000);
    expect(lock2.value).not.toBe(lock.value);
    expect(await redis.get("{redlock}d")).toBe(lock2.value);
    await lock2.release();
    expect(await redis.get("{redlock}d")).toBeNull();
  });

  it("has exclusive individual locks", async () => {
    const redlock = new Redlock([redis]);
    const lock = await redlock.acquire(["{redlock}c"], forever);
    const error = await executionErrorOf(redlock.acquire(["{redlock}c"], forever));
    expect(error.attempts).toHaveLength(11);
    for (const vote of await votesAgainst(error)) expect(vote).toBeInstanceOf(ResourceLockedError);
    expect(await redis.get("{redlock}c")).toBe(lock.value);
    await lock.release();
    expect(await redis.get("{redlock}c")).toBeNull();
  });

  it("has exclusive overlapping multi-locks", async () => {
    const redlock = new Redlock([redis]);
    const lock = await redlock.acquire(["{redlock}c1", "{redlock}c2"], forever);
    const error = await executionErrorOf(redlock.acquire(["{redlock}c2", "{redlock}c3"], forever));
    expect(await redis.get("{redlock}c1")).toBe(lock.value);
    expect(await redis.get("{redlock}c2")).toBe(lock.value);
    expect(await redis.get("{redlock}c3")).toBeNull();
    expect(error.attempts).toHaveLength(11);
    for (const vote of await votesAgainst(error)) expect(vote).toBeInstanceOf(ResourceLockedError);
    await lock.release();
    expect(await redis.get("{redlock}c1")).toBeNull();
    expect(await redis.get("{redlock}c2")).toBeNull();
  });

  it("acquires, extends, and releases in `using`", async () => {
    const redlock = new Redlock([redis]);
    const value = await redlock.using(
      ["{redlock}x"],
      2_000,
      { automaticExtensionThreshold: 1_500 },
      async (signal: RedlockAbortSignal) => {
        const lockValue = await redis.get("{redlock}x");
        expect(typeof lockValue).toBe("string");
        // Longer than the first lease of the lock.
        await delay(2_600);
        expect(signal.aborted).toBe(false);
        expect(signal.error).toBeUndefined();
        expect(await redis.get("{redlock}x")).toBe(lockValue);
        return lockValue;
      },
    );
    expect(typeof value).toBe("string");
    expect(await redis.get("{redlock}x")).toBeNull();
  });

  it("is exclusive in `using`", async () => {
    const redlock = new Redlock([redis]);
    let locked = false;
    const routine = async (signal: RedlockAbortSignal): Promise<string | null> => {
      expect(locked).toBe(false);
      locked = true;
      const lockValue = await redis.get("{redlock}y");
      // Longer than the first lease of the lock.
      await delay(1_300);
      expect(signal.error).toBeUndefined();
      expect(signal.aborted).toBe(false);
      expect(await redis.get("{redlock}y")).toBe(lockValue);
      locked = false;
      return lockValue;
    };
    const [lock1, lock2] = await Promise.all([
      redlock.using(["{redlock}y"], 1_200, { automaticExtensionThreshold: 1_000 }, routine),
      redlock.using(["{redlock}y"], 1_200, { automaticExtensionThreshold: 1_000 }, routine),
    ]);
    expect(lock1).not.toBe(lock2);
    expect(await redis.get("{redlock}y")).toBeNull();
  });
});

describe.each([
  { namespace: "instances", open: onInstance, count: 3 },
  { namespace: "clusters", open: onCluster, count: 3 },
  { namespace: "instances", open: onInstance, count: 4 },
])("node-redlock's tests, $count $namespace", ({ open, count }) => {
  let places: Place[];
  let clients: (Redis | Cluster)[];
  beforeAll(async () => {
    places = await Promise.all(Array.from({ length: count }, open));
    clients = places.map((place) => place.client);
  });
  afterAll(async () => {
    await Promise.all(places.map((place) => place.close()));
  });

  const valuesOf = (key: string): Promise<(string | null)[]> => Promise.all(clients.map((client) => client.get(key)));

  it("acquires, extends, and releases a single lock", async () => {
    const redlock = new Redlock(clients);
    let lock = await redlock.acquire(["{redlock}a"], forever);
    expect(await valuesOf("{redlock}a")).toEqual(clients.map(() => lock.value));
    for (const client of clients) await expectExpiry(client, "{redlock}a", forever);
    lock = await lock.extend(3 * forever);
    expect(await valuesOf("{redlock}a")).toEqual(clients.map(() => lock.value));
    for (const client of clients) await expectExpiry(client, "{redlock}a", 3 * forever);
    await lock.release();
    expect(await valuesOf("{redlock}a")).toEqual(clients.map(() => null));
  });

  it("succeeds when a minority of clients fail", async () => {
    const redlock = new Redlock(clients);
    const [other, ...rest] = clients.toReversed();
    await other?.set("{redlock}b", "other");
    let lock = await redlock.acquire(["{redlock}b"], forever);
    for (const client of rest) expect(await client.get("{redlock}b")).toBe(lock.value);
    expect(await other?.get("{redlock}b")).toBe("other");
    expect(await other?.pttl("{redlock}b")).toBe(-1);
    lock = await lock.extend(3 * forever);
    for (const client of rest) await expectExpiry(client, "{redlock}b", 3 * forever);
    expect(await other?.get("{redlock}b")).toBe("other");
    expect(await other?.pttl("{redlock}b")).toBe(-1);
    await lock.release();
    for (const client of rest) expect(await client.get("{redlock}b")).toBeNull();
    expect(await other?.get("{redlock}b")).toBe("other");
  });

  it("fails when a majority of clients fail", async () => {
    const redlock = new Redlock(clients);
    const [first, ...others] = clients;
    for (const [index, client] of others.entries()) await client.set("{redlock}c", `other${index}`);
    const error = await executionErrorOf(redlock.acquire(["{redlock}c"], forever));
    expect(error.attempts).toHaveLength(11);
    expect(await first?.get("{redlock}c")).toBeNull();
    for (const [index, client] of others.entries()) expect(await client.get("{redlock}c")).toBe(`other${index}`);
    const votes = await votesAgainst(error);
    expect(votes).toHaveLength(11 * others.length);
    for (const vote of votes) {
      expect(vote).toBeInstanceOf(ResourceLockedError);
      expect(vote.message).toBe("The operation was applied to: 0 of the 1 requested resources.");
    }
  });
});
