/** The effects of a failed or stalled job on the other jobs of its key. */
import { until } from "@x/test-support";
import { UnrecoverableError } from "bullmq";
import { describe, expect, it } from "vitest";
import { finished, gate, jobs, Lab, listen, SHORT_MS } from "../support/lab.ts";
import type { Key } from "./key.ts";

export function testFailures(key: Key): void {
  describe("failures", () => {
    it("keeps a job with onFailure block waiting for its retry, even when the lock it waited for is free", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const busy = gate();
      const options = { key, onFailure: "block", timeout: SHORT_MS, recheckInterval: 3_600_000 } as const;
      const first = lab.worker(() => busy.passed, { ...options, concurrency: 1 });
      lab.defer(async () => busy.open());
      const second = lab.worker(undefined, { ...options, autorun: false });
      const yields = listen<{ reason: string }>(lab, "x.workers.yielded");
      const held = await first.redlock.acquire("a", { ttl: 60_000 });
      const job = await queue.add("job", { k: "a", i: 0 }, { attempts: 2, backoff: 3_600_000 });
      await until(() => yields.at(-1)?.reason === "held");
      expect(await queue.explain("1")).toMatchObject({ verdict: "waits-for-lock" });
      // The first worker waits for the lock for the job, which returns in the second worker and has its turn there.
      await queue.addBulk(jobs(1, () => "busy"));
      await until(() => lab.ran.length === 1);
      await job.promote();
      const fetched = await second.getNextJob("token", { block: false });
      await fetched?.moveToFailed(new Error("not yet"), "token", false);
      expect(await queue.explain("1")).toMatchObject({ verdict: "waits-for-retry" });
      await held.release();
      const after = await second.redlock.acquire("a", { timeout: 10_000 });
      await after.release();
      expect(await job.isDelayed()).toBe(true);
    });

    it.each([{ backoff: 60 }, { backoff: 0 }])(
      "lets the key move on while a failed job waits for its retry, with onFailure skip (%o)",
      async (retry) => {
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
      },
    );

    it.each([{ backoff: 40 }, { backoff: 0 }])(
      "keeps the order through retries, with onFailure block (%o)",
      async (retry) => {
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
      },
    );

    it("stops the key of a job that failed for good with onFailure halt, until the key is resumed", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      lab.worker(
        (job) => {
          if (job.data.i === 1) throw new UnrecoverableError("broken");
        },
        { key, onFailure: "halt" },
      );
      await queue.addBulk([...jobs(4, () => "a"), ...jobs(2, () => "b")]);
      await until(async () => (await queue.getFailedCount()) === 2 && (await queue.getDelayedCount()) === 2);
      expect(lab.ran.filter((run) => run.key === "a").map((run) => run.i)).toEqual([0, 1]);
      expect(await queue.explain("3")).toMatchObject({
        verdict: "parked",
        keys: [{ key: "a", paused: { reason: "failed", jobId: "2" } }],
      });
      expect(await queue.resumeKey("a")).toBe(true);
      await finished(queue, 6);
      expect(await queue.resumeKey("a")).toBe(false);
      expect(lab.inversions().filter((each) => each.endsWith("a"))).toEqual([]);
      // The last job of b has failed as well: its key stays halted, with no job in line.
      expect((await queue.listKeys()).map((each) => [each.key, each.paused?.jobId, each.parked])).toEqual([
        ["b", "6", 0],
      ]);
    });

    it("runs a stalled job again before the other jobs of its key", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      await queue.addBulk(jobs(4, () => "a"));
      const keeper = lab.worker(undefined, { key, autorun: false, stalledInterval: 200 });
      const taken = await keeper.getNextJob("nobody", { block: false });
      expect(taken?.data.i).toBe(0);
      // As if the lock had expired.
      expect(await lab.redis.del("bull:q:1:lock")).toBe(1);
      void keeper.run();
      await finished(queue, 4);
      expect(lab.ran.map((run) => run.i)).toEqual([0, 1, 2, 3]);
    });

    it("runs a finished job that is retried manually", async () => {
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
  });
}
