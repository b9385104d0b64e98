/** BullMQ's own features with keyed jobs: counts and events, pause, limiter, flows, schedulers, deduplication, removal, close. */
import { until } from "@x/test-support";
import { DelayedError, FlowProducer, Job, QueueEvents, RateLimitError, WaitingChildrenError } from "bullmq";
import { describe, expect, it } from "vitest";
import { targetOf } from "../../src/bullmq/bullmq.ts";
import { commandsOf } from "../support/commands.ts";
import { finished, gate, jobs, Lab } from "../support/lab.ts";
import { healsSoon, type Key } from "./key.ts";

export function testFeatures(key: Key): void {
  describe("features", () => {
    const soon = healsSoon(key);

    it("shows parked jobs as delayed, and counts no attempt, start or event for them", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const events = new QueueEvents("q", { connection: lab.connection, lastEventId: "0-0" });
      lab.defer(async () => await events.close());
      const activated: string[] = [];
      events.on("active", ({ jobId }) => activated.push(jobId));
      const running = gate();
      lab.worker(async (job) => (job.data.i === 0 ? await running.passed : undefined), { key });
      const added = await queue.addBulk(jobs(4, () => "a"));
      await until(async () => (await queue.getDelayedCount()) === 3);
      expect(await Promise.all(added.map((job) => job.getState()))).toEqual([
        "active",
        "delayed",
        "delayed",
        "delayed",
      ]);
      const parked = await queue.getDelayed();
      expect(parked.map((job) => job.attemptsStarted)).toEqual([0, 0, 0]);
      expect(parked.map((job) => job.processedBy)).toEqual(parked.map(() => "nobody yet: waits for key a"));
      expect(activated).toEqual(["1"]);
      running.open();
      await finished(queue, 4);
      const done = await queue.getCompleted();
      expect(done.map((job) => [job.attemptsMade, job.attemptsStarted, job.processedBy])).toEqual(
        done.map(() => [1, 1, undefined]),
      );
      await until(() => activated.length === 4);
      expect(activated).toEqual(["1", "2", "3", "4"]);
      expect(lab.inversions()).toEqual([]);
    });

    it("closes without waiting for the queue's rate limit that a pending request reports", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const hour = 3_600_000;
      const limiter = { max: 1, duration: hour };
      const options = { key, limiter, maximumRateLimitDelay: hour, concurrency: 1, autorun: false };
      const worker = lab.worker(undefined, options);
      const client = await targetOf(worker, new Job(worker, "sample", {})).queue.client;
      const run = commandsOf(client);
      const closed = gate();
      client.runCommand = async (name, args) => {
        const reply = await run(name, args);
        if (name.startsWith("lane:moveToFinished")) void worker.close().then(() => closed.open());
        return reply;
      };
      await queue.addBulk(jobs(2, () => "a"));
      await Promise.all([worker.run(), closed.passed]);
      expect(lab.ran).toHaveLength(1);
    });

    it("runs a key's jobs up to its limit at a time, and passes its slots on in order", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const gates = Array.from({ length: 6 }, gate);
      lab.defer(async () => {
        for (const each of gates) each.open();
      });
      const perKey = { concurrency: 2, rate: { max: 1_000, duration: 60_000 } };
      lab.worker(async (job) => await gates[job.data.i]?.passed, { key, perKey, recheckInterval: 3_600_000 });
      await queue.addBulk(jobs(6, () => "a"));
      await until(async () => (await queue.getDelayedCount()) === 4);
      for (const [index, done] of [1, 0, 3, 2].entries()) {
        gates[done]?.open();
        await until(() => lab.ran.length === 3 + index);
        expect(lab.ran.at(-1)?.i).toBe(2 + index);
      }
      for (const each of gates) each.open();
      await finished(queue, 6);
      expect(await queue.getFailedCount()).toBe(0);
      await until(async () => (await lab.leftovers()).every((name) => name.includes("lane:starts=")));
    });

    it("lets keys take turns, with the weights that operators set", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const rules = { key, between: "rotate", concurrency: 1, recheckInterval: 3_600_000 } as const;
      const worker = lab.worker(undefined, { ...rules, autorun: false });
      await queue.setKeyPolicy("b", { weight: 2 });
      await queue.addBulk(jobs(14, (i) => "aaaabbbbbbcccc"[i], 0));
      worker.run().catch((error: Error) => lab.errors.push(error));
      await finished(queue, 14);
      expect(lab.ran.map((run) => run.key).join("")).toBe("abbcabbcabbcac");
      await queue.removeKeyPolicy("b");
      expect(lab.errors).toEqual([]);
      await until(async () => (await lab.leftovers()).length === 0);
    });

    it("applies the policy that operators set for a key, until the policy is removed", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const running = gate();
      lab.defer(async () => running.open());
      lab.worker(async () => await running.passed, { key, recheckInterval: 3_600_000 });
      await queue.addBulk(jobs(4, () => "a"));
      await until(async () => (await queue.getDelayedCount()) === 3);
      await queue.setKeyPolicy("a", { concurrency: 2, maxWaiting: { max: 2 } });
      await until(() => lab.ran.length === 2);
      await queue.addBulk(jobs(1, () => "a"));
      await until(async () => (await queue.getFailedCount()) === 1);
      await queue.setKeyPolicy("a", { concurrency: 2, rate: { max: 1, duration: 3_600_000 } });
      running.open();
      await finished(queue, 4);
      expect((await queue.jobsOf("a")).parked).toEqual(["4"]);
      await queue.removeKeyPolicy("a");
      await finished(queue, 5);
      await until(async () => (await lab.leftovers()).every((name) => name.includes("lane:starts=")));
    });

    it("fails jobs that operators cancel: running, parked and delayed ones", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue("q", { key });
      const running = gate();
      const events = new QueueEvents("q", { connection: lab.connection, lastEventId: "0-0" });
      lab.defer(async () => await events.close());
      const failed: string[] = [];
      events.on("failed", ({ jobId }) => failed.push(jobId));
      lab.worker(async (job) => (job.data.i === 0 ? await running.passed : undefined), { key });
      await queue.add("job", { k: "a", i: 0 }, { attempts: 3 });
      await until(() => lab.ran.length === 1);
      await queue.addBulk(jobs(2, () => "a"));
      await until(async () => (await queue.getDelayedCount()) === 2);
      await queue.add("job", { k: "b", i: 3 }, { delay: 3_600_000 });
      const found = await Promise.all(["1", "2", "4"].map(async (id) => await queue.cancel(id, "no")));
      expect(found).toEqual(["running", "parked", "waiting"]);
      running.open();
      await finished(queue, 4);
      expect(await queue.getCompletedCount()).toBe(1);
      await until(() => failed.length === 3);
      expect(failed).toEqual(["2", "4", "1"]);
      expect(lab.ran.map(({ i }) => i)).toEqual([0, 1]);
      expect(lab.errors).toEqual([]);
      expect(await lab.leftovers()).toEqual([]);
    });

    it("survives pause and resume of the queue while keys are busy", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      lab.worker(undefined, { ...soon, concurrency: 3 });
      await queue.addBulk(jobs(60, (i) => `k${i % 3}`, 5));
      await until(() => lab.ran.length > 5);
      await queue.pause();
      await until(async () => (await queue.getActiveCount()) === 0);
      const before = lab.ran.length;
      await lab.anotherRuns();
      expect(lab.ran).toHaveLength(before);
      await queue.resume();
      await finished(queue, 60);
      expect(lab.overlaps()).toEqual([]);
    });

    it("keeps an urgent job whose turn comes while the queue is paused", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const running = gate();
      const body = async ({ data }: { readonly data: { readonly i: number } }): Promise<unknown> =>
        data.i === 0 ? await running.passed : undefined;
      lab.worker(body, { key, between: "rotate", concurrency: 2, recheckInterval: 3_600_000 });
      await queue.addBulk(jobs(2, () => "a").map((job) => ({ ...job, opts: { priority: 1 } })));
      await until(async () => (await queue.getDelayedCount()) === 1);
      await queue.pause();
      await queue.add("job", { k: "b", i: 2 });
      running.open();
      await until(async () => (await queue.getActiveCount()) === 0);
      await queue.resume();
      await finished(queue, 3);
    });

    it("does not use the limiter's tokens for parking", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const running = gate();
      const limited = lab.worker(async (job) => (job.data.i === 0 ? await running.passed : undefined), {
        key,
        limiter: { max: 3, duration: 3_600_000 },
        // BullMQ may start such a wait while the worker closes.
        maximumRateLimitDelay: 100,
      });
      await queue.addBulk([
        ...jobs(4, () => "a"),
        { name: "job", data: { k: "b", i: 10 } },
        { name: "job", data: { k: "c", i: 11 } },
      ]);
      // Three tokens for a, b and c, though three jobs were taken and parked in between.
      await until(() => lab.ran.length === 3);
      expect(lab.ran.map((run) => run.key).sort()).toEqual(["a", "b", "c"]);
      expect(await lab.redis.get("bull:q:limiter")).toBe("3");
      running.open();
      await limited.close();
      lab.worker(undefined, { key });
      await finished(queue, 6);
      expect(lab.inversions()).toEqual([]);
    });

    it("respects the queue's global concurrency", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      await queue.setGlobalConcurrency(2);
      let [inside, most] = [0, 0];
      lab.worker(
        async () => {
          inside += 1;
          most = Math.max(most, inside);
          await lab.redis.ping();
          inside -= 1;
        },
        { key },
      );
      await queue.addBulk(jobs(40, (i) => `k${i % 8}`));
      await finished(queue, 40);
      expect(most).toBeLessThanOrEqual(2);
      expect(lab.inversions()).toEqual([]);
    });

    it("frees the key of a job that waits for its children, which may have the same key", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const flows = new FlowProducer({ connection: lab.connection });
      lab.defer(async () => await flows.close());
      lab.worker(undefined, { key });
      const child = (i: number) => ({ name: "child", queueName: "q", data: { k: "a", i } });
      await flows.add({
        name: "parent",
        queueName: "q",
        data: { k: "a", i: 9 },
        children: [child(0), child(1), child(2)],
      });
      await finished(queue, 4);
      expect(lab.ran.map((run) => run.i)).toEqual([0, 1, 2, 9]);
      expect(lab.overlaps()).toEqual([]);
    });

    it("works with children added by the running job, moveToDelayed and a rate limit in the processor", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const seen = new Set<string>();
      const once = (what: string): boolean => !seen.has(what) && Boolean(seen.add(what));
      lab.worker(
        async (job) => {
          const token = String(job.token);
          if (job.name === "parent" && once("parent")) {
            await queue.add(
              "child",
              { k: "a", i: 50 },
              { parent: { id: String(job.id), queue: job.queueQualifiedName } },
            );
            if (await job.moveToWaitingChildren(token)) throw new WaitingChildrenError();
          }
          if (job.name === "later" && once("later")) {
            await job.moveToDelayed(Date.now() + 80, token);
            throw new DelayedError();
          }
          if (job.name === "limited" && once("limited")) {
            await queue.rateLimit(80);
            throw new RateLimitError();
          }
        },
        { key },
      );
      await queue.addBulk(["parent", "later", "limited", "plain"].map((name, i) => ({ name, data: { k: "a", i } })));
      await finished(queue, 5);
      expect(await queue.getFailedCount()).toBe(0);
      expect(lab.overlaps()).toEqual([]);
      expect(await queue.listKeys()).toEqual([]);
    });

    it("runs the jobs of a scheduler one at a time", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      lab.worker(undefined, { key });
      await queue.upsertJobScheduler("tick", { every: 60, limit: 5 }, { name: "tick", data: { k: "a", i: 0, ms: 90 } });
      await finished(queue, 5);
      expect(lab.overlaps()).toEqual([]);
    });

    it("works with deduplication", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const running = gate();
      lab.worker(async (job) => (job.data.i === 0 ? await running.passed : undefined), { key });
      await queue.add("job", { k: "a", i: 0 });
      await until(() => lab.ran.length === 1);
      for (let i = 1; i < 4; i++) await queue.add("job", { k: "a", i }, { deduplication: { id: "one" } });
      await until(async () => (await queue.getDelayedCount()) === 1);
      running.open();
      await finished(queue, 2);
      expect(lab.ran.map((run) => run.i)).toEqual([0, 1]);
    });

    it("removes finished jobs as removeOnComplete and removeOnFail say, and frees their keys", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      lab.worker(
        (job) => {
          if (job.data.i % 5 === 0) throw new Error("no");
        },
        { key, removeOnComplete: { count: 0 }, removeOnFail: { count: 0 } },
      );
      await queue.addBulk(jobs(50, (i) => `k${i % 4}`));
      await lab.ended(50);
      await until(async () => (await lab.leftovers()).length === 0);
      expect(lab.inversions()).toEqual([]);
      expect(await queue.getJobCountByTypes("completed", "failed", "delayed", "waiting", "active")).toBe(0);
    });

    it("closes without losing a job: running jobs finish, parked jobs stay parked", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const worker = lab.worker(undefined, { key, concurrency: 4 });
      await queue.addBulk(jobs(60, (i) => `k${i % 3}`, 5));
      await until(() => lab.ran.length > 10);
      await worker.close();
      expect(lab.ran.every((run) => run.endedMs !== undefined)).toBe(true);
      expect(await queue.getActiveCount()).toBe(0);
      lab.worker(undefined, { key });
      await finished(queue, 60);
      expect(lab.ran).toHaveLength(60);
      expect(lab.inversions()).toEqual([]);
    });
  });
}
