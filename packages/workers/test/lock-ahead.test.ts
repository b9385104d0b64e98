/** The lock of a key's next job, requested while the previous job is being finished. */

import { type Lock, Redlock, systemClock } from "@x/redlock-core";
import { until } from "@x/test-support";
import { describe, expect, it } from "vitest";
import { LockAhead } from "../src/locks/lock-ahead.ts";
import { finished, gate, jobs, Lab, listen, SHORT_MS, scriptCalls } from "./support/lab.ts";

function stub(): { readonly lock: Lock; readonly releases: () => number } {
  let releases = 0;
  const release = async (): Promise<boolean> => {
    releases += 1;
    return await Promise.resolve(true);
  };
  return { lock: { release } as unknown as Lock, releases: () => releases };
}

describe("LockAhead", () => {
  it("hands the lock to the first caller that claims it, and to none after it was dropped", async () => {
    const { lock, releases } = stub();
    const ahead = new LockAhead("k", Promise.resolve(lock), systemClock);
    expect([await ahead.claim(), await ahead.claim()]).toEqual([lock, null]);
    await ahead.drop();
    expect(releases()).toBe(0);
    const dropped = new LockAhead("k", Promise.resolve(lock), systemClock);
    await dropped.drop();
    expect([await dropped.claim(), releases()]).toEqual([null, 1]);
    await dropped.settled;
  });

  it("is kept for the job that arrives with the end if both have the same key, and is released otherwise", async () => {
    const { lock, releases } = stub();
    const [ahead, others, none] = [0, 1, 2].map(() => new LockAhead("k", Promise.resolve(lock), systemClock));
    const next = { lockName: "k", requestedLock: undefined as LockAhead | undefined };
    const other = { ...next, lockName: "other" };
    ahead?.keepFor(next);
    others?.keepFor(other);
    none?.keepFor(undefined);
    await Promise.all([others?.settled, none?.settled]);
    expect([next.requestedLock, other.requestedLock, releases()]).toEqual([ahead, undefined, 2]);
    expect(await next.requestedLock?.claim()).toBe(lock);
  });

  it("releases a lock that is never claimed", async () => {
    const { lock, releases } = stub();
    const hasty = { ...systemClock, schedule: (_ms: number, run: () => void) => systemClock.schedule(1, run) };
    await new LockAhead("k", Promise.resolve(lock), hasty).settled;
    expect(releases()).toBe(1);
  });
});

describe("a key with a line of jobs", () => {
  it("gives its next lock to the next job, each with a greater token, and leaves none behind", async () => {
    await using lab = await Lab.start();
    const redlock = new Redlock([lab.connection], { ttl: 5_000 });
    lab.defer(async () => await redlock.close());
    const grants: number[] = [];
    redlock.on("acquired", ({ fencingToken }) => grants.push(fencingToken));
    const queue = lab.queue();
    await queue.addBulk(jobs(300, () => "hot", 1));
    const before = await scriptCalls(lab);
    lab.worker(undefined, { redlock });
    await lab.ended(300);
    await finished(queue, 300);
    const tokens = lab.ran.map(({ fencingToken }) => fencingToken);
    expect(tokens).toEqual(tokens.toSorted((a, b) => a - b));
    expect(new Set(tokens).size).toBe(300);
    expect([lab.overlaps(), lab.inversions(), lab.errors]).toEqual([[], [], []]);
    await until(async () => (await lab.redis.exists("hot")) === 0);
    // Two requests for each job: its end, and the release of its lock together with the request for the next lock.
    // Requested one after the other, three would be needed.
    expect((await scriptCalls(lab)) - before).toBeLessThan(2.2 * 300);
    // A grant for each job, and a few requests in vain at the end of the line.
    expect(grants.length).toBeLessThanOrEqual(302);
  });

  it("lets plain code in while it waits for the key", async () => {
    await using lab = await Lab.start();
    const plain = new Redlock([lab.connection], { ttl: 5_000 });
    lab.defer(async () => await plain.close());
    const queue = lab.queue();
    await queue.addBulk(jobs(300, () => "hot"));
    lab.worker();
    await until(() => lab.ran.length > 20);
    const inside = await plain.acquire("hot");
    const [ran, running] = [lab.ran.length, lab.ran.filter(({ endedMs }) => endedMs === undefined).length];
    expect(ran).toBeLessThan(200);
    expect(running).toBe(0);
    await lab.anotherRuns();
    expect(lab.ran.length).toBe(ran);
    await inside.release();
    await finished(queue, 300);
    expect([lab.overlaps(), lab.inversions(), lab.errors]).toEqual([[], [], []]);
  });

  it("gives no lock to a job that BullMQ ends without running it", async () => {
    await using lab = await Lab.start();
    const redlock = new Redlock([lab.connection], { ttl: 5_000 });
    lab.defer(async () => await redlock.close());
    const queue = lab.queue();
    const yields = listen(lab, "x.workers.yielded");
    const running = gate();
    await queue.addBulk(jobs(4, () => "hot"));
    lab.worker(async (job) => (job.data.i === 1 ? await running.passed : undefined), { redlock, timeout: SHORT_MS });
    await until(() => lab.ran.length === 2);
    // Like BullMQ for a parent whose child has failed.
    await lab.redis.hset("bull:q:3", "defa", "a child has failed");
    running.open();
    await finished(queue, 4);
    expect(lab.ran.map(({ i }) => i)).toEqual([0, 1, 3]);
    expect([yields, lab.errors]).toEqual([[], []]);
  });

  it("is free after its worker is closed while jobs are in line", async () => {
    await using lab = await Lab.start();
    const redlock = new Redlock([lab.connection], { ttl: 5_000 });
    lab.defer(async () => await redlock.close());
    const queue = lab.queue();
    await queue.addBulk(jobs(200, () => "hot"));
    const started = gate();
    const worker = lab.worker(() => lab.ran.length > 30 && started.open(), { redlock });
    await started.passed;
    await worker.close();
    expect(await lab.redis.exists("hot")).toBe(0);
  });
});
