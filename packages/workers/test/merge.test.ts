/** `whenBusy: "merge"`: one call receives all jobs that wait for a key. */
import { until } from "@x/test-support";
import type { ExclusiveWorker, JobLock } from "@x/workers";
import { DelayedError, type Job, type Queue, RateLimitError, WaitingChildrenError, WaitingError } from "bullmq";
import { describe, expect, it } from "vitest";
import { Batch } from "../src/job-run/rules/batch.ts";
import { type Data, finished, gate, jobs, Lab } from "./support/lab.ts";

/** A queue of one key, and workers that record their calls; job 0 runs until `running` is open. */
class Merging implements AsyncDisposable {
  readonly running = gate();
  readonly calls: string[][] = [];

  readonly lab: Lab;
  readonly queue: Queue<Data>;

  private constructor(lab: Lab) {
    this.lab = lab;
    this.queue = lab.queue();
  }

  static async start(): Promise<Merging> {
    return new Merging(await Lab.start());
  }

  worker(
    process: (job: Job<Data>, lock: JobLock) => unknown = () => "done",
    options: Parameters<Lab["worker"]>[1] = {},
  ): ExclusiveWorker<Data> {
    return this.lab.worker(
      async (job, _signal, lock) => {
        this.calls.push(lock.batch.jobs.map(({ id }) => String(id)));
        if (job.data.i === 0) await this.running.passed;
        return await process(job, lock);
      },
      { whenBusy: "merge", concurrency: 4, recheckInterval: 3_600_000, ...options },
    );
  }

  /** Adds job 0 and then the others, and waits until all of the others are in line. */
  async lineUp(others: readonly { readonly name: string; readonly data: Data }[], opts = {}): Promise<void> {
    await this.queue.add("job", { k: "a", i: 0 }, opts);
    await until(() => this.lab.ran.length === 1);
    await this.queue.addBulk(others.map((job) => ({ ...job, opts })));
    await until(async () => (await this.queue.getDelayedCount()) === others.length);
  }

  /** Stores the outcomes that a call sets for other jobs, as it does before its own job ends. */
  async settle(ids: readonly string[]): Promise<void> {
    for (const id of ids) {
      await this.lab.redis.hset(`bull:q:${id}`, "lr", JSON.stringify({ value: `of ${id}`, by: "0" }));
    }
  }

  /** Lets job 0 end, and waits for `count` finished jobs. Returns the outcome of each. */
  async ends(count: number): Promise<unknown[]> {
    this.running.open();
    await finished(this.queue, count);
    const ids = Array.from({ length: count }, (_, i) => String(i + 1));
    const found = (await Promise.all(ids.map((id) => this.queue.getJob(id)))) as Job<Data>[];
    return found.map((job) => (job.returnvalue as unknown) ?? job.failedReason ?? null);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.lab[Symbol.asyncDispose]();
  }
}

const behind = (count: number): { name: string; data: Data }[] => jobs(count + 1, () => "a").slice(1);

