/** `cancel`: a job is cancelled from any process. */
import { hostname } from "node:os";
import { until } from "@x/test-support";
import { type CancelledState, JobCancelledError } from "@x/workers";
import { PartitionedQueue } from "@x/workers/partitions";
import { DelayedError, FlowProducer, type Job, type Queue, QueueEvents } from "bullmq";
import { describe, expect, it } from "vitest";
import { startCrew } from "./support/crew.ts";
import { readHistory } from "./support/history.ts";
import { type Data, finished, gate, jobs, Lab, redlockOn } from "./support/lab.ts";

const BY = `${hostname()}:${process.pid}`;
const HOUR_MS = 3_600_000;
const rules = { recheckInterval: HOUR_MS } as const;

/** Rejects when the signal aborts. */
async function rejected(signal: AbortSignal): Promise<never> {
  signal.throwIfAborted();
  return await new Promise((_resolve, reject) =>
    signal.addEventListener("abort", () => reject(signal.reason as Error)),
  );
}

async function failure(queue: Queue<Data>, id: string): Promise<readonly [string, string | undefined]> {
  const job = (await queue.getJob(id)) as Job<Data>;
  return [await job.getState(), job.failedReason];
}

/** From now on Redis refuses to publish, so that a cancellation only leaves its note. */
async function loseMessages(lab: Lab): Promise<void> {
  await lab.redis.call("ACL", "SETUSER", "default", "resetchannels");
}

