/** `whenBusy: "interrupt"`: the newest job of a key stops the running one. */
import { until } from "@x/test-support";
import { type NotRun, SupersededError } from "@x/workers";
import { DelayedError, type Job, type Queue } from "bullmq";
import { describe, expect, it } from "vitest";
import { type Data, finished, gate, jobs, Lab, redlockOn } from "./support/lab.ts";

const rules = { whenBusy: "interrupt", concurrency: 3, recheckInterval: 3_600_000 } as const;

/** Rejects when the job is interrupted, even if it was interrupted before. */
async function rejected(signal: AbortSignal): Promise<never> {
  signal.throwIfAborted();
  return await new Promise((_resolve, reject) =>
    signal.addEventListener("abort", () => reject(signal.reason as Error)),
  );
}

async function returned(queue: Queue<Data>, id: string): Promise<unknown> {
  return ((await queue.getJob(id)) as Job<Data, NotRun>).returnvalue;
}

describe.concurrent("a newer job of the key", () => {
  it.each(["on the queue's Redis", "elsewhere"])(
    "interrupts the running job in any worker, with the locks %s",
    async (where) => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const dropped: { readonly jobId: string }[] = [];
      const reasons: unknown[] = [];
      const workers = [1, 2].map(() =>
        lab.worker(
          async (job, signal) => {
            if (job.data.i === 3) return "done";
            return await rejected(signal).catch((reason: unknown) => {
              reasons.push(reason);
              throw reason;
            });
          },
          { ...rules, concurrency: 2, ...(where === "elsewhere" ? { redlock: redlockOn(lab, lab.server.url) } : {}) },
        ),
      );
      for (const worker of workers) worker.on("dropped", (message) => dropped.push(message));
      for (const i of [0, 1, 2, 3]) {
        await queue.add("job", { k: "a", i }, { attempts: 3 });
        await until(() => lab.ran.length === i + 1);
      }
      await finished(queue, 4);
      expect(await queue.getFailedCount()).toBe(0);
      expect(await returned(queue, "1")).toEqual({ notRun: "interrupted", by: "2" });
      expect(await returned(queue, "4")).toBe("done");
      expect(
        reasons.map((reason) => reason instanceof SupersededError && [reason.jobId, reason.key, reason.by]),
      ).toEqual([1, 2, 3].map((id) => [String(id), "a", String(id + 1)]));
      expect(dropped.map(({ jobId }) => jobId)).toEqual(["1", "2", "3"]);
      expect(dropped[0]).toEqual({ queue: "q", jobId: "1", keys: ["a"], reason: "interrupted", by: "2" });
      expect(lab.overlaps()).toEqual([]);
      expect(lab.errors).toEqual([]);
      expect(await lab.leftovers()).toEqual([]);
    },
  );

  it("lets a running job that ignores its signal end normally, and supersedes the jobs between", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const running = gate();
    lab.worker(async (job) => {
      if (job.data.i === 0) await running.passed;
      return "done";
    }, rules);
    await queue.add("job", { k: "a", i: 0 });
    await until(() => lab.ran.length === 1);
    for (const i of [1, 2, 3]) await queue.add("job", { k: "a", i });
    await finished(queue, 2);
    running.open();
    await finished(queue, 4);
    expect(lab.ran.map(({ i }) => i)).toEqual([0, 3]);
    expect(await Promise.all(["1", "2", "3", "4"].map((id) => returned(queue, id)))).toEqual([
      "done",
      { notRun: "superseded", by: "3" },
      { notRun: "superseded", by: "4" },
      "done",
    ]);
    expect(await lab.redis.hexists("bull:q:1", "lb")).toBe(0);
  });

  it("interrupts a running job for good, with any error of the job", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const dropped: { readonly error?: unknown }[] = [];
    const failure = new TypeError("the model hung up");
    const worker = lab.worker(async (job, signal) => {
      if (job.data.i > 0) return "done";
      await rejected(signal).catch(() => undefined);
      throw failure;
    }, rules);
    worker.on("dropped", (message) => dropped.push(message));
    await queue.add("job", { k: "a", i: 0 }, { attempts: 5 });
    await until(() => lab.ran.length === 1);
    await queue.add("job", { k: "a", i: 1 });
    await finished(queue, 2);
    expect(await returned(queue, "1")).toEqual({ notRun: "interrupted", by: "2", error: "the model hung up" });
    expect(dropped[0]?.error).toBe(failure);
    expect(lab.ran.map(({ i }) => i)).toEqual([0, 1]);
  });

  it.each(["delays itself", "backs off"])(
    "interrupts a running job for good even if the job %s instead of rejecting",
    async (how) => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      lab.worker(async (job, signal, lock) => {
        if (job.data.i > 0) return "done";
        await rejected(signal).catch(() => undefined);
        if (how === "backs off") lock.backOff(50);
        await job.moveToDelayed(Date.now() + 50, job.token);
        throw new DelayedError();
      }, rules);
      await queue.add("job", { k: "a", i: 0 });
      await until(() => lab.ran.length === 1);
      await queue.add("job", { k: "a", i: 1 });
      await finished(queue, 2);
      expect(await returned(queue, "1")).toEqual({ notRun: "superseded", by: "2" });
      expect(lab.ran.map(({ i }) => i)).toEqual([0, 1]);
    },
  );

  it("supersedes a job that waits for its retry, and takes its key", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker((job) => {
      if (job.data.i === 0) throw new Error("not yet");
      return "done";
    }, rules);
    await queue.add("job", { k: "a", i: 0 }, { attempts: 2, backoff: 3_600_000 });
    await until(async () => (await queue.getDelayedCount()) === 1);
    await queue.add("job", { k: "a", i: 1 });
    await finished(queue, 2);
    expect(await returned(queue, "1")).toEqual({ notRun: "superseded", by: "2" });
  });

  it("supersedes a job that fails before it is notified, without waiting for its retry", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const running = gate();
    lab.worker(async (job) => {
      if (job.data.i > 0) return "done";
      await running.passed;
      throw new Error("not yet");
    }, rules);
    // The worker subscribes to messages with its first job, and then looks for notes once.
    await queue.add("job", { k: "b", i: 2 });
    await until(async () => Number((await lab.redis.pubsub("NUMSUB", "bull:q:lane:notes"))[1]) === 1);
    await finished(queue, 1);
    await queue.add("job", { k: "a", i: 0 }, { attempts: 2, backoff: 3_600_000 });
    await until(() => lab.ran.length === 2);
    // The note that the lane writes, without the message, which is lost.
    await lab.redis.hset("bull:q:2", "lb", "\u001esuperseded\u001fa\u001f3");
    await queue.add("job", { k: "a", i: 1 });
    await until(async () => (await queue.getDelayedCount()) === 1);
    running.open();
    await finished(queue, 3);
    expect(await returned(queue, "2")).toEqual({ notRun: "superseded", by: "3" });
    expect(lab.ran.map(({ i }) => i)).toEqual([2, 0, 1]);
  });

  it("does not interrupt a job that has other keys", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const running = gate();
    const signals: AbortSignal[] = [];
    lab.worker(async (job, signal) => {
      signals.push(signal);
      if (job.data.i === 0) await running.passed;
    }, rules);
    await queue.addBulk(jobs(1, () => ["a", "b"]));
    await until(() => lab.ran.length === 1);
    await queue.add("job", { k: "a", i: 1 });
    await until(async () => (await queue.getDelayedCount()) === 1);
    expect(await lab.redis.hexists("bull:q:1", "lb")).toBe(0);
    running.open();
    await finished(queue, 2);
    expect(signals.map(({ aborted }) => aborted)).toEqual([false, false]);
    expect(lab.ran.map(({ i }) => i)).toEqual([0, 1]);
  });

  it("interrupts a running job at the next renewal of its lock if the message is lost", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker(async (job, signal) => (job.data.i === 0 ? await rejected(signal) : "done"), {
      ...rules,
      lockDuration: 5_000,
    });
    await queue.add("job", { k: "a", i: 0 });
    await until(() => lab.ran.length === 1);
    // The note that the lane writes.
    await lab.redis.hset("bull:q:1", "lb", "\u001esuperseded\u001fa\u001f2");
    await finished(queue, 1);
    expect(await returned(queue, "1")).toEqual({ notRun: "interrupted", by: "2" });
  });
});
