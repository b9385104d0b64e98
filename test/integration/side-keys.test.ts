/** No lock can have the name of a key that another feature keeps next to a lock. */

import { readFileSync } from "node:fs";
import { LeaderElection } from "@x/leader";
import { LeaderScheduler } from "@x/leader/scheduler";
import { fence, Redlock } from "@x/redlock-core";
import { CountDownLatch, ReadWriteLock, Semaphore } from "@x/semaphore";
import { startRedis } from "@x/test-support";
import { Redis } from "ioredis";
import { describe, expect, it, onTestFinished } from "vitest";
import { SIDE_KEY_NAMES } from "../../packages/redlock-core/src/rules/keys.ts";

describe("the keys that all packages write next to locks", () => {
  it("are all documented", () => {
    const page = readFileSync(new URL("../../docs/locks/api.md", import.meta.url), "utf8");
    const parts = new Set(SIDE_KEY_NAMES.flatMap((name) => (name.includes("node") ? [name] : name.split(":"))));
    for (const part of parts) expect(page).toMatch(new RegExp(`:${part}\``));
  });

  it.each(["a", "{t}a", "a}"])("are refused as names of locks: next to %j", async (name) => {
    await using server = await startRedis();
    const redis = new Redis(server.url);
    onTestFinished(() => redis.disconnect());
    await using redlock = new Redlock([server.url], { name: "billing-api 1" });
    const lock = await redlock.acquire(name);
    await using other = new Redlock([server.url]);
    const waits: Promise<unknown>[] = [Promise.allSettled([other.acquire(name, { timeout: 60_000 })])];
    if (name !== "a}") await fence(redis, name, lock.fencingToken);
    const semaphore = new Semaphore(redlock, name, { permits: 1 });
    const readWrite = new ReadWriteLock(redlock, name);
    const latch = new CountDownLatch(redlock, name);
    await latch.set(1);
    await latch.countDown();
    await latch.set(1);
    await using _permit = await semaphore.acquire();
    await using _reader = await readWrite.read.acquire();
    const timeout = 60_000;
    waits.push(Promise.allSettled([semaphore.acquire({ timeout }), readWrite.write.acquire({ timeout })]));
    await using election = new LeaderElection(redlock, { name });
    await using scheduler = new LeaderScheduler({ election, keyPrefix: "nightly" });
    let ticks = 0;
    scheduler.every("often", 1_000, () => void (ticks += 1));
    scheduler.start();
    await expect.poll(() => ticks, { timeout: 20_000 }).toBeGreaterThan(0);
    await scheduler.pause("often");
    await election.requestResign();
    const locks = [name, `leader:${name}`];
    const written = [
      ...["fence", "node:last", "client:n[0-9a-f]+"],
      ...["semaphore", "semaphore:holders", "semaphore:waiters", "readwrite", "latch", "latch:before"],
      ...["leader", "terms", "request", "nightly:register", "nightly:mailbox", "nightly:history", "nightly:newest"],
    ];
    const keys = async (): Promise<string[]> => (await redis.keys("*")).filter((key) => !locks.includes(key));
    // A set of lines ends with its last waiter.
    for (const each of ["node:lines", "node:line-ends"]) {
      await expect.poll(keys).toContainEqual(expect.stringMatching(`:${each}$`));
      await expect(redlock.tryAcquire(`{x}:${each}`)).rejects.toThrow(RangeError);
    }
    await redlock.forceRelease(name);
    for (const each of written) await expect.poll(keys).toContainEqual(expect.stringMatching(`:${each}$`));
    for (const key of await keys()) await expect(redlock.tryAcquire(key), key).rejects.toThrow(RangeError);
    await Promise.all([redlock.close(), other.close()]);
    await Promise.all(waits);
  });
});