describe.concurrent("a running job that is cancelled", () => {
  it.each(["on the queue's Redis", "elsewhere"])(
    "aborts in any worker and fails without a retry, with the locks %s",
    async (where) => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const reasons: unknown[] = [];
      const failed: Error[] = [];
      for (let i = 0; i < 2; i += 1) {
        const worker = lab.worker(
          async (job, signal) => {
            if (job.data.i > 0) return "done";
            return await rejected(signal).catch((reason: unknown) => {
              reasons.push(reason);
              throw reason;
            });
          },
          { ...rules, ...(where === "elsewhere" ? { redlock: redlockOn(lab, lab.server.url) } : {}) },
        );
        worker.on("failed", (_job, error) => failed.push(error));
      }
      await queue.addBulk(jobs(2, () => "a").map((job) => ({ ...job, opts: { attempts: 3 } })));
      await until(() => lab.ran.length === 1);
      const beforeMs = Date.now();
      expect(await queue.cancel("1", "wrong customer")).toBe("running");
      await finished(queue, 2);
      expect(await failure(queue, "1")).toEqual(["failed", `job 1 was cancelled by ${BY}: wrong customer`]);
      expect((await queue.getJob("1"))?.attemptsMade).toBe(1);
      const [reason] = reasons as JobCancelledError[];
      expect(reason).toBeInstanceOf(JobCancelledError);
      expect(reason).toMatchObject({ jobId: "1", reason: "wrong customer", by: BY, code: "JOB_CANCELLED" });
      expect(reason?.atMs).toBeGreaterThanOrEqual(beforeMs);
      expect(failed).toEqual([reason]);
      expect(lab.ran.map(({ i }) => i)).toEqual([0, 1]);
      expect(lab.overlaps()).toEqual([]);
      expect(lab.errors).toEqual([]);
      expect(await lab.leftovers()).toEqual([]);
    },
  );

  it("fails with the processor's error as the cause", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const failed: Error[] = [];
    const error = new TypeError("half done");
    const worker = lab.worker(async (_job, signal) => {
      await rejected(signal).catch(() => undefined);
      throw error;
    }, rules);
    worker.on("failed", (_job, reason) => failed.push(reason));
    await queue.add("job", { k: "a", i: 0 }, { attempts: 3 });
    await until(() => lab.ran.length === 1);
    await queue.cancel("1");
    await finished(queue, 1);
    expect(await failure(queue, "1")).toEqual(["failed", `job 1 was cancelled by ${BY}: cancelled by an operator`]);
    expect(failed[0]?.cause).toBe(error);
  });

  it.each([{}, { whenBusy: "merge", perKey: { batch: { size: 5 } } }, { onFailure: "block" }, { between: "rotate" }])(
    "fails even if its processor returns a value, with the options %j",
    async (options) => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const running = gate();
      const completed: string[] = [];
      const worker = lab.worker(
        async (job) => {
          if (job.data.i === 0) await running.passed;
          return "done";
        },
        { ...rules, ...(options as object) },
      );
      worker.on("completed", (job) => completed.push(String(job.id)));
      await queue.addBulk(jobs(1, () => "a").map((job) => ({ ...job, opts: { attempts: 3 } })));
      await until(() => lab.ran.length === 1);
      await queue.add("job", { k: "a", i: 1 });
      expect(await queue.cancel("1", "ECONNREFUSED")).toBe("running");
      running.open();
      await finished(queue, 2);
      expect(await failure(queue, "1")).toEqual(["failed", `job 1 was cancelled by ${BY}: ECONN-REFUSED`]);
      expect(completed).toEqual(["2"]);
      expect(lab.errors).toEqual([]);
      expect(await lab.leftovers()).toEqual([]);
    },
  );

  it.each(["retries", "retries later", "delays itself", "backs off", "waits for children", "returns to the queue"])(
    "fails if the message is lost and its processor %s",
    async (how) => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const running = gate();
      const failed: string[] = [];
      const worker = lab.worker(async (job, _signal, lock) => {
        if (job.data.i > 0) return;
        await running.passed;
        if (how === "backs off") lock.backOff(HOUR_MS);
        if (how === "delays itself") await job.moveToDelayed(Date.now() + HOUR_MS, job.token);
        if (how === "waits for children") await job.moveToWaitingChildren(String(job.token));
        if (how === "returns to the queue") {
          await job.moveToWait(job.token);
          throw new DelayedError();
        }
        throw new Error("its own");
      }, rules);
      worker.on("failed", (job) => failed.push(String(job?.id)));
      await loseMessages(lab);
      await queue.add(
        "job",
        { k: "a", i: 0 },
        { attempts: 3, ...(how === "retries later" ? { backoff: HOUR_MS } : {}) },
      );
      await queue.add("job", { k: "a", i: 1 });
      await until(() => lab.ran.length === 1);
      expect(await queue.cancel("1", "no")).toBe("running");
      running.open();
      await finished(queue, 2);
      expect(await failure(queue, "1")).toEqual(["failed", `job 1 was cancelled by ${BY}: no`]);
      expect(lab.ran.map(({ i }) => i)).toEqual([0, 1]);
      expect(await lab.redis.hexists("bull:q:1", "lb")).toBe(0);
      expect(await lab.leftovers()).toEqual([]);
    },
  );

  it("aborts at the next renewal of its lock if the message is lost", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker(async (_job, signal) => await rejected(signal), { ...rules, lockDuration: 5_000 });
    await loseMessages(lab);
    await queue.add("job", { k: "a", i: 0 }, { attempts: 3 });
    await until(() => lab.ran.length === 1);
    await queue.cancel("1");
    await finished(queue, 1);
    expect((await failure(queue, "1"))[0]).toBe("failed");
  });

  it("runs if it is retried by hand", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker(async (job, signal) => (lab.ran.length === 1 ? await rejected(signal) : job.id), rules);
    await queue.add("job", { k: "a", i: 0 });
    await until(() => lab.ran.length === 1);
    await queue.cancel("1");
    await finished(queue, 1);
    await (await queue.getJob("1"))?.retry("failed");
    await until(async () => (await queue.getCompletedCount()) === 1);
    expect(await queue.cancel("1")).toBe("unknown");
  });

  it("is explained as cancelled while it runs", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const running = gate();
    lab.worker(async () => await running.passed, rules);
    await queue.add("job", { k: "a", i: 0 });
    await until(() => lab.ran.length === 1);
    await queue.cancel("1", "wrong customer");
    expect(await queue.explain("1")).toMatchObject({
      verdict: "cancelled",
      message: `was cancelled by ${BY}: wrong customer; it is running in ${BY}`,
    });
    running.open();
    await finished(queue, 1);
    expect((await queue.explain("1"))?.verdict).toBe("finished");
  });

  it("rejects the end and the moves of a job that was fetched by hand", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const worker = lab.worker(undefined, { ...rules, autorun: false });
    await queue.add("job", { k: "a", i: 0 }, { attempts: 3 });
    const job = await worker.getNextJob("token");
    expect(await queue.cancel("1")).toBe("running");
    await expect(job.moveToCompleted("done", "token")).rejects.toBeInstanceOf(JobCancelledError);
    const error = (await job.moveToDelayed(Date.now(), "token").catch((reason: unknown) => reason)) as Error;
    expect(error).toBeInstanceOf(JobCancelledError);
    await job.moveToFailed(error, "token");
    expect((await failure(queue, "1"))[0]).toBe("failed");
    expect(await lab.leftovers()).toEqual([]);
  });
});

