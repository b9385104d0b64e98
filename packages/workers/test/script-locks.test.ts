/** Locks that are acquired and released by the scripts that fetch and end jobs. */

import { type Redlock, systemClock } from "@x/redlock-core";
import { InFlight, readClock } from "@x/redlock-core/kit";
import { until, waitersOf } from "@x/test-support";
import type { JobLock } from "@x/workers";
import type { Job } from "bullmq";
import { Redis } from "ioredis";
import { describe, expect, it, vi } from "vitest";
import type { Run } from "../src/job-run/run.ts";
import { settle, TakenJob } from "../src/lane/taken-job.ts";
import { ScriptLocks } from "../src/locks/script-locks.ts";
import { type Data, finished, gate, jobs, Lab, listen, redlockOn, scriptCalls } from "./support/lab.ts";

/** Locks do not expire before the tests here end, so a free lock was released. */
const SOON_MS = 10_000;

async function isFree({ redis }: Lab, key: string): Promise<boolean> {
  return (await redis.exists(key)) === 0;
}

describe("a worker whose locks are on the queue's own Redis", () => {
  it("needs one request per job, and gives each job a greater fencing token", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const released = listen<{ readonly confirmed: boolean }>(lab, "x.workers.released");
    await queue.addBulk([...jobs(200, (i) => `free${i}`), ...jobs(200, () => "hot")]);
    const before = await scriptCalls(lab);
    lab.worker();
    await lab.ended(400);
    await finished(queue, 400);
    // One request for each job, and one or two for each slot at the start and at the end.
    expect((await scriptCalls(lab)) - before).toBeLessThan(1.2 * 400);
    const tokens = lab.ran.filter(({ key }) => key === "hot").map(({ fencingToken }) => fencingToken);
    expect(tokens).toEqual([...new Set(tokens)].toSorted((a, b) => a - b));
    expect(tokens).toHaveLength(200);
    expect([lab.overlaps(), lab.inversions(), lab.errors]).toEqual([[], [], []]);
    await until(() => released.length === 400);
    expect(released.every(({ confirmed }) => confirmed)).toBe(true);
    expect(await isFree(lab, "hot")).toBe(true);
  });

  it.each(["redis://127.0.0.1:PORT?db=3", "redis://127.0.0.1:PORT/3", "127.0.0.1:PORT?db=3", "//127.0.0.1:PORT/3"])(
    "has its own Redlock on the database of BullMQ's connection: %s",
    async (address) => {
      await using lab = await Lab.start();
      const connection = { url: address.replace("PORT", String(lab.server.port)), maxRetriesPerRequest: null };
      const queue = lab.queue("q", { connection });
      const third = new Redis({ path: lab.server.path, db: 3 });
      lab.defer(async () => third.disconnect());
      await queue.addBulk(jobs(30, (i) => `k${i}`, 10));
      const worker = lab.worker(
        async (job) => [await third.exists(String(job.data.k)), await worker.redlock.tryAcquire(String(job.data.k))],
        { connection },
      );
      await finished(queue, 30);
      const results = (await queue.getCompleted()).map(({ returnvalue }) => returnvalue as unknown);
      expect(results).toEqual(Array.from({ length: 30 }, () => [1, null]));
      expect(await lab.redis.keys("k*")).toEqual([]);
    },
  );

  it("names the lock with the prefix before the key", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    await queue.addBulk(jobs(20, () => "k"));
    const seen: unknown[] = [];
    const before = await scriptCalls(lab);
    lab.worker(async (_job, _signal, lock) => seen.push([lock.resources, await lab.redis.exists("account:k")]), {
      resource: "account:",
      concurrency: 1,
    });
    await lab.ended(20);
    await finished(queue, 20);
    expect(seen).toEqual(Array.from({ length: 20 }, () => [["account:k"], 1]));
    expect((await scriptCalls(lab)) - before).toBeLessThan(2 * 20);
    expect(await lab.redis.exists("k", "account:k")).toBe(0);
  });

  it("holds the lock while the job runs, extends it beyond its first lease, and releases it", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const isHeld: boolean[] = [];
    await queue.addBulk(jobs(1, () => "long"));
    const extensions = listen<unknown>(lab, "x.redlock.extended");
    const running = gate();
    const body = async (_job: Job<Data>, _signal: AbortSignal, lock: JobLock): Promise<void> => {
      await running.passed;
      isHeld.push(lock.isHeld());
    };
    lab.worker(body, { ttl: 1_500 });
    await until(() => lab.ran.length === 1);
    const value = await lab.redis.get("long");
    // More than a quarter of the lease passes between two extensions.
    await until(() => extensions.length > 4);
    expect(await lab.redis.get("long")).toBe(value);
    running.open();
    await finished(queue, 1);
    expect(isHeld).toEqual([true]);
    await until(() => isFree(lab, "long"), SOON_MS);
  });

  it("sends a separate request for a lock that is held, and a separate release if other processes wait", async () => {
    await using lab = await Lab.start();
    const plain = redlockOn(lab, lab.connection);
    const queue = lab.queue();
    const first = await plain.acquire("k");
    lab.worker(undefined, { timeout: 2_000 });
    await queue.addBulk(jobs(2, () => "k", 100));
    await until(async () => (await waitersOf(lab.redis, "k")) === 1);
    expect(lab.ran).toEqual([]);
    await first.release();
    await until(() => lab.ran.length === 1);
    const between = await plain.acquire("k");
    expect(lab.ran.filter(({ endedMs }) => endedMs === undefined)).toEqual([]);
    expect(between.fencingToken).toBeGreaterThan(lab.ran[0]?.fencingToken ?? 0);
    await between.release();
    await finished(queue, 2);
    await until(() => isFree(lab, "k"), SOON_MS);
  });

  it.each(["an error", "BullMQ's lock lost", "a delay", "a command that fails"])(
    "releases the lock of a job that ends with %s",
    async (how) => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      await queue.addBulk(jobs(1, () => "k"));
      let runs = 0;
      lab.worker(async (job) => {
        runs += 1;
        if (runs > 1) return undefined;
        if (how === "an error") throw new Error("a failure");
        if (how === "a command that fails") return await lab.redis.lpush("bull:q:completed", "not a sorted set");
        if (how === "a delay") {
          await job.moveToDelayed(Date.now() + 60_000, job.token);
          throw Object.assign(new Error("delayed"), { name: "DelayedError" });
        }
        return await lab.redis.del(`bull:q:${job.id}:lock`);
      });
      await until(() => runs === 1);
      await until(() => isFree(lab, "k"), SOON_MS);
    },
  );

  it("releases the lock of a job that BullMQ ends without running it", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const job = await queue.add("job", { k: "k", i: 0 }, { attempts: 5 });
    await lab.redis.hset(`bull:q:${job.id}`, "ats", 9);
    lab.worker(undefined, { maxStartedAttempts: 3 });
    await finished(queue, 1);
    expect(lab.ran).toEqual([]);
    await until(() => isFree(lab, "k"), SOON_MS);
  });

  it("releases the lock of a run that never ends because the worker was closed by force", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    await queue.addBulk(jobs(1, () => "k", 100));
    const worker = lab.worker();
    await until(() => lab.ran.length === 1);
    expect(await isFree(lab, "k")).toBe(false);
    await worker.close(true);
    await until(() => isFree(lab, "k"), SOON_MS);
  });

  it("stops its scripts as soon as it is closed by force, because BullMQ then ends no job", async () => {
    await using lab = await Lab.start();
    const stop = vi.spyOn(ScriptLocks.prototype, "stopScriptLocks");
    const closing = lab.worker().close(true);
    expect(stop).toHaveBeenCalledTimes(1);
    await closing;
    stop.mockRestore();
  });

  it("takes a job if a foreign value has the name of its lock, and runs the job once the value is gone", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    await lab.redis.lpush("k", "no lock");
    await queue.addBulk(jobs(1, () => "k"));
    lab.worker(undefined, { recheckInterval: 100 });
    await until(async () => (await queue.getDelayedCount()) === 1);
    await lab.redis.del("k");
    await finished(queue, 1);
    expect(lab.ran).toHaveLength(1);
  });
});

