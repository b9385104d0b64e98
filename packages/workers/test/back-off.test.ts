/** Keys that are left alone for a while: `lock.backOff`, and `pauseKey` with an end. */
import { until } from "@x/test-support";
import { describe, expect, it, vi } from "vitest";
import { finished, jobs, Lab } from "./support/lab.ts";

// Within the time of a test, only the timer of the pause brings a job back.
const rules = { recheckInterval: 3_600_000, concurrency: 4 } as const;

describe.concurrent("lock.backOff", () => {
  it("sends the job back unchanged, and starts no job of its key until the back-off ends, in any worker", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const paused: unknown[] = [];
    const yielded: unknown[] = [];
    const starts: { readonly i: number; readonly key: unknown; readonly at: number; readonly attempts: number }[] = [];
    const workers = [1, 2].map(() =>
      lab.worker((job, _signal, lock) => {
        starts.push({ i: job.data.i, key: job.data.k, at: Date.now(), attempts: job.attemptsStarted });
        if (starts.filter(({ key }) => key === "a").length === 1 && job.data.k === "a") lock.backOff(3_000);
        return lock.fencingToken;
      }, rules),
    );
    for (const worker of workers) {
      worker.on("keyPaused", (message) => paused.push(message));
      worker.on("yielded", (message) => yielded.push(message));
    }
    await queue.addBulk([...jobs(3, () => "a"), ...jobs(2, () => "b")]);
    await until(() => paused.length === 1);
    const { untilMs: end } = paused[0] as { readonly untilMs: number };
    expect(paused).toEqual([{ queue: "q", key: "a", reason: "backed off by job 1", jobId: "1", untilMs: end }]);
    expect(yielded).toEqual([{ queue: "q", jobId: "1", keys: ["a"], reason: "backOff", delayMs: 3_000 }]);
    const [key] = await queue.listKeys();
    expect(key).toMatchObject({ key: "a", holder: undefined, parked: 3 });
    const told = key?.paused?.untilMs ?? 0;
    expect(await queue.explain("1")).toMatchObject({
      verdict: "parked",
      message: `key "a" is paused until ${new Date(told).toISOString()}: backed off by job 1`,
    });
    await finished(queue, 5);
    const ofA = starts.filter(({ key: of }) => of === "a");
    expect(ofA.map(({ i, attempts }) => [i, attempts])).toEqual([
      [0, 1],
      [0, 1],
      [1, 1],
      [2, 1],
    ]);
    for (const { at } of ofA.slice(1)) expect(at).toBeGreaterThanOrEqual(told);
    const [first] = await queue.getCompleted(0, 10).then((all) => all.filter(({ id }) => id === "1"));
    expect([first?.attemptsMade, first?.attemptsStarted]).toEqual([1, 1]);
    expect(lab.errors).toEqual([]);
    expect(await lab.leftovers()).toEqual([]);
  });

  it("outlives the worker that set it, and applies to a worker that starts later", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const first = lab.worker((_job, _signal, lock) => lock.backOff(3_000), { ...rules, concurrency: 1 });
    await queue.addBulk(jobs(2, () => "a"));
    await until(async () => (await queue.listKeys()).some(({ paused }) => paused?.untilMs !== undefined));
    const [key] = await queue.listKeys();
    await first.close(true);
    const starts: number[] = [];
    lab.worker(() => void starts.push(Date.now()), { ...rules, concurrency: 1 });
    // A job that was being fetched when the worker was closed by force has to stall first.
    await finished(queue, 2, 40_000);
    expect(starts).toHaveLength(2);
    expect(starts[0]).toBeGreaterThanOrEqual(key?.paused?.untilMs ?? Number.POSITIVE_INFINITY);
    expect(lab.inversions()).toEqual([]);
  });

  it("takes effect only if the processor rejects, and delays only the job itself if the job has no key", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker((job, _signal, lock) => {
      if (job.data.k === undefined && lab.ran.filter(({ i }) => i === job.data.i).length === 1) lock.backOff(20);
      try {
        if (job.data.k !== undefined) lock.backOff(60_000);
      } catch {
        // Handled.
      }
    }, rules);
    await queue.addBulk([...jobs(1, () => undefined), { name: "job", data: { k: "a", i: 7 } }]);
    await finished(queue, 2);
    expect(lab.ran.map(({ i }) => i).toSorted((a, b) => a - b)).toEqual([0, 0, 7]);
    expect(await lab.leftovers()).toEqual([]);
  });

  it("rejects an invalid duration, which fails the job", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker((_job, _signal, lock) => lock.backOff(0), rules);
    await queue.add("job", { k: "a", i: 0 });
    await finished(queue, 1);
    const [failed] = await queue.getFailed();
    expect(failed?.failedReason).toMatch(/^ms must be an integer .* got 0$/);
  });
});