describe.concurrent("a job that does not run", () => {
  /** Puts job 2 into a state. Resolves with the state that `cancel` must find. */
  const states: Readonly<Record<string, (lab: Lab, queue: Queue<Data>) => Promise<CancelledState>>> = {
    parked: async (lab, queue) => {
      lab.worker(async (job) => (job.data.i === 0 ? await new Promise(() => {}) : undefined), rules);
      await queue.addBulk(jobs(2, () => "a"));
      await until(async () => (await lab.redis.hexists("bull:q:2", "ls")) === 1);
      return "parked";
    },
    waiting: async (_lab, queue) => {
      await queue.addBulk(jobs(2, () => "a"));
      return "waiting";
    },
    prioritized: async (_lab, queue) => {
      await queue.addBulk(jobs(2, () => "a").map((job) => ({ ...job, opts: { priority: 3 } })));
      return "waiting";
    },
    delayed: async (_lab, queue) => {
      await queue.addBulk(jobs(2, () => "a").map((job) => ({ ...job, opts: { delay: HOUR_MS } })));
      return "waiting";
    },
    "in a paused queue": async (_lab, queue) => {
      await queue.pause();
      await queue.addBulk(jobs(2, () => "a"));
      return "waiting";
    },
  };

  it.each(Object.keys(states))("fails immediately: %s", async (state) => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const found = await states[state]?.(lab, queue);
    expect(await queue.cancel("2", "no")).toBe(found);
    expect(await failure(queue, "2")).toEqual(["failed", `job 2 was cancelled by ${BY}: no`]);
    expect((await queue.getJob("2"))?.attemptsMade).toBe(0);
    const { failed, active, waiting, prioritized, delayed } = await queue.getJobCounts();
    expect([failed, active, (waiting ?? 0) + (prioritized ?? 0) + (delayed ?? 0)]).toEqual([
      1,
      state === "parked" ? 1 : 0,
      state === "parked" ? 0 : 1,
    ]);
    expect(await queue.cancel("2")).toBe("unknown");
    expect(await lab.redis.keys("bull:q:2:lock")).toEqual([]);
    expect((await queue.jobsOf("a")).parked).toEqual([]);
  });

  it.each(Object.keys(states))("is removed with the option: %s", async (state) => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const found = await states[state]?.(lab, queue);
    expect(await queue.cancel("2", "no", { remove: true })).toBe(found);
    expect(await queue.getJob("2")).toBeUndefined();
    expect((await queue.jobsOf("a")).parked).toEqual([]);
  });

  it("passes its key on if it waits for its retry", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker(
      (job) => {
        if (job.data.i === 0) throw new Error("not yet");
      },
      { ...rules, onFailure: "block" },
    );
    await queue.add("job", { k: "a", i: 0 }, { attempts: 2, backoff: HOUR_MS });
    await queue.add("job", { k: "a", i: 1 });
    await until(async () => (await queue.getDelayedCount()) === 2);
    expect(await queue.cancel("1")).toBe("waiting");
    await finished(queue, 2);
    expect(await queue.getCompletedCount()).toBe(1);
    expect(await lab.leftovers()).toEqual([]);
  });

  it("is seen by its parent and by listeners", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const events = new QueueEvents("q", { connection: lab.connection });
    lab.defer(async () => await events.close());
    const seen: unknown[] = [];
    events.on("failed", (event) => seen.push([event.jobId, event.failedReason]));
    await events.waitUntilReady();
    const flows = new FlowProducer({ connection: lab.connection });
    lab.defer(async () => await flows.close());
    await flows.add({
      name: "job",
      queueName: "q",
      data: { k: "p", i: 0 },
      opts: { jobId: "parent" },
      children: [
        { name: "job", queueName: "q", data: { k: "a", i: 1 }, opts: { jobId: "child", failParentOnFailure: true } },
      ],
    });
    expect(await queue.cancel("child", "no")).toBe("waiting");
    await until(() => seen.length > 0);
    expect(seen).toEqual([["child", `job child was cancelled by ${BY}: no`]]);
    lab.worker(undefined, rules);
    await until(async () => (await queue.getJob("parent"))?.failedReason !== undefined);
    expect(lab.ran).toEqual([]);
  });

  it("fails while it waits for its children", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const flows = new FlowProducer({ connection: lab.connection });
    lab.defer(async () => await flows.close());
    const child = { name: "job", queueName: "q", data: { k: "a", i: 1 }, opts: { jobId: "child" } };
    await flows.add({
      name: "job",
      queueName: "q",
      data: { k: "p", i: 0 },
      opts: { jobId: "parent" },
      children: [child],
    });
    expect(await queue.cancel("parent")).toBe("waiting");
    expect((await failure(queue, "parent"))[0]).toBe("failed");
    lab.worker(undefined, rules);
    await finished(queue, 2);
    expect((await failure(queue, "parent"))[0]).toBe("failed");
  });

  it("fails at its time if it is the next job of a job scheduler, which continues", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    await queue.upsertJobScheduler("s", { every: HOUR_MS }, { name: "job", data: { k: "a", i: 0 } });
    const [first] = await queue.getJobs(["delayed", "waiting"]);
    expect(await queue.cancel(String(first?.id))).toBe("waiting");
    await first?.promote().catch(() => undefined);
    lab.worker(undefined, rules);
    await finished(queue, 1);
    expect((await failure(queue, String(first?.id)))[0]).toBe("failed");
    expect(await queue.getDelayedCount()).toBe(1);
    expect(lab.ran).toEqual([]);
  });

  it("does not exist", async () => {
    await using lab = await Lab.start();
    expect(await lab.queue().cancel("7")).toBe("unknown");
  });
});

