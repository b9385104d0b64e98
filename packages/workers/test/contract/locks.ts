/** The lock of a running job: its renewal, its extension, and the signal at its end. */

import { type EventEmitter, once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { until } from "@x/test-support";
import { ExclusiveWorker, type ExclusiveWorkerOptions, type JobLock, JobLockLostError } from "@x/workers";
import type { Job } from "bullmq";
import { describe, expect, it } from "vitest";
import { type Data, finished, jobs, Lab } from "../support/lab.ts";
import type { Key } from "./key.ts";

/** Resolves when BullMQ has renewed the locks of the worker's jobs. */
async function renewal(worker: ExclusiveWorker<Data>): Promise<void> {
  await once(worker as unknown as EventEmitter, "locksRenewed");
}

export function testLocks(key: Key): void {
  describe("locks", () => {
    it("keeps the locks of a job whose processor renews them itself", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const held: boolean[] = [];
      const body = async (job: Job<Data>, signal: AbortSignal, lock: JobLock): Promise<void> => {
        // Together longer than the lease.
        for (let n = 0; n < 5; n++) {
          await delay(900);
          expect(await job.extendLock(job.token ?? "", 4_000)).toBe(1);
          held.push(lock.isHeld() && !signal.aborted);
        }
      };
      lab.worker(body, { key, lockDuration: 4_000, stalledInterval: 500, skipLockRenewal: true });
      await queue.addBulk(jobs(1, () => "a"));
      await finished(queue, 1);
      expect(await queue.getCompletedCount()).toBe(1);
      expect(held).toEqual([true, true, true, true, true]);
    });

    it("continues to renew a job whose earlier run in the same worker ends late", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      let [isAborted, wasRenewed] = [true, false];
      const worker = lab.worker(
        async (job, signal) => {
          // BullMQ does this when the fetch after the earlier run, which sent the job back, has been answered.
          lockManager.untrackJob(String(job.id));
          await renewal(worker);
          [isAborted, wasRenewed] = [signal.aborted, lockManager.getTrackedJobIds().includes(String(job.id))];
        },
        { key, lockDuration: 5_000, lockRenewTime: 1_000, stalledInterval: 60_000 },
      );
      const { lockManager } = worker as unknown as {
        readonly lockManager: { untrackJob(id: string): void; getTrackedJobIds(): string[] };
      };
      await queue.addBulk(jobs(1, () => "a"));
      await finished(queue, 1);
      expect([isAborted, wasRenewed]).toEqual([false, true]);
      await until(() => lockManager.getTrackedJobIds().length === 0);
    });

    /** Runs a job that has its locks extended, and checks the remaining leases when `extend` resolves. */
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

    it("extends the key's lock together with the job's lock, for work that blocks the event loop", async () => {
      await expectExtended({ lockRenewTime: 5_000 }, (job) => job.extendLock(job.token ?? "", 20_000));
    });

    it("does not shorten an extension that a job has requested when the job's lock is renewed", async () => {
      await expectExtended({ lockRenewTime: 1_000 }, async (job, worker) => {
        await job.extendLock(job.token ?? "", 30_000);
        await renewal(worker());
      });
    });

    it("does not shorten a pending extension when the job's lock is renewed", async () => {
      await expectExtended({}, async (job, worker) => {
        const { id = "", token = "" } = job;
        const renewed = async (): Promise<unknown> => await worker().extendJobLocks([id], [token], 2_000);
        await Promise.all([job.extendLock(token, 30_000), renewed()]);
      });
    });

    it("extends the key's lock even for a time within lockDuration, and only once", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const left: number[] = [];
      const body = async (job: Job<Data>): Promise<void> => {
        await job.extendLock(job.token ?? "", 9_000);
        left.push(await lab.redis.pttl("a"));
        await until(async () => {
          left.push(await lab.redis.pttl("a"));
          return (left.at(-1) ?? 0) <= 5_000;
        });
        // The next extension is again for `ttl`.
        await until(async () => {
          left.push(await lab.redis.pttl("a"));
          return Number(left.at(-1)) > Number(left.at(-2));
        });
      };
      lab.worker(body, { key, ttl: 5_000 });
      await queue.addBulk(jobs(1, () => "a"));
      await finished(queue, 1);
      expect(await queue.getCompletedCount()).toBe(1);
      expect(left[0]).toBeGreaterThan(7_000);
      expect(left.at(-1)).toBeGreaterThan(0);
      expect(left.at(-1)).toBeLessThanOrEqual(5_000);
    });

    it("passes BullMQ's signal to the processor, and aborts it when the job is lost", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const given: unknown[] = [];
      const told: unknown[] = [];
      const worker = lab.worker(
        async (job, signal) => {
          told.push(signal);
          await lab.redis.set(`bull:q:${job.id}:lock`, "another's");
          await until(() => signal.aborted);
          told.push(signal.reason);
        },
        { key, lockDuration: 2_000, stalledInterval: 60_000 },
      );
      const { lockManager } = worker as unknown as {
        readonly lockManager: { trackJob(...args: readonly unknown[]): AbortController | undefined };
      };
      const track = lockManager.trackJob.bind(lockManager);
      lockManager.trackJob = (...args) => {
        const controller = track(...args);
        given.push(controller?.signal);
        return controller;
      };
      await queue.addBulk(jobs(1, () => "a"));
      await until(() => told.length > 1);
      expect(told[0]).toBeInstanceOf(AbortSignal);
      expect(given).toContain(told[0]);
      expect(told[1]).toBeInstanceOf(JobLockLostError);
    });

    it("passes on the signal that a subclass uses instead of BullMQ's", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const mine = new AbortController();
      const reasons: unknown[] = [];
      class Stoppable extends ExclusiveWorker<Data> {
        protected override async callProcessJob(
          job: Job<Data>,
          token: string,
          signal?: AbortSignal,
        ): ReturnType<ExclusiveWorker<Data>["callProcessJob"]> {
          return await super.callProcessJob(job, token, AbortSignal.any([mine.signal, ...(signal ? [signal] : [])]));
        }
      }
      const process = async (job: Job<Data>, _token: unknown, signal: AbortSignal): Promise<void> => {
        if (job.data.i === 0) worker.cancelJob(String(job.id), "cancelled");
        else mine.abort("stopped");
        await until(() => signal.aborted);
        reasons.push(signal.reason);
      };
      const options = { connection: lab.connection, key, concurrency: 1 };
      const worker = lab.adopt(new Stoppable("q", process, options));
      await queue.addBulk(jobs(2, () => "a"));
      await finished(queue, 2);
      expect(reasons).toEqual(["cancelled", "stopped"]);
    });

    it("passes cancelJob on to a processor that declares no parameters", async () => {
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

    it("aborts the signal when an extension is refused, and when a shorter extension has expired", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const reasons: unknown[] = [];
      const body = async (job: Job<Data>, signal: AbortSignal): Promise<void> => {
        const isTaken = job.data.i === 0;
        if (isTaken) await lab.redis.set(`bull:q:${job.id}:lock`, "somebody else");
        expect(await job.extendLock(job.token ?? "", 300)).toBe(isTaken ? 0 : 1);
        await until(() => signal.aborted);
        reasons.push(signal.reason);
      };
      lab.worker(body, { key, skipLockRenewal: true });
      await queue.addBulk(jobs(2, (i) => `k${i}`));
      await until(() => reasons.length === 2);
      expect(reasons).toEqual([expect.any(JobLockLostError), expect.any(JobLockLostError)]);
    });
  });
}
