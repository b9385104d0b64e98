/** `startNext: "at-once"`: the next job of a key begins while the end of the one before is on its way. */

import { setTimeout as delay } from "node:timers/promises";
import { until } from "@x/test-support";
import { type ExclusiveWorker, type ExclusiveWorkerOptions, JobLockLostError } from "@x/workers";
import { DelayedError, Job, type Queue } from "bullmq";
import { describe, expect, it } from "vitest";
import { targetOf } from "../../src/bullmq/bullmq.ts";
import { type Data, finished, jobs, Lab } from "../support/lab.ts";
import type { Key } from "./key.ts";

const COUNT = 40;
/** The answer to an end takes so long; what it tells of the next job is still fresh enough to start that. */
const ANSWER_MS = 4;
const recoversSoon = { lockDuration: 2_500, stalledInterval: 500, maxStalledCount: 9 };

interface Scene {
  readonly worker: ExclusiveWorker<Data>;
  /** Jobs that began while the end of another one was not answered: their `i`. */
  readonly early: Set<number>;
}

type Body = NonNullable<Parameters<Lab["worker"]>[0]>;

/** A worker with jobs of one key, none of which has begun before `worker.run()`. */
async function start(lab: Lab, body: Body, options: Partial<ExclusiveWorkerOptions<Data>>): Promise<Scene> {
  const early = new Set<number>();
  let unanswered = 0;
  const worker = lab.worker(async (job, signal, lock) => await body(job, signal, lock), {
    startNext: "at-once",
    concurrency: 4,
    autorun: false,
    ...options,
  });
  const target = targetOf(worker, new Job(worker, "sample", {}));
  const client = await target.queue.client;
  const run = client.runCommand.bind(client);
  client.runCommand = async (name, args) => {
    const reply = await run(name, args);
    if (name.startsWith("lane:moveToFinished")) await delay(ANSWER_MS);
    return reply;
  };
  const exec = target.execCommand.bind(target);
  target.execCommand = async (sender, name, args) => {
    if (name !== "moveToFinished") return await exec(sender, name, args);
    unanswered += 1;
    try {
      return await exec(sender, name, args);
    } finally {
      unanswered -= 1;
    }
  };
  const push = lab.ran.push.bind(lab.ran);
  lab.ran.push = (...ran) => {
    for (const { i } of ran) if (unanswered > 0) early.add(i);
    return push(...ran);
  };
  void worker.run();
  return { worker, early };
}

/**
 * Adds jobs until the condition holds, which needs a job that began early: on a busy machine few do. Resolves with how
 * many jobs there were; when all have ended, unless they cannot.
 */
async function moreUntil(queue: Queue<Data>, condition: () => boolean, canEnd = true): Promise<number> {
  let count = COUNT;
  const isOver = async (): Promise<boolean> => (await queue.getJobCountByTypes("completed", "failed")) === count;
  for (;;) {
    await until(async () => (condition() && !canEnd) || (await isOver()), 60_000);
    if (condition()) return count;
    await queue.addBulk(
      jobs(COUNT, () => "a").map(({ name, data }) => ({ name, data: { ...data, i: data.i + count } })),
    );
    count += COUNT;
  }
}