describe.concurrent("all jobs of a key", () => {
  it.each([{}, { remove: true }])(
    "are cancelled: running, parked, waiting and delayed, with the options %j",
    async (options) => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      lab.worker(async (job, signal) => (job.data.k === "a" ? await rejected(signal) : undefined), {
        ...rules,
        concurrency: 1,
      });
      await queue.add("job", { k: "a", i: 0 });
      await until(() => lab.ran.length === 1);
      await queue.addBulk(jobs(3, (i) => (i === 1 ? "b" : ["a", "c"])));
      await queue.add("job", { k: "a", i: 4 }, { delay: HOUR_MS });
      const found = await queue.cancelKey("a", "no", options);
      expect(found).toEqual({ running: 1, parked: 0, waiting: 3 });
      await until(async () => (await queue.getCompletedCount()) === 1);
      await until(async () => (await queue.getFailedCount()) === ("remove" in options ? 1 : 4));
      expect(lab.ran.map(({ i }) => i)).toEqual([0, 1]);
      expect(await queue.cancelKey("a")).toEqual({ running: 0, parked: 0, waiting: 0 });
      expect(await lab.leftovers()).toEqual([]);
    },
  );

  it("are cancelled in line, which lets no job of the key start", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker(async (_job, signal) => await rejected(signal), rules);
    await queue.addBulk(jobs(250, () => "a"));
    await until(async () => (await queue.jobsOf("a")).parked.length === 249);
    expect(await queue.cancelKey("a", "no")).toEqual({ running: 1, parked: 249, waiting: 0 });
    await finished(queue, 250);
    expect(await queue.getFailedCount()).toBe(250);
    expect(lab.ran).toHaveLength(1);
  });

  it("are cancelled in a queue in partitions, as a single job is", async () => {
    await using lab = await Lab.start();
    const queue = new PartitionedQueue<Data>("q", { connection: lab.connection, partitions: 3, key: "k" });
    lab.defer(async () => await queue.close());
    await queue.addBulk(jobs(3, () => "a").map((job, i) => ({ ...job, opts: { jobId: `j${i}` } })));
    await queue.add("job", { k: "b", i: 4 }, { jobId: "other" });
    expect(await queue.cancel("j0", "no")).toBe("waiting");
    expect(await queue.cancel("j0", "no")).toBe("unknown");
    expect(await queue.cancel("none")).toBe("unknown");
    expect(await queue.cancel("j1", "no", { key: "a", remove: true })).toBe("waiting");
    expect(await queue.cancelKey("a", "no")).toEqual({ running: 0, parked: 0, waiting: 1 });
    expect(await queue.getJobCounts("waiting", "failed")).toEqual({ waiting: 1, failed: 2 });
  });
});

