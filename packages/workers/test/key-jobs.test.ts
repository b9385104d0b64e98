/** The jobs of one key in all states: listing and removing them. */
import { until } from "@x/test-support";
import { describe, expect, it } from "vitest";
import { finished, gate, jobs, Lab } from "./support/lab.ts";

const rules = { recheckInterval: 3_600_000 } as const;

describe.concurrent("the jobs of a key", () => {
  it.each(["k", (job: { readonly data: { readonly k?: unknown } }) => job.data.k as string])(
    "are listed in line, in the queue and among the delayed, and removed except for the running one (key: %s)",
    async (key) => {
      await using lab = await Lab.start();
      const queue = lab.queue("q", typeof key === "string" ? {} : { key });
      const running = gate();
      lab.worker(async () => await running.passed, { ...rules, key: key as "k", concurrency: 2 });
      lab.defer(async () => running.open());
      await queue.addBulk([...jobs(4, () => "a"), ...jobs(1, () => "b")]);
      await until(() => lab.ran.length === 2);
      await until(async () => (await queue.getDelayedCount()) === 3);
      // No slot is free, so no worker judges these jobs.
      await queue.addBulk(jobs(6, (i) => (i % 2 === 0 ? "a" : "b")));
      await queue.add("job", { k: "a", i: 7 }, { priority: 5 });
      await queue.add("job", { k: ["a", "c"], i: 8 }, { delay: 3_600_000 });
      await queue.add("job", { k: "b", i: 9 }, { delay: 3_600_000 });
      const all = await queue.jobsOf("a", { state: "all" });
      expect(all).toMatchObject({ holders: ["1"], parked: ["2", "3", "4"], delayed: ["13"] });
      expect(all.waiting?.toSorted((x, y) => Number(x) - Number(y))).toEqual(["6", "8", "10", "12"]);
      await lab.redis.hset("bull:q:3", "lp", 1_500);
      await lab.redis.hdel("bull:q:4", "lp");
      const who = { holder: "1", holders: ["1"] };
      const parkedSinceMs = [expect.any(Number), 1_500, undefined];
      expect(await queue.jobsOf("a")).toEqual({ ...who, parked: ["2", "3", "4"], parkedSinceMs });
      const delayed = await queue.jobsOf("a", { state: "delayed" });
      expect(delayed).toMatchObject({ parked: [], parkedSinceMs: [], delayed: ["13"] });
      expect((await queue.jobsOf("a", { state: "waiting", limit: 2 })).waiting).toHaveLength(2);
      expect(await queue.removeJobs("a", { state: "delayed" })).toBe(1);
      expect(await queue.removeJobs("a", { state: "parked" })).toBe(3);
      expect((await queue.listKeys()).find((each) => each.key === "a")).toMatchObject({ holder: "1", parked: 0 });
      expect(await queue.removeJobs("a")).toBe(4);
      expect(await queue.removeJobs("a")).toBe(0);
      expect(await queue.getJobCounts("active", "wait", "prioritized", "delayed")).toEqual({
        active: 2,
        wait: 3,
        prioritized: 0,
        delayed: 1,
      });
      running.open();
      await finished(queue, 5);
      expect(await lab.leftovers()).toEqual([]);
      expect(lab.errors).toEqual([]);
    },
  );

  it("pass the key on when the job that holds it and waits for its retry is removed", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker(
      (job) => {
        if (job.opts.attempts === 2) throw new Error("later");
      },
      { ...rules, onFailure: "block" },
    );
    await queue.add("job", { k: "a", i: 0 }, { attempts: 2, backoff: 3_600_000 });
    await until(async () => (await queue.explain("1"))?.verdict === "waits-for-retry");
    await queue.addBulk(jobs(3, () => "a"));
    await until(async () => (await queue.getDelayedCount()) === 4);
    expect(await queue.removeJobs("a", { state: "delayed" })).toBe(1);
    await finished(queue, 3);
    expect(lab.inversions()).toEqual([]);
  });

  it("are removed page by page", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const running = gate();
    lab.worker(async () => await running.passed, { ...rules, concurrency: 1 });
    lab.defer(async () => running.open());
    await queue.addBulk(jobs(1_001, (i) => (i % 2 === 0 ? "a" : "b")));
    await until(() => lab.ran.length === 1);
    expect(await queue.removeJobs("b")).toBe(500);
    expect(await queue.removeJobs("a")).toBe(500);
    expect(await queue.getJobCounts("active", "wait", "delayed")).toEqual({ active: 1, wait: 0, delayed: 0 });
  });
});