describe("a worker whose scripts cannot name the lock, or whose lock would not be claimed", () => {
  it("acquires no lock for jobs that are fetched manually", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const worker = lab.worker(undefined, { autorun: false });
    await queue.addBulk(jobs(2, (i) => `k${i}`));
    const job = await worker.getNextJob("mine", { block: false });
    expect(await lab.redis.keys("k*")).toEqual([]);
    await job?.moveToCompleted("done", "mine", true);
    expect(await lab.redis.keys("k*")).toEqual([]);
  });

  it("acquires locks in the database that the connection has selected", async () => {
    await using lab = await Lab.start();
    const elsewhere = new Redis({ path: lab.server.path, maxRetriesPerRequest: null });
    lab.defer(async () => elsewhere.disconnect());
    await elsewhere.select(5);
    const queue = lab.queue("q", { connection: { ...lab.connection, db: 5 } as never });
    await queue.addBulk(jobs(30, (i) => `k${i % 3}`, 20));
    const seen: unknown[] = [];
    const body = async (job: { readonly data: { readonly k?: unknown } }): Promise<unknown> =>
      seen.push(await lab.redis.exists(String(job.data.k)), await elsewhere.exists(String(job.data.k)));
    lab.worker(body, { connection: elsewhere });
    await until(() => seen.length >= 40);
    expect(seen.slice(0, 40)).toEqual(Array.from({ length: 40 }, (_, i) => i % 2));
  });

  it("acquires locks with custom names by separate requests", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const held: unknown[] = [];
    await queue.addBulk(jobs(3, () => "k"));
    const body = async (): Promise<unknown> => held.push(await lab.redis.mget("k", "entity:k"));
    lab.worker(body, { resource: (key) => `entity:${key}` });
    await finished(queue, 3);
    expect(held).toEqual(Array.from({ length: 3 }, () => [null, expect.any(String)]));
    expect(lab.inversions()).toEqual([]);
  });
});