describe.concurrent("a key's pause with an end", () => {
  it.each(["before its jobs are added", "while one of them runs"])(
    "ends by itself without a poll, including for workers that start during the pause, when it begins %s",
    async (when) => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const starts: { readonly i: number; readonly at: number }[] = [];
      const body = (job: { readonly data: { readonly i: number } }): void =>
        void starts.push({ i: job.data.i, at: Date.now() });
      const first = lab.worker(body, rules);
      const asked: unknown[] = [];
      queue.on("keyPaused", (message) => asked.push(message));
      const isBusy = when.startsWith("while");
      if (isBusy) {
        await queue.add("job", { k: "a", i: -1, ms: 1_000 });
        await until(() => lab.ran.length === 1);
      }
      expect(await queue.pauseKey("a", "provider's limit", { for: 3_000 })).toBe(true);
      expect(await queue.pauseKey("a", "shorter", { for: 50 })).toBe(false);
      const { untilMs: end } = asked[0] as { readonly untilMs: number };
      await queue.addBulk([...jobs(3, () => "a"), ...jobs(2, () => "b")]);
      await until(async () => (await queue.getDelayedCount()) === 3);
      expect((await queue.listKeys()).find(({ key }) => key === "a")?.paused).toMatchObject({
        reason: "provider's limit",
        untilMs: end,
      });
      await first.close();
      lab.worker(body, rules);
      await finished(queue, isBusy ? 6 : 5);
      const ofA = lab.ran.filter(({ key, i }) => key === "a" && i >= 0);
      expect(ofA.map(({ i }) => i)).toEqual([0, 1, 2]);
      for (const { i, at } of starts.slice(isBusy ? 3 : 2)) expect([i, at >= end]).toEqual([i, true]);
      expect(await lab.leftovers()).toEqual([]);
    },
  );

  it("is ended early by resumeKey, and does not shorten a pause without an end", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker(undefined, rules);
    await queue.pauseKey("a", "long", { for: 3_600_000 });
    await queue.pauseKey("b", "migration");
    expect(await queue.pauseKey("b", "short", { for: 1 })).toBe(false);
    await queue.addBulk([...jobs(2, () => "a"), ...jobs(1, () => "b")]);
    await until(async () => (await queue.getDelayedCount()) === 3);
    expect(await queue.resumeKey("a")).toBe(true);
    await finished(queue, 2);
    const paused = await queue.listKeys();
    expect(paused.map(({ key, paused: why }) => [key, why?.reason, why?.untilMs])).toEqual([
      ["b", "migration", undefined],
    ]);
    await queue.resumeKey("b");
    await finished(queue, 3);
  });

  it("is forgotten after its end, even if no job of the key is added", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker(undefined, rules);
    await queue.pauseKey("a", "short", { for: 1 });
    await until(async () => (await queue.listKeys()).length === 0);
    expect(await queue.resumeKey("a")).toBe(false);
    expect(await lab.leftovers()).toEqual([]);
  });
});

describe("a key's pause with an end, if clocks differ", () => {
  it("lasts as long as the clock of Redis says, with any clock of a worker", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker(undefined, { ...rules, autorun: false });
    await queue.pauseKey("a", "limit", { for: 2_000 });
    const end = (await queue.listKeys())[0]?.paused?.untilMs ?? 0;
    const now = Date.now;
    const starts: number[] = [];
    const fast = vi.spyOn(Date, "now").mockImplementation(() => now() + 120_000);
    try {
      lab.worker(() => void starts.push(now()), rules);
      await queue.add("job", { k: "a", i: 0 });
      await finished(queue, 1);
    } finally {
      fast.mockRestore();
    }
    expect(starts[0]).toBeGreaterThanOrEqual(end);
  });
});