describe.concurrent("jobs that wait for a key", () => {
  it("are passed to one processor call in order, and each completes with its own result", async () => {
    await using merging = await Merging.start();
    const { lab, queue } = merging;
    const merged: unknown[] = [];
    for (let i = 0; i < 2; i++) {
      const worker = merging.worker((job, { batch }) => {
        const [, second] = batch.jobs;
        if (second !== undefined) batch.complete(second, `own of ${(second.data as Data).i}`);
        return `all of ${job.data.i}`;
      });
      worker.on("merged", (message) => merged.push(message));
    }
    await merging.lineUp(behind(4));
    expect(await merging.ends(5)).toEqual(["all of 0", "all of 1", "own of 2", "all of 1", "all of 1"]);
    expect(merging.calls).toEqual([["1"], ["2", "3", "4", "5"]]);
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

  it("fail one by one, and their key waits for the retry, which keeps the order", async () => {
    await using merging = await Merging.start();
    const attempts = new Set<unknown>();
    merging.worker((_job, { batch }) => {
      for (const { opts } of batch.jobs) attempts.add(opts.attempts);
      const bad = batch.jobs.find(({ data, attemptsMade }) => (data as Data).i === 2 && attemptsMade === 0);
      if (bad !== undefined) batch.fail(bad, new TypeError("not this one"));
      return "done";
    });
    await merging.lineUp(behind(3), { attempts: 2, backoff: 1 });
    expect(await merging.ends(4)).toEqual(["done", "done", "done", "done"]);
    expect(merging.calls).toEqual([["1"], ["2", "3", "4"], ["3"]]);
    expect([...attempts]).toEqual([2]);
    const third = (await merging.queue.getJob("3")) as Job<Data>;
    expect([third.attemptsMade, third.attemptsStarted, third.stacktrace?.length]).toEqual([2, 2, 1]);
  });

  it("are passed to the next call if this call rejects, which counts as an attempt of the first job only", async () => {
    await using merging = await Merging.start();
    merging.worker((job) => {
      if (job.data.i === 1 && job.attemptsMade === 0) throw new Error("the provider is away");
      return "done";
    });
    await merging.lineUp(behind(2), { attempts: 2, backoff: 1 });
    expect(await merging.ends(3)).toEqual(["done", "done", "done"]);
    expect(merging.calls).toEqual([["1"], ["2", "3"], ["2", "3"]]);
    expect((await merging.queue.getJob("3"))?.attemptsMade).toBe(1);
  });

  it("are at most perKey.batch.size in one call, have exactly the same key, and exclude jobs removed meanwhile", async () => {
    await using merging = await Merging.start();
    const second = gate();
    merging.worker(async (job) => job.data.i > 0 && (await second.passed), { perKey: { batch: { size: 3 } } });
    await merging.lineUp([...behind(4), { name: "job", data: { k: ["a", "b"], i: 5 } }, ...behind(1)]);
    merging.running.open();
    await until(() => merging.calls.length === 2);
    await (await merging.queue.getJob("3"))?.remove();
    second.open();
    await finished(merging.queue, 6);
    expect(merging.calls).toEqual([["1"], ["2", "3", "4"], ["5"], ["6"], ["7"]]);
    expect(await merging.lab.leftovers()).toEqual([]);
  });

  it("are left out of the call from the first one that cannot be merged on", async () => {
    await using merging = await Merging.start();
    const { lab } = merging;
    merging.worker();
    await merging.lineUp(behind(5));
    // The job has finished in a plain worker, and is in line for a moment.
    await lab.redis.hset("bull:q:3", "finishedOn", "1");
    // BullMQ will fail it.
    await lab.redis.hset("bull:q:5", "defa", "stalled too often");
    merging.running.open();
    await until(() => merging.calls.length === 3);
    expect(merging.calls).toEqual([["1"], ["2", "4"], ["6"]]);
  });

  it("are collected for as long as perKey.batch.wait says", async () => {
    await using merging = await Merging.start();
    merging.running.open();
    merging.worker(undefined, { perKey: { batch: { wait: 3_000 }, rate: { max: 1, duration: 600_000 } } });
    await merging.queue.addBulk(jobs(5, () => "a"));
    // The other jobs of the batch do not start, so the rate does not limit them.
    await merging.ends(5);
    expect(merging.calls).toEqual([["1", "2", "3", "4", "5"]]);
  });

  describe.concurrent("with a wait longer than the test", () => {
    const wait = { perKey: { batch: { wait: 3_600_000 } } };

    it("are collected until their worker is closed", async () => {
      await using merging = await Merging.start();
      const worker = merging.worker(undefined, wait);
      merging.running.open();
      await merging.queue.add("job", { k: "a", i: 0 });
      await until(async () => (await merging.queue.getActiveCount()) === 1);
      await worker.close();
      expect(await merging.ends(1)).toEqual(["done"]);
    });

    it("are not run by a worker that was closed by force", async () => {
      await using merging = await Merging.start();
      const released: string[] = [];
      const worker = merging.worker(undefined, wait);
      worker.on("released", ({ jobId }) => released.push(jobId));
      const locked = new Promise((resolve) => worker.once("locked", resolve));
      await merging.queue.add("job", { k: "a", i: 0 });
      await locked;
      await worker.close(true);
      await until(() => released.length === 1);
      expect(merging.calls).toEqual([]);
      expect(await merging.queue.getActiveCount()).toBe(1);
    });

    it("are no longer collected once another worker has taken the first job", async () => {
      await using merging = await Merging.start();
      const worker = merging.worker(undefined, { ...wait, lockDuration: 1_000 });
      const lost = new Promise((resolve) => worker.once("lost", resolve));
      await merging.queue.add("job", { k: "a", i: 0 });
      await until(async () => (await merging.queue.getActiveCount()) === 1);
      await merging.lab.redis.set("bull:q:1:lock", "another's", "PX", 3_600_000);
      await lost;
      await worker.close();
      expect(merging.calls).toEqual([]);
    });
  });

  it("are not in the batch of a worker that does not merge, whose call still sets the outcome of its own job", async () => {
    await using merging = await Merging.start();
    merging.worker(
      (job, { batch }) => {
        if (job.data.i === 0) batch.complete(job, "of its own");
        else batch.fail(job, new TypeError("is empty"));
        return "done";
      },
      { whenBusy: "queue", onFailure: "skip" },
    );
    await merging.queue.addBulk(jobs(3, () => "a"));
    expect(await merging.ends(3)).toEqual(["of its own", "is empty", "is empty"]);
    expect(await merging.queue.getFailedCount()).toBe(2);
  });

  it("cannot be failed with an error that reports a move to BullMQ", () => {
    const job = { id: "1" } as Job;
    const batch = new Batch([job]);
    for (const error of [new DelayedError(), new WaitingError(), new WaitingChildrenError(), new RateLimitError()]) {
      expect(() => batch.fail(job, error)).toThrow(
        new TypeError(
          `error must be an Error that does not report to BullMQ that a job was moved, got an instance of ${error.name}`,
        ),
      );
    }
    expect(batch.outcomeOf(job, "done")).toEqual({ value: "done" });
  });

  it("end with the outcome that the call has set, with any whenBusy of their next worker", async () => {
    await using merging = await Merging.start();
    const { lab, queue } = merging;
    await queue.addBulk(jobs(2, () => "a"));
    await merging.settle(["1", "2"]);
    merging.worker(undefined, { whenBusy: "queue" });
    expect(await merging.ends(2)).toEqual(["of 1", "of 2"]);
    expect(await lab.redis.hexists("bull:q:1", "lr")).toBe(0);
    expect(merging.calls).toEqual([]);
  });

  it("end with the outcome that the call has set, even if the worker of that call is gone", async () => {
    await using merging = await Merging.start();
    const worker = merging.worker();
    await merging.lineUp(behind(2));
    await merging.settle(["2", "3"]);
    merging.running.open();
    await worker.close();
    merging.worker();
    expect(await merging.ends(3)).toEqual(["done", "of 2", "of 3"]);
    expect(merging.calls).toEqual([["1"]]);
  });
});
