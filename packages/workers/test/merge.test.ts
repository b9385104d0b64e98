/** `whenBusy: "merge"`: all jobs that wait for a key are given to one call. */
import type { JobLock } from "@x/workers";
import { DelayedError, type Job, type Queue, RateLimitError, WaitingChildrenError, WaitingError } from "bullmq";
import { describe, expect, it } from "vitest";
import { Batch } from "../src/job-run/batch.ts";
import { type Data, finished, gate, jobs, Lab, until } from "./support/lab.ts";

const rules = { whenBusy: "merge", concurrency: 4, recheckInterval: 3_600_000 } as const;
const idsOf = ({ batch }: JobLock): string[] => batch.jobs.map(({ id }) => String(id));

async function ends(queue: Queue<Data>, count: number): Promise<unknown[]> {
  const ids = Array.from({ length: count }, (_, i) => String(i + 1));
  const found = (await Promise.all(ids.map((id) => queue.getJob(id)))) as Job<Data>[];
  return found.map((job) => (job.returnvalue as unknown) ?? job.failedReason ?? null);
}

/** Adds jobs of one key behind one that runs, and waits until all of them stand in line. */
async function fill(lab: Lab, queue: Queue<Data>, count: number, opts = {}): Promise<void> {
  await queue.add("job", { k: "a", i: 0 }, opts);
  await until(() => lab.ran.length === 1);
  for (let i = 1; i < count; i++) await queue.add("job", { k: "a", i }, opts);
  await until(async () => (await queue.getDelayedCount()) === count - 1);
}

