/** The drop-in for redis-semaphore next to the original on the same keys. */
import { type RedisServer, startRedisNodes } from "@x/test-support";
import { Redis } from "ioredis";
import * as theirs from "redis-semaphore";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import * as ours from "../src/redis-semaphore.ts";
import { aName } from "./support/redlock.ts";

let servers: readonly RedisServer[];
let clients: readonly Redis[];

beforeAll(async () => {
  servers = await startRedisNodes(3);
  clients = servers.map(({ path }) => new Redis({ path }));
});

afterAll(async () => {
  for (const client of clients) client.disconnect();
  await Promise.all(servers.map((server) => server.stop()));
});

function client(): Redis {
  const [first] = clients;
  if (first === undefined) throw new Error("no server yet");
  return first;
}

/** Leases that no busy machine misses, and one try. */
const ONCE = { lockTimeout: 60_000, acquireAttemptsLimit: 1, acquireTimeout: 60_000 };

/** Releases with the test. */
function kept<Lock extends { release(): Promise<void> }>(lock: Lock): Lock {
  onTestFinished(() => lock.release());
  return lock;
}

describe.each([
  ["ours", "theirs", ours, theirs],
  ["theirs", "ours", theirs, ours],
] as const)("a lock of %s excludes a lock of %s", (_first, _second, first, second) => {
  it("Mutex", async () => {
    const name = aName();
    const held = new first.Mutex(client(), name, ONCE);
    const other = kept(new second.Mutex(client(), name, ONCE));
    expect(await held.tryAcquire()).toBe(true);
    expect(await other.tryAcquire()).toBe(false);
    await held.release();
    expect(await other.tryAcquire()).toBe(true);
    expect(other.isAcquired).toBe(true);
  });

  it("RedlockMutex", async () => {
    const name = aName();
    const held = new first.RedlockMutex([...clients], name, ONCE);
    const other = kept(new second.RedlockMutex([...clients], name, ONCE));
    expect(await held.tryAcquire()).toBe(true);
    expect(await other.tryAcquire()).toBe(false);
    expect(await new second.Mutex(client(), name, ONCE).tryAcquire()).toBe(false);
    await held.release();
    await expect.poll(() => other.tryAcquire(), { timeout: 20_000 }).toBe(true);
  });

  it("Semaphore and MultiSemaphore", async () => {
    const name = aName();
    const held = new first.MultiSemaphore(client(), name, 3, 2, ONCE);
    const one = kept(new second.Semaphore(client(), name, 3, ONCE));
    const two = kept(new second.MultiSemaphore(client(), name, 3, 2, ONCE));
    expect(await held.tryAcquire()).toBe(true);
    expect(await two.tryAcquire()).toBe(false);
    expect(await one.tryAcquire()).toBe(true);
    expect(await kept(new first.Semaphore(client(), name, 3, ONCE)).tryAcquire()).toBe(false);
    await held.release();
    expect(await two.tryAcquire()).toBe(true);
  });

  it("hands a lock over with its identifier", async () => {
    const name = aName();
    const held = new first.Mutex(client(), name, { ...ONCE, refreshInterval: 0 });
    await held.acquire();
    const { identifier } = held;
    const taken = new second.Mutex(client(), name, { ...ONCE, identifier, acquiredExternally: true });
    await taken.acquire();
    await taken.release();
    expect(await client().exists(`mutex:${name}`)).toBe(0);
  });
});

