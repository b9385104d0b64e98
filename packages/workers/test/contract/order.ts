/** One job of a key at a time in the order in which jobs are added, and the exceptions from that order. */
import { until } from "@x/test-support";
import { WorkerMismatchError } from "@x/workers";
import type { Job } from "bullmq";
import { Redis } from "ioredis";
import { describe, expect, it } from "vitest";
import { type Data, finished, gate, jobs, Lab, listen, SHORT_MS } from "../support/lab.ts";
import type { Key } from "./key.ts";

export function testOrder(key: Key): void {
  describe("order", () => {
    it("runs one job of a key at a time, in order, across workers", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      await queue.addBulk(jobs(300, (i) => `k${i % 7}`));
      for (let n = 0; n < 3; n++) lab.worker(undefined, { key });
      await finished(queue, 300);
      expect(lab.overlaps()).toEqual([]);
      expect(lab.inversions()).toEqual([]);
      expect(lab.errors).toEqual([]);
      expect(await lab.leftovers()).toEqual([]);
    });

    it.each([false, true])("works over ioredis' automatic pipelines; a shared client: %s", async (isShared) => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const options = { path: lab.server.path, maxRetriesPerRequest: null, enableAutoPipelining: true };
      const client = isShared ? new Redis(options) : undefined;
      if (client !== undefined) lab.defer(async () => client.disconnect());
      const connection = client ?? options;
      await queue.addBulk(jobs(60, (i) => (i % 5 === 0 ? undefined : `k${i % 3}`)));
      lab.worker(undefined, { connection, key });
      await until(() => lab.ran.length > 10);
      lab.worker(undefined, { connection, key, onFailure: "block" });
      await queue.addBulk(
        jobs(60, (i) => `k${i % 3}`).map(({ data }) => ({ name: "job", data: { ...data, i: data.i + 60 } })),
      );
      await finished(queue, 120);
      expect(await queue.counts()).toMatchObject({ parked: 0, busyKeys: 0 });
      expect([lab.overlaps(), lab.inversions()]).toEqual([[], []]);
      expect(lab.errors.filter((error) => !(error instanceof WorkerMismatchError))).toEqual([]);
    });

    it("does not let a hot key hold up other keys", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      await queue.addBulk([...jobs(400, () => "hot", 3), ...jobs(100, (i) => `cold${i}`, 1)]);
      lab.worker(undefined, { key, concurrency: 5 });
      await until(() => lab.ran.filter((run) => run.key !== "hot").length === 100);
      expect(lab.ran.filter((run) => run.key === "hot").length).toBeLessThan(300);
      expect(lab.overlaps()).toEqual([]);
    });

    it("puts the next job of a key at the front of the queue when the key becomes free", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const fourth = gate();
      lab.worker(
        async (job) => {
          if (job.data.k === "c3") fourth.open();
          if (job.data.i === 0 && job.data.k === "hot") await fourth.passed;
        },
        { key, concurrency: 2 },
      );
      await queue.addBulk([...jobs(2, () => "hot"), ...jobs(60, (i) => `c${i}`)]);
      await finished(queue, 62);
      const place = lab.ran.findIndex((run) => run.key === "hot" && run.i === 1);
      expect(place).toBeGreaterThan(4);
      expect(place).toBeLessThan(12);
    });

    it.each([
      [true, false],
      [true, true],
      [false, true],
    ])(
      "puts the next job at the front; its timer has fired: %s, the queue is paused: %s",
      async (hasFired, isPaused) => {
        await using lab = await Lab.start();
        const queue = lab.queue();
        const [first, busy] = [gate(), gate()];
        const body = async ({ data }: Job<Data>): Promise<void> => {
          if (data.k === "hot" && data.i === 0) await first.passed;
          if (data.k === "busy0") await busy.passed;
        };
        lab.worker(body, { key, concurrency: 2 });
        lab.defer(async () => busy.open());
        const [, next] = await queue.addBulk(jobs(2, () => "hot"));
        await until(async () => (await next?.isDelayed()) === true);
        await queue.addBulk(jobs(1, () => "busy0"));
        await until(() => lab.ran.length === 2);
        await queue.addBulk(jobs(30, (i) => `other${i}`));
        // Like the job's timer, which puts the job at the end of the queue.
        if (hasFired) await next?.promote();
        if (isPaused) await queue.pause();
        first.open();
        await until(async () => (await queue.getCompletedCount()) > 0);
        if (isPaused) await queue.resume();
        await until(() => lab.ran.length > 3);
        busy.open();
        await finished(queue, 33);
        // The end of the first job brought one of the other jobs.
        expect(lab.ran.findIndex((run) => run.key === "hot" && run.i === 1)).toBeLessThan(4);
      },
    );

    it("puts a job at the front when its lock is released, even if its timer has moved it to the end of the queue", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const busy = gate();
      const body = async ({ data }: Job<Data>): Promise<void> => (data.k === "busy0" ? await busy.passed : undefined);
      const worker = lab.worker(body, { key, concurrency: 1, timeout: SHORT_MS, recheckInterval: 3_600_000 });
      lab.defer(async () => busy.open());
      const yields = listen<{ reason: string }>(lab, "x.workers.yielded");
      const held = await worker.redlock.acquire("hot", { ttl: 60_000 });
      const [hot] = await queue.addBulk(jobs(1, () => "hot"));
      await until(() => yields.at(-1)?.reason === "held");
      expect(await hot?.isDelayed()).toBe(true);
      await queue.addBulk(jobs(1, () => "busy0"));
      await until(() => lab.ran.length === 1);
      await queue.addBulk(jobs(30, (i) => `other${i}`));
      await hot?.promote();
      await held.release();
      await until(async () => (await lab.redis.lindex("bull:q:wait", -1)) === hot?.id);
      busy.open();
      await finished(queue, 32);
      expect(lab.ran[1]?.key).toBe("hot");
    });

    it("lets jobs without a key start while keys are busy", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const both = gate();
      let inside = 0;
      lab.worker(
        async () => {
          inside += 1;
          if (inside === 2) both.open();
          await both.passed;
        },
        { key },
      );
      await queue.addBulk(jobs(2, () => undefined));
      await finished(queue, 2);
      expect(lab.ran.map((run) => run.fencingToken)).toEqual([0, 0]);
      expect(await lab.leftovers()).toEqual([]);
    });

    it("fails a job whose key cannot be used, before its processor runs", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      lab.worker(undefined, { key });
      const added = await queue.addBulk(jobs(6, (i) => ["", 1.5, true, [], "x".repeat(600), "a\nb"][i]));
      await finished(queue, 6);
      expect(lab.ran).toEqual([]);
      const reasons = (await queue.getFailed())
        .map((job) => [Number(job.id), job.failedReason] as const)
        .sort((a, b) => a[0] - b[0]);
      expect(reasons.map(([, reason]) => reason)).toEqual([
        "job 1: its key is empty",
        "job 2: its key is not a safe integer",
        "job 3: its key must be a string or an integer",
        "job 4: its key must be a string, an integer, or a non-empty array of them",
        "job 5: its key is longer than 512 bytes",
        "job 6: its key has control characters",
      ]);
      expect(added).toHaveLength(6);
    });

    it("gives a job all of its keys, without deadlock and in order", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const held = new Map<string, number>();
      const clashes: string[] = [];
      const order = new Map<string, number[]>();
      const names = ["a", "b", "c", "d"];
      lab.worker(
        async (job) => {
          const keys = job.data.k as string[];
          for (const each of keys) {
            if ((held.get(each) ?? 0) > 0) clashes.push(`${each} at ${job.id}`);
            held.set(each, 1);
            order.set(each, [...(order.get(each) ?? []), job.data.i]);
          }
          await lab.redis.ping();
          for (const each of keys) held.set(each, 0);
        },
        { key, concurrency: 10 },
      );
      await queue.addBulk(jobs(200, (i) => (i % 3 === 0 ? [names[i % 4]] : [names[i % 4], names[(i * 7 + 1) % 4]])));
      await finished(queue, 200);
      expect(clashes).toEqual([]);
      for (const starts of order.values()) expect(starts).toEqual([...starts].sort((a, b) => a - b));
      expect(lab.errors).toEqual([]);
      expect(await lab.leftovers()).toEqual([]);
    });

    it("keeps priorities: among jobs in line, the more urgent first", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const running = gate();
      lab.worker(async (job) => (job.data.i === 0 ? await running.passed : undefined), { key });
      await queue.add("job", { k: "a", i: 0 });
      await until(() => lab.ran.length === 1);
      for (const priority of [5, 1, 3, 1]) await queue.add("job", { k: "a", i: priority }, { priority });
      await until(async () => (await queue.getDelayedCount()) === 4);
      running.open();
      await finished(queue, 5);
      expect(lab.ran.map((run) => run.i)).toEqual([0, 1, 1, 3, 5]);
    });

    it("runs delayed jobs when they are due, in the order of their key", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      lab.worker(undefined, { key });
      for (let i = 0; i < 20; i++) await queue.add("job", { k: "a", i }, { delay: 50 + i });
      await finished(queue, 20);
      expect(lab.overlaps()).toEqual([]);
      expect(lab.inversions()).toEqual([]);
    });

    it("takes LIFO jobs first", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      for (let i = 0; i < 3; i++) await queue.add("job", { k: `k${i}`, i }, { lifo: true });
      lab.worker(undefined, { key, concurrency: 1 });
      await finished(queue, 3);
      expect(lab.ran.map((run) => run.i)).toEqual([2, 1, 0]);
    });
  });
}
