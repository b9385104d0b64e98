/** The outcome of jobs for a busy key, with `perKey.maxWaiting` and `whenBusy`. */
import { until } from "@x/test-support";
import { KeyBacklogError } from "@x/workers";
import { describe, expect, it } from "vitest";
import { finished, gate, jobs, Lab } from "./support/lab.ts";

describe.concurrent("perKey.maxWaiting", () => {
  it.each([
    ["newest", [0, 1, 2], ["4", "5"]],
    ["oldest", [0, 3, 4], ["2", "3"]],
  ] as const)("fails the %s job before the processor is called, and no other job", async (drop, ran, failed) => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const running = gate();
    const options = { perKey: { maxWaiting: { max: 2, drop } }, concurrency: 2 };
    const dropped: unknown[] = [];
    const workers = [1, 2].map(() => lab.worker(async (job) => (job.data.i === 0 ? await running.passed : 0), options));
    for (const worker of workers) worker.on("dropped", (message) => dropped.push(message));
    await queue.add("job", { k: "a", i: 0 });
    await until(() => lab.ran.length === 1);
    for (const i of [1, 2, 3, 4]) {
      await queue.add("job", { k: "a", i });
      await until(async () => (await queue.getWaitingCount()) === 0 && (await queue.getActiveCount()) === 1);
    }
    await queue.addBulk(jobs(3, () => "b"));
    await until(async () => (await queue.getFailedCount()) === 2);
    running.open();
    await finished(queue, 8);
    expect(lab.ran.filter(({ key }) => key === "a").map(({ i }) => i)).toEqual(ran);
    const found = await queue.getFailed();
    expect(new Set(found.map(({ id }) => id))).toEqual(new Set(failed));
    const [first] = failed;
    expect(found.find(({ id }) => id === first)?.failedReason).toBe(new KeyBacklogError(first, "a").message);
    expect(dropped).toHaveLength(2);
    expect(dropped[0]).toMatchObject({ queue: "q", jobId: first, keys: ["a"], reason: "backlog" });
    expect(lab.overlaps()).toEqual([]);
    expect(await lab.leftovers()).toEqual([]);
  });

  it("counts the failure of a job as an attempt, so that the job is retried as its options say", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const running = gate();
    lab.worker(async (job) => (job.data.i === 0 ? await running.passed : 0), {
      perKey: { maxWaiting: { max: 1 } },
    });
    const opts = { attempts: 50, backoff: { type: "fixed", delay: 50 } };
    await queue.addBulk(jobs(4, () => "a").map((job) => ({ ...job, opts })));
    await until(async () =>
      (await Promise.all(["3", "4"].map(async (id) => (await queue.getJob(id))?.attemptsMade))).every(
        (made) => (made ?? 0) > 1,
      ),
    );
    running.open();
    await finished(queue, 4);
    expect(await queue.getFailedCount()).toBe(0);
    expect(lab.ran.map(({ i }) => i).toSorted((a, b) => a - b)).toEqual([0, 1, 2, 3]);
  });
});