describe("a lock", () => {
  it("is lost when another holder has acquired it, and reports this once", async () => {
    const name = aName();
    const lost: unknown[] = [];
    const onLockLost = (error: ours.LostLockError): void => void lost.push(error);
    const mutex = new ours.Mutex(client(), name, { ...ONCE, refreshInterval: 10, onLockLost });
    await mutex.acquire();
    await client().set(`mutex:${name}`, "another");
    await expect.poll(() => lost.length, { timeout: 20_000 }).toBe(1);
    expect(lost[0]).toBeInstanceOf(ours.LostLockError);
    expect(mutex.isAcquired).toBe(false);
    await mutex.release();
    expect(await client().get(`mutex:${name}`)).toBe("another");
  });

  it("ends by its own clock when its node does not answer, without an unhandled rejection", async () => {
    const lost: unknown[] = [];
    const down = { eval: () => Promise.reject(new Error("down")), evalsha: () => Promise.reject(new Error("down")) };
    const flaky = { isUp: true };
    const real: ours.RedisClient = client();
    const through: ours.RedisClient = {
      eval: (...args) => (flaky.isUp ? real.eval(...args) : down.eval()),
      evalsha: (...args) => (flaky.isUp ? real.evalsha(...args) : down.evalsha()),
    };
    const options = {
      lockTimeout: 400,
      refreshInterval: 50,
      onLockLost: (error: Error): void => void lost.push(error),
    };
    const mutex = new ours.Mutex(through, aName(), options);
    await mutex.acquire();
    flaky.isUp = false;
    await expect.poll(() => lost.length, { timeout: 20_000 }).toBe(1);
    expect(mutex.isAcquired).toBe(false);
  });

  it("can be released again if its release failed", async () => {
    const name = aName();
    const real = client();
    const node = { isUp: true };
    const through: ours.RedisClient = {
      eval: (...args) => real.eval(...args),
      evalsha: (...args) => (node.isUp ? real.evalsha(...args) : Promise.reject(new Error("down"))),
    };
    const mutex = new ours.Mutex(through, name, ONCE);
    await mutex.acquire();
    node.isUp = false;
    await expect(mutex.release()).rejects.toThrow("down");
    expect(mutex.isAcquired).toBe(false);
    node.isUp = true;
    await mutex.release();
    expect(await real.exists(`mutex:${name}`)).toBe(0);
  });

  it("with an empty externallyAcquiredIdentifier is acquired with a new identifier", async () => {
    const name = aName();
    const options = { ...ONCE, externallyAcquiredIdentifier: "" };
    const held = kept(new ours.Semaphore(client(), name, 2, options));
    const other = kept(new ours.Semaphore(client(), name, 2, options));
    await held.acquire();
    await other.acquire();
    expect(await client().zcard(`semaphore:${name}`)).toBe(2);
  });

  it("throws a TimeoutError, or the reason of the signal, if it is not free in time", async () => {
    const name = aName();
    const held = kept(new ours.Semaphore(client(), name, 1, ONCE));
    await held.acquire();
    const other = new ours.Semaphore(client(), name, 1, { ...ONCE, acquireTimeout: 30 });
    await expect(other.acquire()).rejects.toThrow(`Acquire semaphore semaphore:${name} timeout`);
    await expect(other.acquire()).rejects.toBeInstanceOf(ours.TimeoutError);
    const reason = new Error("no longer wanted");
    await expect(other.acquire(AbortSignal.abort(reason))).rejects.toBe(reason);
  });
});

describe("a semaphore", () => {
  it("uses the node's clock, so that a client whose clock is ahead evicts no holder", async () => {
    const name = aName();
    const held = kept(new ours.Semaphore(client(), name, 1, ONCE));
    await held.acquire();
    const [member, refreshedMs] = await client().zrange(`semaphore:${name}`, "0", "0", "WITHSCORES");
    expect(member).toBe(held.identifier);
    const [seconds] = await client().time();
    expect(Math.abs(Number(refreshedMs) - Number(seconds) * 1_000)).toBeLessThan(60_000);
  });

  it("is refused on several clients, and works on one client", async () => {
    expect(() => new ours.RedlockSemaphore(clients, aName(), 2)).toThrow(
      "RedlockSemaphore takes one client, got 3: three callers who are each refused by another of three nodes would hold two permits",
    );
    expect(() => new ours.RedlockMultiSemaphore(clients, aName(), 2, 2)).toThrow("takes one client, got 3");
    const name = aName();
    expect(await kept(new ours.RedlockMultiSemaphore([client()], name, 2, 2, ONCE)).tryAcquire()).toBe(true);
    expect(await new ours.RedlockSemaphore([client()], name, 2, ONCE).tryAcquire()).toBe(false);
  });
});
