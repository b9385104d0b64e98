/** Behavior that node-redlock 4's own tests (test/interop/redlock4-suite.test.ts) do not cover. */
import { errorOf, type RedisServer, startRedis } from "@x/test-support";
import Bluebird from "bluebird";
import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, it, onTestFinished } from "vitest";
import Redlock5, { type Lock as Lock5 } from "../src/index.ts";
import { Lock, LockError, type Options, Redlock } from "../src/v4.ts";

let server: RedisServer;
beforeAll(async () => {
  server = await startRedis();
});
afterAll(() => server.stop());

function open(options?: Options): Redlock {
  const client = new Redis(server.path);
  const redlock = new Redlock([client], options);
  onTestFinished(async () => void (await redlock.quit()));
  return redlock;
}

it("lock() returns native promises, and supports callbacks", async () => {
  const redlock = open({ retryCount: 0 });
  const lock = await redlock.lock("native", 30_000);
  expect(lock).toBeInstanceOf(Lock);
  expect(lock).toMatchObject({ resource: ["native"], attempts: 1, attemptsRemaining: -1 });
  const told = await new Promise((resolve) => void redlock.lock("native", 30_000, (error) => resolve(error)));
  expect(told).toBeInstanceOf(LockError);
  expect(told).toMatchObject({ name: "LockError", attempts: 1 });
});

it("each lock has a fencing token greater than the previous one", async () => {
  const redlock = open();
  const first = await redlock.lock(["a", "b"], 30_000);
  await first.unlock();
  const second = await redlock.acquire(["b", "a"], 30_000);
  expect(Number(second.fencingToken)).toBeGreaterThan(Number(first.fencingToken));
});

it("unlock() rejects if the lock was taken over, and leaves the other holder's lock", async () => {
  const redlock = open();
  const lock = await redlock.lock("taken", 30_000);
  const client = new Redis(server.path);
  onTestFinished(() => client.disconnect());
  await client.set("taken", "somebody");
  await expect(lock.unlock()).rejects.toThrow('Unable to fully release the lock on resource "taken".');
  expect(await client.get("taken")).toBe("somebody");
});

it("extend() believes an expiration that the caller has set", async () => {
  const redlock = open();
  const lock = await redlock.lock("set", 30_000);
  lock.expiration = Date.now() - 1_000;
  await expect(lock.extend(30_000)).rejects.toMatchObject({
    message: 'Cannot extend lock on resource "set" because the lock has already expired.',
    attempts: 0,
  });
});

it("the stacks of an error and its cause contain the caller", async () => {
  const redlock = open({ retryCount: 1, retryDelay: 1 });
  await redlock.lock("stack", 30_000);
  const error = (await errorOf(redlock.lock("stack", 30_000))) as LockError;
  expect(error).toBeInstanceOf(LockError);
  for (const { stack } of [error, error.cause as Error]) expect(stack).toContain("node-redlock-4.test.ts");
});

it("extend() invalidates a lock that another holder has", async () => {
  const redlock = open();
  const lock = await redlock.lock("lost", 30_000);
  await (redlock.servers[0] as Redis).set("lost", "somebody");
  await expect(lock.extend(30_000)).rejects.toThrow('Cannot extend lock on resource "lost": it is not ours any more.');
  expect(lock.expiration).toBe(0);
});

it("a lock of the other version is refused, and keeps its expiration", async () => {
  const redlock = open();
  const redlock5 = new Redlock5(redlock.servers);
  const [lock, lock5] = [await redlock.lock("4", 30_000), await redlock5.acquire(["5"], 30_000)];
  const { expiration } = lock5;
  await expect(redlock.unlock(lock5 as unknown as Lock)).rejects.toThrow("lock must be a Lock, got ");
  await expect(redlock.extend(lock5 as unknown as Lock, 1_000)).rejects.toThrow("lock must be a Lock, got ");
  await expect(redlock5.release(lock as unknown as Lock5)).rejects.toThrow("lock must be a Lock, got ");
  await expect(redlock5.extend(lock as unknown as Lock5, 1_000)).rejects.toThrow("existing must be a Lock, got ");
  expect(lock5.expiration).toBe(expiration);
});

it("a lock has its resources as they were given, and locks a repeated resource once", async () => {
  const redlock = open({ retryCount: 1 });
  const lock = await redlock.lock(["twice", "twice"], 30_000);
  expect(lock.resource).toEqual(["twice", "twice"]);
  await (await lock.extend(30_000)).unlock();
});

it("disposer() requires bluebird, and works with its using", async () => {
  const redlock = open();
  expect(() => redlock.disposer("d", 30_000)).toThrow("set Redlock.Promise to bluebird");
  Redlock.Promise = Bluebird;
  onTestFinished(() => {
    Redlock.Promise = Promise;
  });
  const held = await Bluebird.using<Lock, number>(redlock.disposer("d", 30_000), (lock) =>
    Bluebird.resolve(lock.expiration),
  );
  expect(held).toBeGreaterThan(0);
  expect((await redlock.lock("d", 30_000)).attempts).toBe(1);
});

it("options that are not numbers count as left out, and custom scripts are refused", () => {
  const redlock = open({ retryCount: "3" as unknown as number, retryDelay: 7 });
  expect(redlock).toMatchObject({ driftFactor: 0.01, retryCount: 10, retryDelay: 7, retryJitter: 100 });
  const scripts = { lockScript: (script: string) => script } as Options;
  expect(() => new Redlock([new Redis({ lazyConnect: true })], scripts)).toThrow(TypeError);
});

it("quit() closes the connections of the instance", async () => {
  const redlock = new Redlock([new Redis(server.path)]);
  await redlock.lock("quit", 1_000);
  expect(await redlock.quit()).toEqual(["OK"]);
});
