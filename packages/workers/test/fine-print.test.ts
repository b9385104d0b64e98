/** Statements of the README about BullMQ's less used commands and events, in addition to contract/. */

import { setTimeout as delay } from "node:timers/promises";
import { until } from "@x/test-support";
import { DelayedError, FlowProducer, QueueEvents, RateLimitError } from "bullmq";
import { describe, expect, it, vi } from "vitest";
import { resolveOptions } from "../src/options.ts";
import { type Data, finished, gate, jobs, Lab, scriptCalls } from "./support/lab.ts";

describe("the fine print", () => {
  it("refuses leases that are too short to be renewed", () => {
    const resolve = (lockDuration: number): unknown => resolveOptions("q", { connection: {}, key: "k", lockDuration });
    expect(() => resolve(99)).toThrow(RangeError);
    expect(() => resolve(99)).toThrow(/^lockDuration must be an integer from 100 /);
    expect(resolve(100)).toMatchObject({ lockDuration: 100 });
  });

  it("emits delayed and waiting for a parked job, and leaves a field in the hash of each job", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const events = new QueueEvents("q", { connection: lab.connection, lastEventId: "0-0" });
    lab.defer(async () => await events.close());
    await events.waitUntilReady();
    const seen: string[] = [];
    for (const event of ["waiting", "delayed", "active", "completed"] as const) {
      events.on(event, ({ jobId }: { jobId: string }) => seen.push(`${jobId} ${event}`));
    }
    const opened = gate();
    lab.worker(async () => await opened.passed);
    await queue.addBulk(jobs(2, () => "a"));
    await until(async () => (await queue.getDelayedCount()) === 1);
    opened.open();
    await finished(queue, 2);
    await until(() => seen.includes("2 completed"));
    expect(seen.filter((event) => event.startsWith("2 "))).toEqual([
      "2 waiting",
      "2 delayed",
      "2 waiting",
      "2 active",
      "2 completed",
    ]);
    expect(await lab.redis.hmget("bull:q:2", "lk", "ls")).toEqual(["a", null]);
  });

  it("ends a lease when a fake clock jumps past its end", async () => {
    await using lab = await Lab.start();
    lab.defer(async () => void (await Promise.resolve(vi.useRealTimers())));
    const queue = lab.queue();
    const held: boolean[] = [];
    lab.worker(async (_job, _signal, lock) => {
      held.push(lock.isHeld());
      vi.useFakeTimers({ toFake: ["Date"], now: Date.now() + 60_000 });
      held.push(lock.isHeld());
      return await Promise.resolve();
    });
    await queue.add("job", { k: "a", i: 0 });
    await until(() => held.length === 2);
    await until(async () => (await queue.getFailedCount()) === 1);
    expect(held).toEqual([true, false]);
    expect((await queue.getFailed())[0]?.failedReason).toMatch(/lost|held/);
  });

  it("frees the key of a job that its processor delays, even with onFailure block", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker(
      async (job) => {
        if (job.data.i !== 0 || job.attemptsStarted > 1) return;
        await job.moveToDelayed(Date.now() + 500, job.token);
        throw new DelayedError();
      },
      { onFailure: "block" },
    );
    await queue.addBulk(jobs(3, () => "a"));
    await finished(queue, 3);
    expect(lab.ran.map(({ i }) => i)).toEqual([0, 1, 2, 0]);
  });

  it("stops a parent job whose key its failed child has halted", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const flows = new FlowProducer({ connection: lab.connection });
    lab.defer(async () => await flows.close());
    lab.worker(
      (job) => {
        if (job.data.i === 1) throw new Error("for good");
      },
      { onFailure: "halt", recheckInterval: 100, drainDelay: 1 },
    );
    const { job: parent } = await flows.add({
      name: "parent",
      queueName: "q",
      data: { k: "a", i: 0 },
      children: [{ name: "child", queueName: "q", data: { k: "a", i: 1 }, opts: { ignoreDependencyOnFailure: true } }],
    });
    await until(async () => (await queue.explain(String(parent.id)))?.verdict === "parked");
    expect(lab.ran.map(({ i }) => i)).toEqual([1]);
    await queue.resumeKey("a");
    await finished(queue, 2);
    expect(lab.ran.map(({ i }) => i)).toEqual([1, 0]);
  });

  it("keeps the key of a job that is rate-limited", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    let isLimited = true;
    const worker = lab.worker(
      async (job) => {
        if (job.data.i !== 0 || !isLimited) return;
        isLimited = false;
        await worker.rateLimit(400);
        throw new RateLimitError();
      },
      { limiter: { max: 100, duration: 1_000 }, recheckInterval: 100, drainDelay: 1 },
    );
    await queue.addBulk(jobs(3, () => "a"));
    await until(() => !isLimited);
    await until(async () => (await queue.getActiveCount()) === 0);
    expect((await queue.jobsOf("a")).holder).toBe("1");
    await finished(queue, 3);
    expect(lab.ran.map(({ i }) => i)).toEqual([0, 0, 1, 2]);
  });

  it("does not run a job that is passed to processJob without having been fetched", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const worker = lab.worker(undefined, { autorun: false });
    const job = await queue.add("job", { k: "a", i: 0 });
    await worker.processJob(job, "token", () => false);
    expect(lab.ran).toEqual([]);
    expect(await job.getState()).toBe("waiting");
    expect(lab.errors.length + Number((await queue.getFailedCount()) > 0)).toBeGreaterThan(0);
  });

  it("keeps the record of which job held which key after obliterate(force) until a worker starts", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const opened = gate();
    const worker = lab.worker(async () => await opened.passed);
    await queue.addBulk(jobs(3, () => "a"));
    await until(async () => (await queue.getDelayedCount()) === 2);
    await queue.pause();
    await queue.obliterate({ force: true });
    opened.open();
    await worker.close();
    expect(await lab.leftovers()).toContain("bull:q:lane:holders");
    lab.worker();
    await until(async () => (await lab.leftovers()).length === 0);
  });

  it.each([
    [2, "after"],
    [4, "next to"],
  ] as const)("with %s slots, runs another key %s backlogs of three", async (concurrency, when) => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const opened = gate();
    const worker = lab.worker(async () => await opened.passed, { concurrency: 5 });
    await queue.addBulk(jobs(24, (i) => ["a", "b", "d"][i % 3]));
    await until(async () => (await queue.getDelayedCount()) === 21);
    // All slots are taken before some jobs end, so that no fetch is under way, which would bring one more job.
    await queue.addBulk(jobs(2, (i) => ["x", "y"][i]));
    await until(() => lab.ran.length === 5);
    worker.concurrency = concurrency;
    await queue.addBulk(jobs(1, () => "c"));
    opened.open();
    await finished(queue, 27);
    const place = lab.ran.findIndex(({ key }) => key === "c");
    // The first two backlogs have 16 jobs.
    if (when === "after") expect(place).toBeGreaterThan(14);
    else expect(place).toBeLessThan(10);
  });

  it("sends two more requests for the first job of an idle queue if a function computes the key", async () => {
    const requests = async (key: "k" | ((job: { readonly data: Data }) => string)): Promise<number> => {
      await using lab = await Lab.start();
      let calls = 0;
      const quiet = async (): Promise<number> => {
        await until(async () => {
          const before = calls;
          calls = await scriptCalls(lab);
          // The work after the end of a job is immediate; then an idle worker sends nothing for seconds.
          await delay(300);
          return calls === before;
        });
        return calls;
      };
      const queue = lab.queue();
      lab.worker(undefined, { key });
      await queue.add("job", { i: 0 });
      await lab.ended(1);
      const before = await quiet();
      await queue.add("job", { k: "a", i: 1 });
      await lab.ended(2);
      return (await quiet()) - before;
    };
    expect(await requests((job) => job.data.k as string)).toBe((await requests("k")) + 2);
  });
});
