/** Changes to jobs and keys without the worker: plain workers, operators, lost data. */
import { until } from "@x/test-support";
import { FlowProducer, Worker } from "bullmq";
import { describe, expect, it } from "vitest";
import { type Data, finished, gate, jobs, Lab } from "../support/lab.ts";
import { healsSoon, type Key } from "./key.ts";

export function testRecovery(key: Key): void {
  describe("recovery", () => {
    const soon = healsSoon(key);

    it("frees a key when a plain worker has finished the job that held it", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      await queue.addBulk(jobs(3, () => "a"));
      const worker = lab.worker(undefined, { ...soon, autorun: false });
      await worker.getNextJob("token", { block: false });
      void worker.run();
      await until(async () => (await queue.getDelayedCount()) === 2);
      await (await queue.getJob("1"))?.moveToCompleted("done elsewhere", "token", false);
      await finished(queue, 3);
      expect(lab.ran.map((run) => run.i)).toEqual([1, 2]);
    });

    it.each(["its retry", "its children"])(
      "passes a key on when the job that holds it waits for %s in a plain worker",
      async (what) => {
        await using lab = await Lab.start();
        const queue = lab.queue();
        const worker = lab.worker(undefined, { ...soon, autorun: false });
        const plain = new Worker<Data>("q", null, { connection: lab.connection });
        lab.defer(async () => await plain.close());
        const opts = { attempts: 2, backoff: 3_600_000 };
        await queue.addBulk(jobs(3, () => "a").map((job) => ({ ...job, opts })));
        const first = await worker.getNextJob("first", { block: false });
        expect(await worker.getNextJob("none", { block: false })).toBeUndefined();
        await first?.moveToCompleted("done", "first", false);
        const chosen = await plain.getNextJob("token", { block: false });
        expect(chosen?.id).toBe("2");
        if (what === "its retry") {
          await chosen?.moveToFailed(new Error("not yet"), "token", false);
        } else {
          const parent = { id: "2", queue: queue.qualifiedName };
          await lab.queue("children").add("child", { i: 0 }, { parent });
          expect(await chosen?.moveToWaitingChildren("token")).toBe(true);
        }
        void worker.run();
        await finished(queue, 2);
        expect(lab.ran.map((run) => run.i)).toEqual([2]);
      },
    );

    it("never passes a key to a parked job that a plain worker has finished", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      // The lock of a job that is fetched manually is not renewed.
      const options = { key, recheckInterval: 600_000, autorun: false, lockDuration: 120_000 };
      const worker = lab.worker(undefined, options);
      const added = await queue.addBulk(jobs(4, () => "a"));
      const first = await worker.getNextJob("first", { block: false });
      expect(await worker.getNextJob("none", { block: false })).toBeUndefined();
      for (const job of added.slice(1, 3)) await job.promote();
      const plain = new Worker("q", async () => undefined, { connection: lab.connection });
      lab.defer(async () => await plain.close());
      await until(async () => (await queue.getCompletedCount()) === 2);
      await plain.close();
      await first?.moveToCompleted("done", "first", false);
      void worker.run();
      await finished(queue, 4);
      expect(lab.ran.map((run) => run.i)).toEqual([3]);
      expect(await queue.listKeys()).toEqual([]);
    });

    it("starts afresh after obliterate, even with reused job IDs and keys", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const running = gate();
      lab.worker(async (job) => (job.data.i === 0 ? await running.passed : undefined), soon);
      await queue.addBulk(jobs(10, (i) => (i < 6 ? "a" : "b"), 1));
      await until(async () => (await queue.getDelayedCount()) === 5);
      await queue.pause();
      await queue.obliterate({ force: true });
      running.open();
      await queue.resume();
      const again = jobs(10, (i) => (i < 6 ? "b" : "a")).map(({ name, data }) => ({
        name,
        data: { ...data, i: data.i + 10 },
      }));
      await queue.addBulk(again);
      await finished(queue, 10);
      expect(lab.overlaps()).toEqual([]);
      // A job that was fetched before may still begin, because BullMQ starts it from the worker's memory. It does not
      // count.
      const anew = lab.ran.filter(({ i }) => i >= 10).map(({ i }) => i);
      expect(anew.toSorted((a, b) => a - b)).toEqual(again.map(({ data }) => data.i));
    });

    it("runs the remaining jobs after clean, remove and drain of parked jobs", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const running = gate();
      lab.worker(async (job) => (job.data.i === 0 ? await running.passed : undefined), soon);
      const added = await queue.addBulk(jobs(8, () => "a"));
      await until(async () => (await queue.getDelayedCount()) === 7);
      await added[1]?.remove();
      await queue.drain();
      expect(await queue.getDelayedCount()).toBe(6);
      await added[3]?.remove();
      running.open();
      await finished(queue, 6);
      expect(lab.ran.map((run) => run.i)).toEqual([0, 2, 4, 5, 6, 7]);
      const again = gate();
      lab.worker(async () => await again.passed, soon, "r");
      const other = lab.queue("r");
      await other.addBulk(jobs(5, () => "a"));
      await until(async () => (await other.getDelayedCount()) === 4);
      await other.clean(0, 2, "delayed");
      await other.drain(true);
      expect(await other.getDelayedCount()).toBe(0);
      again.open();
      await finished(other, 1);
      await other.add("job", { k: "a", i: 9 });
      await finished(other, 2);
    });

    it("does not change the delay of a job that reuses the ID of a job removed from a line", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const running = gate();
      lab.worker(async (job) => (job.data.i === 0 ? await running.passed : undefined), soon);
      await queue.addBulk(jobs(2, () => "a"));
      const third = await queue.add("job", { k: "a", i: 2 }, { jobId: "again" });
      await until(async () => (await queue.getDelayedCount()) === 2);
      await third.remove();
      await queue.add("job", { k: "b", i: 3 }, { jobId: "again", delay: 60_000 });
      const due = await lab.redis.zscore("bull:q:delayed", "again");
      running.open();
      await finished(queue, 2);
      expect(await lab.redis.zscore("bull:q:delayed", "again")).toBe(due);
    });

    it("does not mistake a parked job for the holder of its key that had the same ID", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const running = gate();
      lab.worker(
        async (job) => {
          if (job.data.i === 0) await running.passed;
          if (job.data.i === 1) throw new Error("comes back after a minute");
        },
        { ...soon, onFailure: "block" },
      );
      await queue.add("job", { k: "b", i: 0 });
      await until(() => lab.ran.length === 1);
      const holder = await queue.add(
        "job",
        { k: "d", i: 1 },
        { jobId: "again", attempts: 2, backoff: { type: "fixed", delay: 60_000 } },
      );
      await until(async () => (await queue.getDelayedCount()) === 1);
      await queue.add("job", { k: ["a", "b", "d"], i: 2 });
      await until(async () => (await queue.getDelayedCount()) === 2);
      await holder.remove();
      await queue.add("job", { k: ["a", "d"], i: 3 }, { jobId: "again" });
      await until(async () => (await queue.getDelayedCount()) === 2);
      running.open();
      await finished(queue, 3);
      expect(lab.ran.map((run) => run.i)).toEqual([0, 1, 2, 3]);
    });

    it("frees a key when its holder was removed while the holder waited", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      lab.worker(
        (job) => {
          if (job.data.i === 0) throw new Error("retry much later");
        },
        { ...soon, onFailure: "block" },
      );
      const first = await queue.add("job", { k: "a", i: 0 }, { attempts: 2, backoff: 3_600_000 });
      await queue.addBulk(jobs(4, () => "a").slice(1));
      await until(async () => (await queue.getDelayedCount()) === 4);
      expect(lab.ran).toHaveLength(1);
      await first.remove();
      await finished(queue, 3);
      expect(lab.ran.map((run) => run.i)).toEqual([0, 1, 2, 3]);
    });

    it("runs every job in order when jobs are promoted manually, alone or all at once", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const running = gate();
      lab.worker(async (job) => (job.data.i === 0 ? await running.passed : undefined), { key });
      const added = await queue.addBulk(jobs(6, () => "a"));
      await until(async () => (await queue.getDelayedCount()) === 5);
      await added[4]?.promote();
      await until(async () => (await queue.getDelayedCount()) === 5);
      await queue.promoteJobs();
      await until(async () => (await queue.getDelayedCount()) === 5);
      expect(lab.ran).toHaveLength(1);
      running.open();
      await finished(queue, 6);
      expect(lab.overlaps()).toEqual([]);
      expect(lab.inversions()).toEqual([]);
    });

    it("runs every job even if the lane's own keys were lost", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const running = gate();
      lab.worker(async (job) => (job.data.i === 0 ? await running.passed : undefined), soon);
      await queue.addBulk(jobs(8, () => "a"));
      await until(async () => (await queue.getDelayedCount()) === 7);
      await lab.redis.del(...(await lab.leftovers()));
      running.open();
      await finished(queue, 8);
      expect(lab.overlaps()).toEqual([]);
    });

    it("has lane keys that no job can collide with, with any ID", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const opened = gate();
      lab.worker(async () => await opened.passed, soon);
      lab.worker(async () => await opened.passed, soon);
      await queue.addBulk(jobs(6, (i) => ["k", "x:lock", "y:z"][i % 3]));
      await queue.pauseKey("p:q");
      await until(async () => (await queue.counts()).parked === 3);
      const names = (await lab.redis.keys("bull:q:lane:*")).map((name) => name.slice("bull:q:".length));
      expect(names).toEqual(
        expect.arrayContaining(["lane:holders", "lane:line=x\u001flock", "lane:paused", "lane:seq"]),
      );
      const flows = new FlowProducer({ connection: lab.connection });
      lab.defer(async () => await flows.close());
      for (const name of names) {
        for (const jobId of [name, name.split(":").slice(0, -1).join(":")]) {
          if (!jobId.includes(":")) continue;
          await expect(queue.add("job", { i: 0 }, { jobId })).rejects.toThrow("cannot contain :");
          await expect(queue.addBulk([{ name: "job", data: { i: 0 }, opts: { jobId } }])).rejects.toThrow(
            "cannot contain :",
          );
          await expect(flows.add({ name: "job", queueName: "q", data: { i: 0 }, opts: { jobId } })).rejects.toThrow(
            "cannot contain :",
          );
        }
      }
      opened.open();
      // The most similar IDs that BullMQ accepts, with their locks, logs and children.
      const ids = ["lane:line:k", "lane:parked:k", "lane", "line=k", "lane:holders:lock"];
      for (const jobId of ids) await queue.add("job", { k: "k", i: 6 }, { jobId });
      await finished(queue, 6 + ids.length);
      expect(await queue.getFailedCount()).toBe(0);
      expect(lab.overlaps()).toEqual([]);
      expect(lab.errors).toEqual([]);
    });

    it("keeps parked jobs when orphans are removed", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      if (typeof queue.removeOrphanedJobs !== "function") return;
      const running = gate();
      lab.worker(async (job) => (job.data.i === 0 ? await running.passed : undefined), { key });
      await queue.addBulk(jobs(5, () => "a"));
      await until(async () => (await queue.getDelayedCount()) === 4);
      expect(await queue.removeOrphanedJobs()).toBe(0);
      running.open();
      await finished(queue, 5);
      expect(lab.inversions()).toEqual([]);
    });
  });
}