describe("a cancellation in another process", () => {
  it("is noticed by a worker process that was frozen, before it can complete the job", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const crew = await startCrew(lab, { lockDuration: 600_000 });
    const child = crew.spawn();
    await queue.add("job", { k: "a", i: 0, ms: 1_000 }, { attempts: 3 });
    await until(async () => (await readHistory(crew.history)).length === 1);
    child.freeze();
    await loseMessages(lab);
    expect(await queue.cancel("1", "no")).toBe("running");
    child.thaw();
    await finished(queue, 1);
    expect(await failure(queue, "1")).toEqual(["failed", `job 1 was cancelled by ${BY}: no`]);
  }, 60_000);

  it("fails a job whose process was killed, without another run", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const crew = await startCrew(lab, { lockDuration: 1_000, stalledInterval: 500, maxStalledCount: 5 });
    const child = crew.spawn();
    await queue.add("job", { k: "a", i: 0, ms: 60_000 }, { attempts: 3 });
    await until(async () => (await readHistory(crew.history)).length === 1);
    await child.kill();
    expect(await queue.cancel("1", "no")).toBe("running");
    crew.spawn();
    await finished(queue, 1);
    expect(await failure(queue, "1")).toEqual(["failed", `job 1 was cancelled by ${BY}: no`]);
    expect(await readHistory(crew.history)).toHaveLength(1);
  }, 60_000);

  it("records exactly one outcome of jobs that complete at the same moment", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const crew = await startCrew(lab, { concurrency: 5 });
    crew.spawn();
    crew.spawn();
    const events = new QueueEvents("q", { connection: lab.connection, lastEventId: "0" });
    lab.defer(async () => await events.close());
    const outcomes = new Map<string, string[]>();
    for (const name of ["completed", "failed"] as const) {
      events.on(name, ({ jobId }: { jobId: string }) => outcomes.set(jobId, [...(outcomes.get(jobId) ?? []), name]));
    }
    const count = 300;
    const found = new Map<string, CancelledState>();
    await queue.addBulk(
      jobs(count, (i) => `k${i % 20}`).map((job, i) => ({ ...job, opts: { jobId: `j${i}`, attempts: 3 } })),
    );
    // Cancels shortly after each start, so that many cancellations meet the end of their job.
    await until(async () => {
      const started = (await readHistory(crew.history)).filter(({ what }) => what === "start");
      const fresh = started.filter(({ jobId }) => !found.has(jobId)).slice(-5);
      await Promise.all(fresh.map(async ({ jobId }) => found.set(jobId, await queue.cancel(jobId, "no"))));
      return (await queue.getJobCountByTypes("completed", "failed")) === count;
    });
    await until(() => outcomes.size === count);
    for (const [jobId, ends] of outcomes) {
      expect([jobId, ends, found.get(jobId)]).toEqual([
        jobId,
        [found.get(jobId) === "running" || found.get(jobId) === "waiting" ? "failed" : "completed"],
        found.get(jobId),
      ]);
    }
    expect(await lab.leftovers()).toEqual([]);
  }, 60_000);
});