export function testEarly(key: Key): void {
  describe("the next job at once", () => {
    it("begins before the end of the one before is answered, alone and in order, with a greater token", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      await queue.addBulk(jobs(COUNT, () => "a"));
      const told: string[] = [];
      const { worker, early } = await start(lab, (job) => job.updateProgress(job.data.i), { key });
      worker.on("active", (job) => told.push(`active ${job.data.i}`));
      worker.on("completed", (job) =>
        told.push(`completed ${job.data.i} ${job.attemptsStarted} ${JSON.stringify(job.progress)}`),
      );
      const count = await moreUntil(queue, () => early.size > COUNT / 4);
      await until(() => told.length === 2 * count);
      expect([lab.overlaps(), lab.inversions(), lab.errors]).toEqual([[], [], []]);
      const tokens = lab.ran.map((run) => run.fencingToken);
      expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => a - b));
      // Each once, and in order; another slot may have taken the next one before the answer was there.
      const toldOf = (event: string): string[] => told.filter((text) => text.startsWith(event));
      expect(toldOf("active")).toEqual(lab.ran.map(({ i }) => `active ${i}`));
      expect(toldOf("completed")).toEqual(lab.ran.map(({ i }) => `completed ${i} 1 ${i}`));
      expect(tokens).toHaveLength(count);
      await until(async () => (await lab.leftovers()).length === 0);
    });

    it("is told that it does not count when the end of the one before is refused, and runs again behind it", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      await queue.addBulk(jobs(COUNT, () => "a"));
      const reasons: unknown[] = [];
      let [refused, refusedId] = [-1, ""];
      const body: Body = async (job, signal) => {
        const { i } = job.data;
        if (reasons.length > 0) return;
        if (i === refused + 1 && scene?.early.has(i)) {
          // Where the one before has stalled first, it has run again, and that end may count.
          await until(async () => signal.aborted || (await queue.getJobState(refusedId)) === "completed", 60_000);
          if (signal.aborted) reasons.push(signal.reason);
        } else if (i % 3 === 2 && i > refused) {
          [refused, refusedId] = [i, String(job.id)];
          await lab.redis.del(`${queue.toKey(String(job.id))}:lock`);
        }
      };
      let scene: Scene | undefined;
      scene = await start(lab, body, { key, ...recoversSoon });
      const count = await moreUntil(queue, () => reasons.length > 0);
      expect(reasons).toEqual([expect.any(JobLockLostError)]);
      expect(lab.overlaps()).toEqual([]);
      expect(lab.inversions()).toEqual([`${refused + 1} before ${refused} of a`]);
      expect((await queue.getFailed()).map(({ failedReason }) => failedReason)).toEqual([]);
      expect(await queue.getCompletedCount()).toBe(count);
      await until(async () => (await lab.leftovers()).length === 0);
    });

    it("does not begin before a failure of the one before is recorded", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      await queue.addBulk(jobs(COUNT, () => "a"));
      const body: Body = ({ data }) => {
        if (data.i % 2 === 0) throw new Error("fails");
      };
      const { early } = await start(lab, body, { key });
      await finished(queue, COUNT);
      expect([...early].filter((i) => i % 2 === 1)).toEqual([]);
      expect([lab.overlaps(), lab.inversions()]).toEqual([[], []]);
      expect(await queue.getFailedCount()).toBe(COUNT / 2);
    });

    it("may extend its lock, be delayed, and fail, as any other", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      await queue.addBulk(jobs(COUNT, () => "a"));
      const extended: number[] = [];
      const body: Body = async (job, _signal, lock) => {
        const { i } = job.data;
        const token = job.token ?? "";
        extended.push(await job.extendLock(token, 10_000));
        lock.assertHeld();
        if (i % 5 === 3 && job.attemptsStarted === 1) {
          await job.moveToDelayed(Date.now() + 20, token);
          throw new DelayedError();
        }
        if (i % 5 === 4) throw new Error("fails");
      };
      const { early } = await start(lab, body, { key });
      const count = await moreUntil(queue, () => early.size > 0);
      expect(new Set(extended)).toEqual(new Set([1]));
      expect([lab.overlaps(), lab.errors]).toEqual([[], []]);
      expect(await queue.getFailedCount()).toBe(count / 5);
    });

    it("has what its job was added with: it is retried", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue("q", { defaultJobOptions: { attempts: 3 } });
      await queue.addBulk(jobs(COUNT, () => "a"));
      const failed = new Set<number>();
      const kinds = new Set<string>();
      const body: Body = ({ data, opts, timestamp, attemptsMade }) => {
        kinds.add(`${opts.attempts} ${typeof timestamp}`);
        if (attemptsMade > 0 || scene?.early.has(data.i) !== true) return;
        failed.add(data.i);
        throw new Error("fails once");
      };
      let scene: Scene | undefined;
      scene = await start(lab, body, { key });
      await moreUntil(queue, () => failed.size > 0);
      expect([...kinds]).toEqual(["3 number"]);
      expect(await queue.getFailedCount()).toBe(0);
      expect([lab.overlaps(), lab.errors]).toEqual([[], []]);
    });

    it("is the only one that begins after its key was paused, and is told to stop", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      await queue.addBulk(jobs(COUNT, () => "a"));
      let pausedAt: number | undefined;
      const aborted: number[] = [];
      const body: Body = async ({ data }, signal) => {
        if (pausedAt !== undefined && !isResumed) {
          await until(() => signal.aborted);
          aborted.push(data.i);
        } else if (data.i >= 5 && pausedAt === undefined && scene?.early.has(data.i)) {
          pausedAt = data.i;
          await scene.worker.pauseKey("a");
        }
      };
      let isResumed = false;
      let scene: Scene | undefined;
      scene = await start(lab, body, { key });
      const count = await moreUntil(queue, () => pausedAt !== undefined, false);
      await until(async () => (await queue.getActiveCount()) === 0);
      await until(() => lab.ran.every((run) => run.endedMs !== undefined));
      const begun = lab.ran.filter(({ i }) => i > (pausedAt ?? 0));
      expect(begun.length).toBeLessThanOrEqual(1);
      expect(begun.map(({ i }) => i)).toEqual(aborted);
      isResumed = true;
      await scene.worker.resumeKey("a");
      await finished(queue, count);
      expect([lab.overlaps(), lab.inversions()]).toEqual([[], []]);
    });

    it("does not count when it was removed meanwhile, and the one behind it runs", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const added = await queue.addBulk(jobs(COUNT, () => "a"));
      const removed = [6, 12, 18, 24];
      const body: Body = async ({ data }) => {
        if (removed.includes(data.i + 1)) await added[data.i + 1]?.remove();
      };
      await start(lab, body, { key });
      await finished(queue, COUNT - removed.length);
      expect([lab.overlaps(), lab.inversions()]).toEqual([[], []]);
      await until(async () => (await lab.leftovers()).length === 0);
    });

    it("leaves nothing open and nothing twice when the worker is closed", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      await queue.addBulk(jobs(COUNT, () => "a"));
      for (let round = 1; round <= 3; round += 1) {
        const { worker } = await start(lab, () => undefined, { key });
        await until(() => lab.ran.length >= 8 * round);
        await worker.close();
        expect(await queue.getActiveCount()).toBe(0);
        expect(lab.ran.every((run) => run.endedMs !== undefined)).toBe(true);
      }
      lab.worker(undefined, { key });
      await finished(queue, COUNT);
      expect(lab.ran.map(({ i }) => i)).toEqual(Array.from({ length: COUNT }, (_, i) => i));
    });
  });
}

export function testLostAnswers(key: Key): void {
  describe("the next job at once", () => {
    it("loses no job when answers are lost", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      await queue.addBulk(jobs(COUNT, () => "a"));
      let cuts = 0;
      const body: Body = async ({ data }) => {
        if (data.i % 10 !== 9 || data.i / 10 < cuts) return;
        cuts += 1;
        await lab.redis.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
      };
      await start(lab, body, { key, ...recoversSoon });
      // The queue's own connection is cut, too, and node-redis does not ask again what it asked.
      const ended = async (): Promise<number> => {
        const [completed, failed] = [queue.toKey("completed"), queue.toKey("failed")];
        return (await lab.redis.zcard(completed)) + (await lab.redis.zcard(failed));
      };
      for (let before = await ended(); before !== COUNT; before = await ended())
        await until(async () => (await ended()) !== before, 40_000);
      expect(lab.overlaps()).toEqual([]);
      expect((await queue.getFailed()).map(({ failedReason }) => failedReason)).toEqual([]);
      expect(await queue.getCompletedCount()).toBe(COUNT);
      await until(async () => (await lab.leftovers()).length === 0);
    });
  });
}