it("acquires a lock by a separate request if its Redlock was closed by the user, and fails no job for that", async () => {
  await using lab = await Lab.start();
  const queue = lab.queue();
  const worker = lab.worker();
  await queue.addBulk(jobs(1, () => "a"));
  await finished(queue, 1);
  await worker.redlock.close();
  await queue.addBulk(jobs(2, () => "b"));
  await until(() => lab.errors.length > 0);
  expect(await queue.getFailedCount()).toBe(0);
  expect(lab.errors[0]?.name).toBe("RedlockClosedError");
});

describe("the locks of jobs that end", () => {
  it("are released together with the end of one job, and by separate requests where no end follows", async () => {
    await using lab = await Lab.start();
    const { locks, redlock } = await scriptLocks(lab);
    const [first, second, third] = await Promise.all(["a", "b", "c"].map((name) => redlock.acquire(name)));
    if (first === undefined || second === undefined || third === undefined) throw new Error("expected three locks");
    const [one, other] = [takenJob("1"), takenJob("2")];
    const released = [
      locks.releaseWithEnd(RUN, first, one),
      locks.releaseWithEnd(RUN, second, one),
      locks.releaseWithEnd(RUN, third, other),
    ];
    const instruction = one.takeLockInstruction();
    expect(instruction).toMatchObject({ kind: "release-held", token: second.token });
    expect(one.takeLockInstruction()).toBeUndefined();
    settle(instruction, true, locks);
    expect(await Promise.all(released)).toEqual([true, true, true]);
    // The end of the second job has reported a release that the script did not make.
    expect(await lab.redis.mget("a", "b", "c")).toEqual([null, second.token, null]);
  });

  it("are released by requests alone after the scripts were stopped", async () => {
    await using lab = await Lab.start();
    const { locks, redlock } = await scriptLocks(lab);
    const [lock, one] = [await redlock.acquire("a"), takenJob("1")];
    locks.stopScriptLocks();
    const released = locks.releaseWithEnd(RUN, lock, one);
    expect(one.takeLockInstruction()).toBeUndefined();
    expect(await released).toBe(true);
    expect(await isFree(lab, "a")).toBe(true);
  });
});

const RUN = { keys: ["a"] } as unknown as Run;

function takenJob(id: string): TakenJob {
  return new TakenJob([[], id, 0, 0, "a", 0], readClock(systemClock), "");
}

/** Returns locks that scripts release, on the Redis of the lab. */
async function scriptLocks(lab: Lab): Promise<{ readonly locks: ScriptLocks; readonly redlock: Redlock }> {
  const redlock = redlockOn(lab, lab.connection);
  const parts = { redlock, inFlight: new InFlight(), ttl: 1_000, timeout: 0 };
  const locks = ScriptLocks.create(parts, { resourcePrefix: "", reserved: "bull:" });
  if (locks === undefined) throw new Error("expected locks");
  await locks.proveSameRedis(async (name) => {
    await lab.redis.set(name, 1);
    return name;
  });
  return { locks, redlock };
}
