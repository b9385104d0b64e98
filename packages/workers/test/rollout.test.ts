/** The change of a queue from plain workers to exclusive ones, and back: watched, exclusive, watched. */
import { until } from "@x/test-support";
import { ExclusionRefusedError } from "@x/workers";
import { type Job, Worker } from "bullmq";
import { describe, expect, it } from "vitest";
import { type Data, finished, gate, jobs, Lab, type Ran } from "./support/lab.ts";

// Within the time of a test, no timer brings a job back.
const rules = { recheckInterval: 3_600_000 } as const;
/** BullMQ's lock of a job that no worker renews outlasts a loaded machine. */
const LONG_MS = 60_000;

/** Starts a plain worker of BullMQ, which ends with the lab. */
async function plainWorker(lab: Lab, body: () => Promise<void>): Promise<Worker> {
  const worker = new Worker("q", body, { connection: lab.connection, lockDuration: LONG_MS });
  worker.on("error", () => {});
  lab.defer(async () => await worker.close());
  await worker.waitUntilReady();
  return worker;
}

describe.concurrent("a watched queue", () => {
  it("lets jobs of a key overlap, counts them, and is exclusive for the next start", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const worker = lab.worker(undefined, { ...rules, autorun: false, lockDuration: LONG_MS });
    const taken = new Map<string, Job>();
    const fetch = async (token: string): Promise<string | undefined> => {
      const job = await worker.getNextJob(token, { block: false });
      if (job !== undefined) taken.set(token, job);
      return job?.id;
    };
    expect(await queue.exclusion()).toMatchObject({ mode: "on", watchedSinceMs: undefined, overlaps: 0, keys: [] });
    expect(await queue.setExclusion("watch")).toBe(true);
    expect(await queue.setExclusion("watch")).toBe(false);
    await queue.addBulk([...jobs(4, () => "a"), ...jobs(2, () => "b")]);
    const tokens = ["one", "two", "three", "four"];
    for (const [index, token] of tokens.entries()) expect(await fetch(token)).toBe(String(index + 1));
    const early = { mode: "watch", overlaps: 3, outOfOrder: 0, keys: [{ key: "a", starts: 3 }], overlappingKeys: 1 };
    expect(await queue.exclusion()).toMatchObject(early);
    expect(await queue.setExclusion("on")).toBe(true);
    await queue.addBulk(jobs(1, () => "a"));
    expect(await fetch("five")).toBe("5");
    expect(await fetch("six")).toBeUndefined();
    // Jobs 6 and 7 wait for keys that others have.
    for (const token of tokens.slice(0, 3)) {
      expect((await queue.exclusion()).overlappingKeys).toBe(1);
      await taken.get(token)?.moveToCompleted("done", token, false);
      expect(await fetch("six")).toBeUndefined();
    }
    expect(await queue.exclusion()).toMatchObject({ mode: "on", overlaps: 3, overlappingKeys: 0 });
    await taken.get("four")?.moveToCompleted("done", "four", false);
    expect(await fetch("six")).toBe("7");
    expect((await queue.jobsOf("a")).holders).toEqual(["7"]);
    expect(await queue.listKeyPolicies()).toEqual(new Map());
  });

  it("gives jobs of a key their own locks and increasing fencing tokens", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const both = gate();
    const held: boolean[] = [];
    await queue.setExclusion("watch");
    lab.worker(async (_job, _signal, lock) => {
      if (lab.ran.length === 2) both.open();
      await both.passed;
      held.push(lock.isHeld());
    }, rules);
    await queue.addBulk(jobs(2, () => "a"));
    await finished(queue, 2);
    expect(held).toEqual([true, true]);
    expect(new Set(lab.ran.map(({ fencingToken }) => fencingToken)).size).toBe(2);
    expect(lab.errors).toEqual([]);
  });

  it("shares its jobs with plain workers, reports no error, and refuses to be exclusive until these are gone", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const all = gate();
    let plainly = 0;
    await queue.setExclusion("watch");
    const plain = await plainWorker(lab, async () => {
      plainly += 1;
      await all.passed;
    });
    await queue.addBulk(jobs(1, () => "a"));
    await until(() => plainly === 1);
    const worker = lab.worker(async () => await all.passed, rules);
    await queue.addBulk(jobs(3, () => "a"));
    await until(() => lab.ran.length === 3);
    const codes = (await queue.check()).map(({ code, severity }) => [code, severity]);
    expect(codes).toEqual([
      ["WATCHED", "warning"],
      ["PLAIN_WORKER", "warning"],
    ]);
    const { obstacles } = await queue.exclusion();
    expect(obstacles).toEqual([
      expect.stringMatching(/^job 1 runs without having its key: a worker without keys/),
      "1 connected worker is not an ExclusiveWorker, or started or closed a moment ago",
    ]);
    const refusal = await queue.setExclusion("on").catch((error: unknown) => error);
    expect(refusal).toBeInstanceOf(ExclusionRefusedError);
    expect(refusal).toMatchObject({ code: "EXCLUSION_REFUSED", obstacles });
    expect((await queue.exclusion()).mode).toBe("watch");
    all.open();
    await finished(queue, 4);
    await plain.close();
    await until(async () => (await queue.exclusion()).obstacles.length === 0);
    expect(await queue.setExclusion("on")).toBe(true);
    expect(await queue.check()).toEqual([]);
    expect(worker.isRunning()).toBe(true);
    expect(lab.errors).toEqual([]);
  });

  it("finds an idle plain worker, and changes nevertheless by force", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    await queue.setExclusion("watch");
    await plainWorker(lab, async () => {});
    await until(async () => (await queue.exclusion()).obstacles.length === 1);
    await expect(queue.setExclusion("on")).rejects.toThrow("not an ExclusiveWorker");
    expect(await queue.setExclusion("on", { force: true })).toBe(true);
    // Nothing changes, so nothing is refused.
    expect(await queue.setExclusion("on")).toBe(false);
  });

  it("is made exclusive under load without a further overlap, and watched again without losing a job", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    await queue.setExclusion("watch");
    const startsMs = new Map<string, number>();
    const crew = [1, 2, 3].map(() =>
      lab.worker(
        (job) => {
          startsMs.set(`q:${job.id}`, job.processedOn ?? 0);
        },
        { ...rules, concurrency: 10 },
      ),
    );
    const [keys, count] = [3, 600];
    await queue.addBulk(jobs(count, (i) => i % keys, 5));
    await until(() => lab.ran.length > 100);
    await queue.setExclusion("on");
    const changedMs = Date.now();
    const figures = await queue.exclusion();
    expect(figures.overlaps).toBeGreaterThan(20);
    await until(async () => (await queue.exclusion()).overlappingKeys === 0);
    const started = (): Ran[] => lab.ran.filter(({ jobId }) => (startsMs.get(jobId) ?? 0) > changedMs);
    await until(() => started().length > 60);
    const later = started();
    const isOverlap = (one: Ran, other: Ran): boolean =>
      one !== other &&
      one.key === other.key &&
      one.startedMs < other.startedMs &&
      (one.endedMs ?? Number.POSITIVE_INFINITY) > other.startedMs;
    expect(later.filter((job) => lab.ran.some((other) => isOverlap(other, job)))).toEqual([]);
    expect((await queue.exclusion()).overlaps).toBe(figures.overlaps);
    // Several hundred jobs wait in line, and no timer brings them back.
    await queue.setExclusion("watch");
    await finished(queue, count);
    expect(new Set(lab.ran.map(({ jobId }) => jobId)).size).toBe(count);
    expect(lab.ran).toHaveLength(count);
    await queue.setExclusion("on");
    for (const worker of crew) expect(worker.isRunning()).toBe(true);
    await until(async () => (await queue.exclusion()).overlappingKeys === 0);
    expect((await lab.leftovers()).filter((name) => !/lane:(watched|early)$/.test(name))).toEqual([]);
    expect(lab.errors).toEqual([]);
  });

  it("lets the jobs in line go on immediately, even if the change is interrupted", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const all = gate();
    lab.worker(async () => await all.passed, { ...rules, concurrency: 30 });
    await queue.addBulk(jobs(10, () => "a"));
    await until(async () => (await queue.counts()).parked === 9);
    await queue.setExclusion("watch");
    await until(() => lab.ran.length === 10);
    await queue.setExclusion("on");
    await queue.addBulk(jobs(10, () => "a"));
    await until(async () => (await queue.counts()).parked === 10);
    // The process that changes the mode dies after its first command. Another worker sweeps when it starts.
    await lab.redis.hset("bull:q:lane:holders", "\u001f", Date.now());
    lab.worker(async () => await all.passed, rules);
    await until(() => lab.ran.length === 20);
    all.open();
    await finished(queue, 20);
  });

  it("is exclusive when Redis has lost the mode", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    await queue.setExclusion("watch");
    lab.worker(undefined, { ...rules, concurrency: 20 });
    await queue.addBulk(jobs(20, () => "a", 5));
    await finished(queue, 20);
    expect(lab.overlaps()).not.toEqual([]);
    await lab.redis.flushall();
    lab.ran.length = 0;
    await queue.addBulk(jobs(20, () => "a", 5));
    await finished(queue, 20);
    expect(lab.overlaps()).toEqual([]);
    expect((await queue.exclusion()).mode).toBe("on");
  });

  it("counts starts above perKey.concurrency only, and those that pass a job that waits for its retry", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    await queue.setExclusion("watch");
    const all = gate();
    const worker = lab.worker(async () => await all.passed, { ...rules, perKey: { concurrency: 3 } });
    await queue.addBulk(jobs(5, () => "a"));
    await until(() => lab.ran.length === 5);
    expect(await queue.exclusion()).toMatchObject({ overlaps: 2, outOfOrder: 0 });
    all.open();
    await finished(queue, 5);
    await worker.close();
    lab.worker(
      (job) => {
        if (job.data.k === "retried" && job.attemptsStarted === 1) throw new Error("once");
      },
      { ...rules, onFailure: "block" },
    );
    await queue.add("job", { k: "retried", i: 1_000 }, { attempts: 2, backoff: { type: "fixed", delay: 3_600_000 } });
    await until(async () => (await queue.getDelayedCount()) === 1);
    for (const count of [6, 7]) {
      await queue.addBulk(jobs(1, () => "retried"));
      await finished(queue, count);
    }
    expect(await queue.exclusion()).toMatchObject({ ended: 7, overlaps: 2, outOfOrder: 2 });
    const text = await queue.exportPrometheusMetrics();
    expect(text).toContain('x_workers_watched{queue="q"} 1');
    expect(text).toContain('x_workers_early_starts{queue="q", state="out_of_order"} 2');
  });

  it("halts no key, takes no turns, and drops no job because its key is busy", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    await queue.setExclusion("watch");
    const halting = lab.worker(
      (job) => {
        if (job.data.i === 0) throw new Error("for good");
      },
      { ...rules, onFailure: "halt" },
    );
    await queue.addBulk(jobs(3, () => "a"));
    await finished(queue, 3);
    expect(await queue.listKeys()).toEqual([]);
    await halting.close();
    const all = gate();
    const turning = lab.worker(async () => await all.passed, { ...rules, between: "rotate" });
    await queue.addBulk(jobs(6, (i) => (i < 5 ? "a" : "b")));
    await until(() => lab.ran.length === 9);
    expect((await queue.counts()).parked).toBe(0);
    all.open();
    await finished(queue, 9);
    await turning.close();
    const next = gate();
    lab.worker(async () => await next.passed, { ...rules, whenBusy: "drop" });
    await queue.addBulk(jobs(3, () => "a"));
    await until(() => lab.ran.length === 12);
    next.open();
    await finished(queue, 12);
    expect(await queue.getFailedCount()).toBe(1);
  });

  it("parks no job for a turn", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    await queue.setExclusion("watch");
    const worker = lab.worker(undefined, { ...rules, between: "rotate", autorun: false, lockDuration: LONG_MS });
    await queue.addBulk(jobs(6, (i) => (i < 5 ? "a" : "b")));
    expect((await worker.getNextJob("one", { block: false }))?.id).toBe("1");
    expect(await queue.counts()).toMatchObject({ parked: 0, runnable: 5 });
    expect((await worker.getNextJob("two", { block: false }))?.id).toBe("2");
  });

  it("is refused for whenBusy merge and for workers that do not know it", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const worker = lab.worker(undefined, { ...rules, whenBusy: "merge" } as never);
    await until(async () => (await queue.setups()).length === 1);
    await expect(queue.setExclusion("watch")).rejects.toThrow('with whenBusy "merge", this worker is always exclusive');
    await worker.close();
    const setup = { at: "web:1", key: "k", onFailure: "skip", locks: "", nodes: 1 };
    const [seconds] = await lab.redis.time();
    await lab.redis.hset("bull:q:lane:workers", "an-older-worker", `${seconds} ${JSON.stringify(setup)}`);
    await expect(queue.setExclusion("watch")).rejects.toThrow("web:1: the version of this worker does not know");
    await queue.setExclusion("watch", { force: true });
    await expect(queue.setExclusion("on")).rejects.toThrow("web:1: the version of this worker does not know");
    await expect(queue.setExclusion("off" as never)).rejects.toThrow('mode must be "on" or "watch"');
  });

  it("is not made exclusive while its workers have different keys", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    await queue.setExclusion("watch");
    const first = lab.worker(undefined, rules);
    const second = lab.worker(undefined, { ...rules, key: "i" });
    await until(async () => (await queue.setups()).length === 2);
    await expect(queue.setExclusion("on")).rejects.toThrow("jobs of one entity may run at the same time");
    await second.close();
    await until(async () => (await queue.exclusion()).obstacles.length === 0);
    expect(await queue.setExclusion("on")).toBe(true);
    expect(first.isRunning()).toBe(true);
  });

  it("keeps the policies of keys whose jobs overlap", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const all = gate();
    await queue.setExclusion("watch");
    lab.worker(async () => await all.passed, rules);
    await queue.addBulk(jobs(3, () => "a"));
    await until(() => lab.ran.length === 3);
    await queue.setKeyPolicy("a", { concurrency: 2 });
    expect(await queue.listKeyPolicies()).toEqual(new Map([["a", { concurrency: 2 }]]));
    await queue.setExclusion("on");
    await queue.addBulk(jobs(3, () => "a"));
    await until(async () => (await queue.counts()).parked === 3);
    expect(await queue.exclusion()).toMatchObject({ mode: "on", overlappingKeys: 1 });
    expect(await queue.removeKeyPolicy("a")).toBe(true);
    expect(await queue.getKeyPolicy("a")).toBeUndefined();
    await lab.anotherRuns();
    expect(lab.ran).toHaveLength(3);
    all.open();
    await finished(queue, 6);
    expect((await lab.leftovers()).toSorted()).toEqual(["bull:q:lane:early", "bull:q:lane:watched"]);
  });

  it("counts the hundred most frequent keys, and drops the rarest", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    await queue.setExclusion("watch");
    const worker = lab.worker(undefined, { ...rules, autorun: false, lockDuration: LONG_MS });
    const names = [...Array.from({ length: 101 }, (_, i) => `key ${i}`), "often", "often", "often"];
    await queue.addBulk(names.flatMap((k, i) => [0, 1].map(() => ({ name: "job", data: { k, i } satisfies Data }))));
    while ((await worker.getNextJob("token", { block: false })) !== undefined);
    const { keys, overlaps } = await queue.exclusion({ limit: 100 });
    expect(keys).toHaveLength(100);
    expect(keys[0]).toMatchObject({ key: "often" });
    expect(keys[0]?.starts).toBeGreaterThanOrEqual(5);
    expect(overlaps).toBe(101 + 5);
  });
});
