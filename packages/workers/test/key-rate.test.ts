/** `perKey.rate`: how many jobs of a key start in a time, over all workers, crashes and restarts. */
import { MixedFleetError } from "@x/workers";
import { describe, expect, it, vi } from "vitest";
import { finished, jobs, Lab, redlockOn, until } from "./support/lab.ts";

// Longer than a slow machine needs to look at what was counted.
const rate = { max: 3, duration: 3_000 } as const;
// No timer but the one of the rate brings a job back in the time of a test.
const rules = { recheckInterval: 3_600_000, concurrency: 8, perKey: { rate } } as const;

/** The times at which Redis handed out the jobs of a key: those that it counted. */
async function countedStarts({ redis }: Lab, key: string): Promise<number[]> {
  return (await redis.lrange(`bull:q:lane:starts=${key}`, 0, -1)).map(Number);
}

describe.concurrent("the rate of a key", () => {
  it("holds over two workers and a restart, in order, and holds up no other key", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const starts: number[] = [];
    const body = (job: { readonly data: { readonly k?: unknown } }): void => {
      if (job.data.k === "a") starts.push(Date.now());
    };
    const first = lab.worker(body, rules);
    lab.worker(body, rules);
    await queue.addBulk([...jobs(8, () => "a"), ...jobs(20, (i) => `other ${i}`)]);
    await finished(queue, 23);
    expect(starts).toHaveLength(3);
    expect(lab.ran.filter(({ key }) => key !== "a")).toHaveLength(20);
    const [key] = await first.listKeys();
    const limitedUntil = key?.limitedUntil ?? 0;
    expect(key).toMatchObject({ key: "a", holder: undefined, parked: 5, paused: undefined });
    const [oldest = 0] = (await countedStarts(lab, "a")).toReversed();
    expect(limitedUntil).toBe(oldest + rate.duration);
    const fourth = await first.explain("4");
    expect(fourth?.message).toBe(`key "a": first in line, limited until ${new Date(limitedUntil).toISOString()}`);
    await first.close();
    lab.worker(body, rules);
    await finished(queue, 28);
    // A start is noted after Redis has counted it, so a window of those that are noted may be shorter, not fuller.
    expect(starts[3]).toBeGreaterThanOrEqual(limitedUntil);
    expect(lab.inversions()).toEqual([]);
    expect(lab.overlaps()).toEqual([]);
    await until(async () => (await lab.leftovers()).length === 0);
  });

  it("counts a retry as a start", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker(
      (job) => {
        if (job.attemptsMade < 3) throw new Error("not yet");
      },
      { ...rules, onFailure: "block" },
    );
    await queue.add("job", { k: "a", i: 0 }, { attempts: 4 });
    await until(() => lab.ran.length === 3);
    const [oldest = 0] = (await countedStarts(lab, "a")).toReversed();
    await finished(queue, 1);
    const last = (await countedStarts(lab, "a"))[0] ?? 0;
    expect(lab.ran).toHaveLength(4);
    expect(last).toBeGreaterThanOrEqual(oldest + rate.duration);
  });

  it("costs a job nothing that goes back because plain code has its lock", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const worker = lab.worker(undefined, {
      ...rules,
      timeout: 10,
      recheckInterval: 100,
      perKey: { rate: { max: 1, duration: 3_600_000 } },
    });
    const yielded: unknown[] = [];
    worker.on("yielded", (message) => yielded.push(message));
    const held = await redlockOn(lab, lab.connection).acquire("a");
    await queue.addBulk(jobs(2, () => "a"));
    await until(() => yielded.length > 3);
    expect(await countedStarts(lab, "a")).toEqual([]);
    await held.release();
    await finished(queue, 1);
    await until(async () => (await countedStarts(lab, "a")).length === 1);
    expect(await worker.explain("2")).toMatchObject({
      verdict: "parked",
      message: expect.stringContaining("limited until"),
    });
    expect(lab.ran.map(({ i }) => i)).toEqual([0]);
  });

  it("limits a job of several keys by each of them", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker(undefined, { ...rules, recheckInterval: 200, perKey: { rate: { max: 1, duration: 2_000 } } });
    await queue.addBulk([...jobs(1, () => "a"), ...jobs(1, () => ["a", "b"]), ...jobs(1, () => "b")]);
    await until(() => lab.ran.length === 1);
    const first = (await countedStarts(lab, "a"))[0] ?? 0;
    await until(() => lab.ran.length === 2);
    const second = (await countedStarts(lab, "a"))[0] ?? 0;
    expect(await countedStarts(lab, "b")).toEqual([second]);
    await finished(queue, 3);
    expect(second - first).toBeGreaterThanOrEqual(2_000);
    expect(((await countedStarts(lab, "b"))[0] ?? 0) - second).toBeGreaterThanOrEqual(2_000);
  });

  it("is told of when two workers do not agree on it", async () => {
    await using lab = await Lab.start();
    lab.worker(undefined, rules);
    const other = lab.worker();
    await until(async () => (await other.check()).length > 0);
    const [finding] = await other.check();
    expect(finding).toMatchObject({ code: "OTHER_PER_KEY", severity: "error" });
    expect(finding?.message).toContain(
      '{"rate":{"max":3,"duration":3000}}, here: {}; how many jobs of a key may run, start or wait',
    );
    await until(() => lab.errors.some((error) => error instanceof MixedFleetError));
  });
});

describe("the rate of a key, and clocks that differ", () => {
  it("goes by the clock of Redis", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const honest = lab.worker(undefined, rules);
    await queue.addBulk(jobs(3, () => "a"));
    await finished(queue, 3);
    const [oldest = 0] = (await countedStarts(lab, "a")).toReversed();
    await honest.close();
    const now = Date.now;
    const fast = vi.spyOn(Date, "now").mockImplementation(() => now() + 120_000);
    try {
      lab.worker(undefined, rules);
      await queue.addBulk(jobs(1, () => "a"));
      await finished(queue, 4);
    } finally {
      fast.mockRestore();
    }
    expect((await countedStarts(lab, "a"))[0]).toBeGreaterThanOrEqual(oldest + rate.duration);
  });
});
