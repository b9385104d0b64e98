import type { Instant } from "@x/redlock-core/kit";
import { until } from "@x/test-support";
import { Worker } from "bullmq";
import { describe, expect, it, vi } from "vitest";
import type { Run } from "../src/job-run/run.ts";
import { Lane } from "../src/lane/lane.ts";
import { TakenJob, takenJobOf } from "../src/lane/taken-job.ts";
import { jobs, Lab } from "./support/lab.ts";

const SENT: Instant = { monotonicMs: 1, wallMs: 2, suspendedMs: 0 };

function taken(): TakenJob {
  return new TakenJob([[], "7", 0, 0, "k", 2, "11", [], "3", 1, "1", false, "5"], SENT, "token");
}

describe("a taken job", () => {
  it("has the values of the script's reply", () => {
    expect(taken()).toMatchObject({
      jobId: "7",
      pin: { kind: "keys", keys: ["k"] },
      sent: SENT,
      parked: 2,
      fencingToken: 11,
      unknown: [],
      place: 3,
      isFollowed: true,
      slots: [1],
      outcome: undefined,
      parkedSinceMs: 5,
      lockName: "k\u001f1",
    });
  });

  it("hands its lock to the first caller that claims it", () => {
    const job = taken();
    expect([job.claimLock(), job.claimLock()]).toEqual(["token", ""]);
  });

  it("matches every token until its run has begun, and then only the run's token", () => {
    const job = taken();
    expect(job.canHaveToken("a")).toBe(true);
    job.run = { token: "a" } as Run;
    expect([job.canHaveToken("a"), job.canHaveToken("b")]).toEqual([true, false]);
  });

  it("is found by the BullMQ job that it is attached to", () => {
    const [job, made] = [taken(), {}];
    expect(takenJobOf(made)).toBeUndefined();
    job.attachTo(made);
    expect(takenJobOf(made)).toBe(job);
  });

  it("is forgotten, however it ends", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const attach = vi.spyOn(Lane.prototype, "attach");
    const ways = ["complete", "fail", "retry", "delay", "rate limit", "no JSON"];
    const worker = lab.worker(async (job) => {
      const way = ways[job.data.i];
      if (way === "fail" || way === "retry") throw new Error(way);
      if (way === "delay") {
        await job.moveToDelayed(Date.now() + 60_000, job.token);
        throw Object.assign(new Error("delayed"), { name: "DelayedError" });
      }
      if (way === "rate limit" && job.attemptsStarted === 1) throw Worker.RateLimitError();
      return way === "no JSON" ? 1n : way;
    });
    const lane = attach.mock.contexts[0] as Lane;
    attach.mockRestore();
    const remembered: boolean[] = [];
    worker.on("active", ({ id }) => remembered.push(lane.findTakenJob(String(id)) !== undefined));
    const added = await queue.addBulk(
      jobs(ways.length, (i) => `k${i}`).map((job) => ({
        ...job,
        opts: { attempts: ways[job.data.i] === "retry" ? 3 : 1 },
      })),
    );
    await until(async () => {
      const { completed = 0, failed = 0, delayed = 0 } = await queue.getJobCounts("completed", "failed", "delayed");
      return completed === 2 && failed === 3 && delayed === 1;
    });
    await until(() => added.every(({ id }) => lane.findTakenJob(String(id)) === undefined));
    expect(new Set(remembered)).toEqual(new Set([true]));
  });
});