describe.concurrent("whenBusy", () => {
  it.each([
    ["latest", [0, 4], { notRun: "superseded", by: "5" }],
    ["drop", [0], { notRun: "busy", by: "1" }],
  ] as const)(
    "%s completes the other jobs without a run, and reports this in their results",
    async (whenBusy, ran, last) => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const running = gate();
      const dropped: { readonly reason: string }[] = [];
      const workers = [1, 2].map(() =>
        lab.worker(async (job) => (job.data.i === 0 ? await running.passed : 0), { whenBusy, concurrency: 3 }),
      );
      for (const worker of workers) worker.on("dropped", (message) => dropped.push(message));
      await queue.addBulk(jobs(1, () => "a"));
      await until(() => lab.ran.length === 1);
      for (const i of [1, 2, 3, 4]) await queue.add("job", { k: "a", i });
      const notRun = 5 - ran.length;
      await until(async () => (await queue.getCompletedCount()) === notRun);
      running.open();
      await finished(queue, 5);
      expect(lab.ran.map(({ i }) => i)).toEqual(ran);
      expect(dropped).toHaveLength(notRun);
      const told = (await queue.getCompleted()).find(({ id }) => id === "4");
      expect(told?.returnvalue).toEqual(last);
      expect(await lab.leftovers()).toEqual([]);
      expect(lab.errors).toEqual([]);
    },
  );

  it("latest supersedes no job with other keys, but does supersede a job that waits behind a pause", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker(undefined, { whenBusy: "latest" });
    await queue.pauseKey("a");
    await queue.addBulk([...jobs(1, () => ["a", "b"]), ...jobs(2, () => "a")]);
    await until(async () => (await queue.getCompletedCount()) === 1);
    await queue.resumeKey("a");
    await finished(queue, 3);
    expect(lab.ran.map(({ key, i }) => [key, i])).toEqual([
      ["a,b", 0],
      ["a", 1],
    ]);
  });

  it.each(["after", "before"] as const)(
    "latest keeps the age of a retried job, whose retry is due %s the newest job is added",
    async (when) => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const [first, second] = [gate(), gate()];
      lab.worker(
        async ({ data: { i }, attemptsMade }) => {
          if (i === 0) await first.passed;
          if (i === 0 && attemptsMade === 0) throw new Error("the first time");
          if (i === 1) await second.passed;
        },
        { whenBusy: "latest", concurrency: 2 },
      );
      const looked = async (): Promise<void> => {
        await until(async () => (await queue.getWaitingCount()) === 0 && (await queue.getActiveCount()) === 1);
      };
      const addThird = async (): Promise<void> => {
        await queue.add("job", { k: "a", i: 2 });
        await looked();
      };
      await queue.add("job", { k: "a", i: 0 }, { attempts: 2, backoff: 3_600_000 });
      await until(() => lab.ran.length === 1);
      await queue.add("job", { k: "a", i: 1 });
      await looked();
      first.open();
      await until(() => lab.ran.length === 2);
      if (when === "after") await addThird();
      // The job is due.
      await (await queue.getJob("1"))?.promote();
      await looked();
      if (when === "before") await addThird();
      second.open();
      await finished(queue, 3);
      expect(lab.ran.map(({ i }) => i)).toEqual([0, 1, 2]);
      expect((await queue.getJob("1"))?.returnvalue).toEqual({ notRun: "superseded", by: "3" });
      expect(await lab.leftovers()).toEqual([]);
    },
  );

  it("latest treats a job that is retried manually as the newest", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const second = gate();
    lab.worker(
      async ({ data: { i }, attemptsMade }) => {
        if (i === 0 && attemptsMade < 2) throw new Error(`time ${attemptsMade}`);
        if (i === 1) await second.passed;
      },
      { whenBusy: "latest", concurrency: 2 },
    );
    await queue.add("job", { k: "a", i: 0 }, { attempts: 2, backoff: 1 });
    await until(async () => (await queue.getFailedCount()) === 1);
    await queue.add("job", { k: "a", i: 1 });
    await until(() => lab.ran.length === 3);
    await queue.add("job", { k: "a", i: 2 });
    await until(async () => (await queue.getDelayedCount()) === 1);
    await (await queue.getJob("1"))?.retry();
    await until(async () => (await queue.getCompletedCount()) === 1);
    second.open();
    await finished(queue, 3);
    expect(lab.ran.map(({ i }) => i)).toEqual([0, 0, 1, 0]);
    expect((await queue.getJob("3"))?.returnvalue).toEqual({ notRun: "superseded", by: "1" });
  });

  it("applies to workers that start later, and other workers of the queue report the difference", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const first = lab.worker(undefined, { whenBusy: "latest" });
    await queue.pauseKey("a");
    await queue.addBulk(jobs(1, () => "a"));
    await until(async () => (await queue.getDelayedCount()) === 1);
    await first.close();
    lab.worker(undefined, { whenBusy: "latest" });
    await queue.addBulk([{ name: "job", data: { k: "a", i: 1 } }]);
    await until(async () => (await queue.getCompletedCount()) === 1);
    await queue.resumeKey("a");
    await finished(queue, 2);
    expect(lab.ran.map(({ i }) => i)).toEqual([1]);
    lab.worker();
    await until(async () => (await queue.setups()).length === 2);
    expect((await queue.check()).map(({ code }) => code)).toEqual(["OTHER_PER_KEY"]);
  });
});
