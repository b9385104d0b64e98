/**
 * What BullMQ's users do with their queues, done with keyed jobs. Runs against whatever `bullmq` is in the importing test file,
 * with keys found by Lua and by JavaScript.
 */
import { setTimeout as delay } from "node:timers/promises";
import {
  ExclusiveWorker,
  type ExclusiveWorkerOptions,
  type JobLock,
  JobLockLostError,
  MixedFleetError,
} from "@x/workers";
import {
  DelayedError,
  FlowProducer,
  type Job,
  QueueEvents,
  RateLimitError,
  UnrecoverableError,
  WaitingChildrenError,
  Worker,
} from "bullmq";
import { Redis } from "ioredis";
import { describe, expect, it } from "vitest";
import { type Data, finished, gate, jobs, Lab, until } from "./lab.ts";

const keyKinds: Readonly<Record<string, ExclusiveWorkerOptions<Data>["key"]>> = {
  path: "k",
  function: (job) => job.data.k as string | undefined,
};

export function behavesLikeBullMQ(kinds: readonly ("path" | "function")[] = ["path", "function"]): void {
  describe.concurrent.each(kinds)("keys by %s", (kind) => {
    const key = keyKinds[kind] ?? "k";
    /** So that healing by timers can be seen. */
    const soon = { key, recheckInterval: 300, drainDelay: 1 };

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
      const options = { ...lab.connection, enableAutoPipelining: true };
      const client = isShared ? new Redis(options) : undefined;
      if (client !== undefined) lab.defer(async () => client.disconnect());
      const connection = client ?? options;
      await queue.addBulk(jobs(60, (i) => (i % 5 === 0 ? undefined : `k${i % 3}`)));
      const first = lab.worker(undefined, { connection, key });
      await until(() => lab.ran.length > 10);
      lab.worker(undefined, { connection, key, onFailure: "block" });
      await queue.addBulk(
        jobs(60, (i) => `k${i % 3}`).map(({ data }) => ({ name: "job", data: { ...data, i: data.i + 60 } })),
      );
      await finished(queue, 120);
      expect(await first.counts()).toMatchObject({ parked: 0, busyKeys: 0 });
      expect([lab.overlaps(), lab.inversions()]).toEqual([[], []]);
      expect(lab.errors.filter((error) => !(error instanceof MixedFleetError))).toEqual([]);
    });

    it("leaves a job to a processor that renews its lock itself", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const held: boolean[] = [];
      const body = async (job: Job<Data>, signal: AbortSignal, lock: JobLock): Promise<void> => {
        for (let n = 0; n < 5; n++) {
          await delay(350);
          expect(await job.extendLock(job.token ?? "", 1_000)).toBe(1);
          held.push(lock.isHeld() && !signal.aborted);
        }
      };
      lab.worker(body, { key, lockDuration: 1_000, stalledInterval: 500, skipLockRenewal: true });
      await queue.addBulk(jobs(1, () => "a"));
      await finished(queue, 1);
      expect(await queue.getCompletedCount()).toBe(1);
      expect(held).toEqual([true, true, true, true, true]);
    });

    it("goes on renewing a job whose earlier run in the same worker ends late", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      let [isAborted, wasRenewed] = [true, false];
      const worker = lab.worker(
        async (job, signal) => {
          // What BullMQ does when the fetch after the earlier run, which sent the job back, has answered.
          lockManager.untrackJob(String(job.id));
          await delay(2_500);
          [isAborted, wasRenewed] = [signal.aborted, lockManager.getTrackedJobIds().includes(String(job.id))];
        },
        { key, lockDuration: 2_000, stalledInterval: 60_000 },
      );
      const { lockManager } = worker as unknown as {
        readonly lockManager: { untrackJob(id: string): void; getTrackedJobIds(): string[] };
      };
      await queue.addBulk(jobs(1, () => "a"));
      await finished(queue, 1);
      expect([isAborted, wasRenewed]).toEqual([false, true]);
      await until(() => lockManager.getTrackedJobIds().length === 0);
    });

    /** Runs a job that has its locks extended, and looks at what is left of them when `extend` resolves. */
    async function expectExtended(
      options: Partial<ExclusiveWorkerOptions<Data>>,
      extend: (job: Job<Data>, worker: () => ExclusiveWorker<Data>) => Promise<unknown>,
    ): Promise<void> {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const left: number[] = [];
      const body = async (job: Job<Data>, _signal: AbortSignal, lock: JobLock): Promise<void> => {
        await extend(job, () => worker);
        left.push(lock.remaining(), await lab.redis.pttl("a"), await lab.redis.pttl(`bull:q:${job.id}:lock`));
      };
      const worker = lab.worker(body, { key, ...options });
      await queue.addBulk(jobs(1, () => "a"));
      await finished(queue, 1);
      expect(await queue.getCompletedCount()).toBe(1);
      expect(left).toHaveLength(3);
      for (const ms of left) expect(ms).toBeGreaterThan(15_000);
    }

    it("extends the lock of the key with that of the job, for work that blocks the event loop", async () => {
      await expectExtended({ lockRenewTime: 5_000 }, (job) => job.extendLock(job.token ?? "", 20_000));
    });

    it("does not cut an extension that a job has asked for when it is renewed", async () => {
      await expectExtended({ lockDuration: 2_000, stalledInterval: 1_000 }, async (job) => {
        await job.extendLock(job.token ?? "", 30_000);
        await delay(1_500);
      });
    });

    it("does not cut an extension that is under way when it is renewed", async () => {
      await expectExtended({ lockDuration: 2_000, stalledInterval: 1_000 }, async (job, worker) => {
        const { id = "", token = "" } = job;
        const renewed = async (): Promise<unknown> => await worker().extendJobLocks([id], [token], 2_000);
        await Promise.all([job.extendLock(token, 30_000), renewed()]);
      });
    });

    it("extends the lock of the key also within lockDuration, and only once", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const left: number[] = [];
      const body = async (job: Job<Data>): Promise<void> => {
        await job.extendLock(job.token ?? "", 4_000);
        left.push(await lab.redis.pttl("a"));
        await until(async () => {
          left.push(await lab.redis.pttl("a"));
          return (left.at(-1) ?? 0) <= 1_000;
        });
        await delay(500);
        left.push(await lab.redis.pttl("a"));
      };
      lab.worker(body, { key, lockTtl: 1_000 });
      await queue.addBulk(jobs(1, () => "a"));
      await finished(queue, 1);
      expect(await queue.getCompletedCount()).toBe(1);
      expect(left[0]).toBeGreaterThan(3_000);
      expect(left.at(-1)).toBeGreaterThan(0);
      expect(left.at(-1)).toBeLessThanOrEqual(1_000);
    });

    it("tells a processor that declares no parameters of cancelJob", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const reasons: unknown[] = [];
      const wrapped = async (...all: unknown[]): Promise<void> => {
        const [{ id }, , signal] = all as [Job<Data>, string, AbortSignal];
        expect(worker.cancelJob(String(id), "changed my mind")).toBe(true);
        reasons.push(signal.reason);
      };
      const worker = lab.adopt(new ExclusiveWorker<Data>("q", wrapped, { connection: lab.connection, key }));
      await queue.addBulk(jobs(1, () => "a"));
      await finished(queue, 1);
      expect(reasons).toEqual(["changed my mind"]);
    });

    it("ends the signal when an extension is refused, and when a shorter one is over", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const reasons: unknown[] = [];
      const body = async (job: Job<Data>, signal: AbortSignal): Promise<void> => {
        const isTaken = job.data.i === 0;
        if (isTaken) await lab.redis.set(`bull:q:${job.id}:lock`, "somebody else");
        expect(await job.extendLock(job.token ?? "", 300)).toBe(isTaken ? 0 : 1);
        await until(() => signal.aborted, 5_000);
        reasons.push(signal.reason);
      };
      lab.worker(body, { key, skipLockRenewal: true });
      await queue.addBulk(jobs(2, (i) => `k${i}`));
      await until(() => reasons.length === 2);
      expect(reasons).toEqual([expect.any(JobLockLostError), expect.any(JobLockLostError)]);
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

    it("puts the next job of a key in front of the queue when the key is free", async () => {
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
    ])("puts the next job in front; its timer has fired: %s, the queue is paused: %s", async (hasFired, isPaused) => {
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
      // As its timer does: now it stands at the end.
      if (hasFired) await next?.promote();
      if (isPaused) await queue.pause();
      first.open();
      await until(async () => (await queue.getCompletedCount()) > 0);
      if (isPaused) await queue.resume();
      await until(() => lab.ran.length > 3);
      busy.open();
      await finished(queue, 33);
      // The end of the first brought one of the others.
      expect(lab.ran.findIndex((run) => run.key === "hot" && run.i === 1)).toBeLessThan(4);
    });

    it("puts a job in front when its lock is released, though its timer has brought it back to the end", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const busy = gate();
      const body = async ({ data }: Job<Data>): Promise<void> => (data.k === "busy0" ? await busy.passed : undefined);
      const worker = lab.worker(body, { key, concurrency: 1, lockWait: 10 });
      lab.defer(async () => busy.open());
      const held = await worker.redlock.acquire("hot", { ttl: 60_000 });
      const [hot] = await queue.addBulk(jobs(1, () => "hot"));
      await until(async () => (await hot?.isDelayed()) === true);
      await queue.addBulk(jobs(1, () => "busy0"));
      await until(() => lab.ran.length === 1);
      await queue.addBulk(jobs(30, (i) => `other${i}`));
      await hot?.promote();
      await held.release();
      await until(async () => (await lab.redis.lindex("bull:q:wait", -1)) === hot?.id, 5_000);
      busy.open();
      await finished(queue, 32);
      expect(lab.ran[1]?.key).toBe("hot");
    });

    it("waits for its retry with onFailure block though the lock that it had waited for is free", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const busy = gate();
      const options = { key, onFailure: "block", lockWait: 10 } as const;
      const first = lab.worker(() => busy.passed, { ...options, concurrency: 1 });
      lab.defer(async () => busy.open());
      const second = lab.worker(undefined, { ...options, autorun: false });
      const held = await first.redlock.acquire("a", { ttl: 60_000 });
      const job = await queue.add("job", { k: "a", i: 0 }, { attempts: 2, backoff: 3_600_000 });
      await until(async () => (await first.explain("1"))?.verdict === "waits-for-lock");
      // The first worker waits for the lock on behalf of the job, which comes back in the second and has its turn there.
      await queue.addBulk(jobs(1, () => "busy"));
      await until(() => lab.ran.length === 1);
      await job.promote();
      const fetched = await second.getNextJob("token", { block: false });
      await fetched?.moveToFailed(new Error("not yet"), "token", false);
      expect(await second.explain("1")).toMatchObject({ verdict: "waits-for-retry" });
      await held.release();
      const after = await second.redlock.acquire("a", { timeout: 10_000 });
      await after.release();
      expect(await job.isDelayed()).toBe(true);
    });

    it("heals a key whose job was finished by somebody who knows no keys", async () => {
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
      "passes a key on that was given to a job which then waits for %s in a worker that knows no keys",
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

    it("gives a key to nobody who was parked and finished by somebody who knows no keys", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const worker = lab.worker(undefined, { key, recheckInterval: 600_000, autorun: false });
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
      expect(await worker.listKeys()).toEqual([]);
    });

    it("shows parked jobs as delayed, and counts no attempt, start or event for them", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const events = new QueueEvents("q", { connection: lab.connection });
      lab.defer(async () => await events.close());
      await events.waitUntilReady();
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

    it("lets jobs without a key pass", async () => {
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
        expect.stringContaining("integer"),
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
          await delay(1);
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

    it("runs delayed jobs when they are due, in order of a key", async () => {
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

    it.each([{ backoff: 60 }, { backoff: 0 }])("retries: skip lets the key move on (%o)", async (retry) => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      lab.worker(
        (job) => {
          if (job.data.i === 0 && job.attemptsMade < 2) throw new Error("not yet");
        },
        { key },
      );
      await queue.addBulk(jobs(5, () => "a").map((job) => ({ ...job, opts: { attempts: 3, ...retry } })));
      await finished(queue, 5);
      expect(await queue.getFailedCount()).toBe(0);
      expect(lab.ran.map((run) => run.i).slice(0, 5)).toEqual([0, 1, 2, 3, 4]);
      expect(lab.ran.filter((run) => run.i === 0)).toHaveLength(3);
      expect(lab.overlaps()).toEqual([]);
    });

    it.each([{ backoff: 40 }, { backoff: 0 }])("retries with backoff: block keeps the order (%o)", async (retry) => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      for (let n = 0; n < 2; n++) {
        lab.worker(
          (job) => {
            if (job.data.i % 4 === 0 && job.attemptsMade < 2) throw new Error("not yet");
          },
          { key, onFailure: "block" },
        );
      }
      const bulk = jobs(20, (i) => `k${i % 2}`).map((job) => ({ ...job, opts: { attempts: 3, ...retry } }));
      await queue.addBulk(bulk);
      await finished(queue, 20);
      expect(lab.inversions()).toEqual([]);
      expect(lab.overlaps()).toEqual([]);
      expect(lab.ran).toHaveLength(30);
      expect(await lab.leftovers()).toEqual([]);
    });

    it("stops the key of a job that failed for good with halt, until it is resumed", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const worker = lab.worker(
        (job) => {
          if (job.data.i === 1) throw new UnrecoverableError("broken");
        },
        { key, onFailure: "halt" },
      );
      await queue.addBulk([...jobs(4, () => "a"), ...jobs(2, () => "b")]);
      await until(async () => (await queue.getFailedCount()) === 2 && (await queue.getDelayedCount()) === 2);
      expect(lab.ran.filter((run) => run.key === "a").map((run) => run.i)).toEqual([0, 1]);
      expect(await worker.explain("3")).toMatchObject({
        verdict: "parked",
        keys: [{ key: "a", paused: { reason: "failed", jobId: "2" } }],
      });
      expect(await worker.resumeKey("a")).toBe(true);
      await finished(queue, 6);
      expect(await worker.resumeKey("a")).toBe(false);
      expect(lab.inversions().filter((each) => each.endsWith("a"))).toEqual([]);
      // b's last job failed, too: its key stays halted, with nothing in line.
      expect((await worker.listKeys()).map((each) => [each.key, each.paused?.jobId, each.parked])).toEqual([
        ["b", "6", 0],
      ]);
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
      await delay(500);
      expect(lab.ran).toHaveLength(before);
      await queue.resume();
      await finished(queue, 60);
      expect(lab.overlaps()).toEqual([]);
    });

    it("starts afresh after obliterate, with jobs that have old ids and old keys", async () => {
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
      // A job that was taken before may still begin, as BullMQ starts it from the worker's memory: not one of these.
      const anew = lab.ran.filter(({ i }) => i >= 10).map(({ i }) => i);
      expect(anew.toSorted((a, b) => a - b)).toEqual(again.map(({ data }) => data.i));
    });

    it("runs what is left after clean, remove and drain of parked jobs", async () => {
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

    it("leaves the delay of a job alone that has the id of one that was removed from a line", async () => {
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

    it("does not take a parked job for the holder of its key that had the same id", async () => {
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

    it("heals a key whose holder was removed while it waited", async () => {
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

    it("is not confused by jobs promoted by hand, alone or all at once", async () => {
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

    it("does not use the limiter's tokens for parking", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const running = gate();
      lab.worker(async (job) => (job.data.i === 0 ? await running.passed : undefined), {
        key,
        limiter: { max: 3, duration: 2_000 },
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
          await delay(3);
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

    it("works with children added while running, moveToDelayed and a rate limit in the processor", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const seen = new Set<string>();
      const once = (what: string): boolean => !seen.has(what) && Boolean(seen.add(what));
      const worker = lab.worker(
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
      expect(await worker.listKeys()).toEqual([]);
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

    it("removes finished jobs as told, and frees their keys", async () => {
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

    it("runs a stalled job again before the other jobs of its key", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      await queue.addBulk(jobs(4, () => "a"));
      const keeper = lab.worker(undefined, { key, autorun: false, lockDuration: 300, stalledInterval: 200 });
      const taken = await keeper.getNextJob("nobody", { block: false });
      expect(taken?.data.i).toBe(0);
      void keeper.run();
      await finished(queue, 4);
      expect(lab.ran.map((run) => run.i)).toEqual([0, 1, 2, 3]);
    });

    it("runs everything though the lane's own keys were lost", async () => {
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

    it("keeps the lane where no job can be, whatever its id", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const worker = lab.worker(undefined, soon);
      const opened = gate();
      lab.worker(async () => await opened.passed, soon, "q");
      await queue.addBulk(jobs(6, (i) => ["k", "x:lock", "y:z"][i % 3], 100));
      await worker.pauseKey("p:q");
      await until(async () => (await worker.counts()).parked === 3);
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
      // The nearest that BullMQ takes, with its lock, its log and its children beside it.
      const ids = ["lane:line:k", "lane:parked:k", "lane", "line=k", "lane:holders:lock"];
      for (const jobId of ids) await queue.add("job", { k: "k", i: 6 }, { jobId });
      await finished(queue, 6 + ids.length);
      expect(await queue.getFailedCount()).toBe(0);
      expect(lab.overlaps()).toEqual([]);
      expect(lab.errors).toEqual([]);
    });

    it("leaves parked jobs alone when orphans are removed", async () => {
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

    it("retries a finished job by hand", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      let isBroken = true;
      lab.worker(
        () => {
          if (isBroken) throw new Error("broken");
        },
        { key },
      );
      const [job] = await queue.addBulk(jobs(1, () => "a"));
      await finished(queue, 1);
      isBroken = false;
      await job?.retry();
      await until(async () => (await queue.getCompletedCount()) === 1);
      expect(await lab.leftovers()).toEqual([]);
    });

    it("closes without losing a job: what runs finishes, what is parked stays", async () => {
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