describe.concurrent("jobs that wait for a key", () => {
  it("are given to one call, in order, and each is completed for itself", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const running = gate();
    const calls: string[][] = [];
    const merged: unknown[] = [];
    const workers = [1, 2].map(() =>
      lab.worker(async (job, _signal, lock) => {
        calls.push(idsOf(lock));
        if (job.data.i === 0) await running.passed;
        const [, second] = lock.batch.jobs;
        if (second !== undefined) lock.batch.complete(second, `own of ${(second.data as Data).i}`);
        return `all of ${job.data.i}`;
      }, rules),
    );
    for (const worker of workers) worker.on("merged", (message) => merged.push(message));
    await fill(lab, queue, 5);
    running.open();
    await finished(queue, 5);
    expect(calls).toEqual([["1"], ["2", "3", "4", "5"]]);
    expect(await ends(queue, 5)).toEqual(["all of 0", "all of 1", "own of 2", "all of 1", "all of 1"]);
    expect(merged).toEqual(
      ["3", "4", "5"].map((jobId) => ({ queue: "q", jobId, keys: ["a"], by: "2", outcome: "completed" })),
    );
    const finishedOn = (await Promise.all(["2", "3", "4", "5"].map((id) => queue.getJob(id)))).map(
      (job) => job?.finishedOn ?? 0,
    );
    expect(finishedOn).toEqual(finishedOn.toSorted((a, b) => a - b));
    expect(lab.errors).toEqual([]);
    expect(await lab.leftovers()).toEqual([]);
    expect(await lab.redis.hexists("bull:q:3", "lr")).toBe(0);
  });

  it("fail each for itself, and their key waits for the retry, which keeps the order", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const running = gate();
    const calls: string[][] = [];
    lab.worker(async (job, _signal, lock) => {
      calls.push(idsOf(lock));
      if (job.data.i === 0) await running.passed;
      const bad = lock.batch.jobs.find(({ data, attemptsMade }) => (data as Data).i === 2 && attemptsMade === 0);
      if (bad !== undefined) lock.batch.fail(bad, new TypeError("not this one"));
      return "done";
    }, rules);
    await fill(lab, queue, 4, { attempts: 2, backoff: 1 });
    running.open();
    await finished(queue, 4);
    expect(calls).toEqual([["1"], ["2", "3", "4"], ["3"]]);
    const third = (await queue.getJob("3")) as Job<Data>;
    expect([third.attemptsMade, third.attemptsStarted, third.stacktrace?.length]).toEqual([2, 2, 1]);
    expect(await ends(queue, 4)).toEqual(["done", "done", "done", "done"]);
  });

  it("are in the next call if this one rejects, which is an attempt of its first job alone", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const running = gate();
    const calls: string[][] = [];
    lab.worker(async (job, _signal, lock) => {
      calls.push(idsOf(lock));
      if (job.data.i === 0) await running.passed;
      if (job.data.i === 1 && job.attemptsMade === 0) throw new Error("the provider is away");
      return "done";
    }, rules);
    await fill(lab, queue, 3, { attempts: 2, backoff: 1 });
    running.open();
    await finished(queue, 3);
    expect(calls).toEqual([["1"], ["2", "3"], ["2", "3"]]);
    expect((await queue.getJob("3"))?.attemptsMade).toBe(1);
    expect(await ends(queue, 3)).toEqual(["done", "done", "done"]);
  });

  it("are at most perKey.batch.size, of the very same key, and none that has been removed meanwhile", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const [first, second] = [gate(), gate()];
    const calls: string[][] = [];
    lab.worker(
      async (job, _signal, lock) => {
        calls.push(idsOf(lock));
        await (job.data.i === 0 ? first : second).passed;
        return "done";
      },
      { ...rules, perKey: { batch: { size: 3 } } },
    );
    await queue.add("job", { k: "a", i: 0 });
    await until(() => lab.ran.length === 1);
    await queue.addBulk(
      [...jobs(4, () => "a"), ...jobs(1, () => ["a", "b"]), ...jobs(1, () => "a")].map((job) => ({
        ...job,
        data: { ...job.data, i: 1 },
      })),
    );
    await until(async () => (await queue.getDelayedCount()) === 6);
    first.open();
    await until(() => calls.length === 2);
    await (await queue.getJob("3"))?.remove();
    second.open();
    await finished(queue, 6);
    expect(calls).toEqual([["1"], ["2", "3", "4"], ["5"], ["6"], ["7"]]);
    expect(await lab.leftovers()).toEqual([]);
  });

  it("are waited for, where perKey.batch.wait says so", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const calls: string[][] = [];
    lab.worker(
      (_job, _signal, lock) => {
        calls.push(idsOf(lock));
        return "done";
      },
      { ...rules, perKey: { batch: { wait: 3_000 }, rate: { max: 1, duration: 600_000 } } },
    );
    await queue.addBulk(jobs(5, () => "a"));
    // Those of the batch do not start, so the rate is not theirs.
    await finished(queue, 5);
    expect(calls).toEqual([["1", "2", "3", "4", "5"]]);
  });

  it("are waited for until their worker is closed", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const worker = lab.worker(() => "done", { ...rules, perKey: { batch: { wait: 3_600_000 } } });
    await queue.add("job", { k: "a", i: 0 });
    await until(async () => (await queue.getActiveCount()) === 1);
    await worker.close();
    expect(await ends(queue, 1)).toEqual(["done"]);
  });

  it("are not run by a worker that was closed by force", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const released: string[] = [];
    const worker = lab.worker(() => "done", { ...rules, perKey: { batch: { wait: 3_600_000 } } });
    worker.on("released", ({ jobId }) => released.push(jobId));
    const locked = new Promise((resolve) => worker.once("locked", resolve));
    await queue.add("job", { k: "a", i: 0 });
    await locked;
    await worker.close(true);
    await until(() => released.length === 1);
    expect(lab.ran).toEqual([]);
    expect(await queue.getActiveCount()).toBe(1);
  });

  it("are not waited for to run a job that another worker has taken meanwhile", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const worker = lab.worker(() => "done", {
      ...rules,
      lockDuration: 1_000,
      perKey: { batch: { wait: 3_600_000 } },
    });
    const lost = new Promise((resolve) => worker.once("lost", resolve));
    await queue.add("job", { k: "a", i: 0 });
    await until(async () => (await queue.getActiveCount()) === 1);
    await lab.redis.set("bull:q:1:lock", "another's", "PX", 3_600_000);
    await lost;
    await worker.close();
    expect(lab.ran).toEqual([]);
  });

  it("are not what a call without them is for, which still says what becomes of its own job", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker(
      (job, _signal, { batch }) => {
        if (job.data.i === 0) batch.complete(job, "of its own");
        else batch.fail(job, new TypeError("is empty"));
        return "done";
      },
      { onFailure: "skip", startNext: "at-once", recheckInterval: 3_600_000 },
    );
    await queue.addBulk([0, 1, 2].map((i) => ({ name: "job", data: { k: "a", i } })));
    await finished(queue, 3);
    expect(await ends(queue, 3)).toEqual(["of its own", "is empty", "is empty"]);
    expect(await queue.getFailedCount()).toBe(2);
  });

  it("are not failed as if they had been moved", () => {
    const job = { id: "1" } as Job;
    const batch = new Batch([job]);
    for (const error of [new DelayedError(), new WaitingError(), new WaitingChildrenError(), new RateLimitError()]) {
      expect(() => batch.fail(job, error)).toThrow(
        new TypeError(
          `error must be an Error, and none by which BullMQ is told that a job was moved, got an instance of ${error.name}`,
        ),
      );
    }
    expect(batch.endOf(job, "done")).toEqual({ value: "done" });
  });

  it("end as the call has said, whatever rule their next worker has", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    await queue.addBulk(jobs(2, () => "a"));
    for (const id of ["1", "2"])
      await lab.redis.hset(`bull:q:${id}`, "lr", JSON.stringify({ value: `of ${id}`, by: "0" }));
    lab.worker(() => "run again");
    await finished(queue, 2);
    expect(await ends(queue, 2)).toEqual(["of 1", "of 2"]);
    expect(await lab.redis.hexists("bull:q:1", "lr")).toBe(0);
    expect(lab.ran).toEqual([]);
  });

  it("end as the call has said, though the worker that had it is gone", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const running = gate();
    const worker = lab.worker(async (job) => (job.data.i === 0 ? await running.passed : "by the first"), rules);
    await fill(lab, queue, 3);
    // As the call stores it, before its own job ends.
    for (const id of ["2", "3"])
      await lab.redis.hset(`bull:q:${id}`, "lr", JSON.stringify({ value: `of ${id}`, by: "1" }));
    running.open();
    await worker.close();
    lab.worker(() => "run again", rules);
    await finished(queue, 3);
    expect(await ends(queue, 3)).toEqual([null, "of 2", "of 3"]);
    expect(lab.ran).toHaveLength(1);
  });
});
