/** `perKey.rate`: how many jobs of a key start in a period, over all workers, crashes and restarts. */
import { until } from "@x/test-support";
import { type WorkerEvents, WorkerMismatchError } from "@x/workers";
import { describe, expect, it, vi } from "vitest";
import { finished, gate, jobs, Lab, listen, redlockOn, SHORT_MS } from "./support/lab.ts";

const rate = { max: 3, duration: 3_000 } as const;
// Within the time of a test, only the timer of the rate brings a job back.
const rules = { recheckInterval: 3_600_000, concurrency: 8, perKey: { rate } } as const;

/** The times at which Redis handed out the jobs of a key, from the recorded starts. */
async function countedStarts({ redis }: Lab, key: string): Promise<number[]> {
  return (await redis.lrange(`bull:q:lane:starts=${key}`, 0, -1)).map(Number);
}

/** Returns all recorded starts until `isOver`, as far as they were seen, because Redis keeps only the last starts. */
async function startsUntil(lab: Lab, key: string, isOver: () => Promise<boolean>): Promise<number[]> {
  const seen = new Set<number>();
  await until(async () => {
    const isDone = await isOver();
    for (const start of await countedStarts(lab, key)) seen.add(start);
    return isDone;
  });
  return [...seen].toSorted((a, b) => a - b);
}

/** Expects at most `max` starts in any window of `duration`. */
function expectApart(starts: readonly number[], max: number, duration: number): void {
  expect(starts.length).toBeGreaterThan(0);
  for (const [index, start] of starts.slice(max).entries())
    expect(start - (starts[index] ?? 0)).toBeGreaterThanOrEqual(duration);
}

describe.concurrent("the rate of a key", () => {
  it("records no more starts of the key than the rate allows", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const kept: number[] = [];
    const perKey = { rate: { max: 2, duration: 400 } };
    lab.worker(async () => void kept.push((await countedStarts(lab, "a")).length), { ...rules, perKey });
    await queue.addBulk(jobs(6, () => "a", 0));
    await finished(queue, 6);
    expect(kept).toHaveLength(6);
    expect(Math.max(...kept)).toBeLessThanOrEqual(2);
  });

  it("applies across two workers and a restart, and delays no other key", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const hourly = { ...rules, perKey: { rate: { max: 3, duration: 3_600_000 } } };
    const first = lab.worker(undefined, hourly);
    const second = lab.worker(undefined, hourly);
    const onChannel = listen<WorkerEvents["keyLimited"]>(lab, "x.workers.keyLimited");
    const told: Record<string, unknown[]> = { first: [], second: [] };
    first.on("keyLimited", (message) => told["first"]?.push(message));
    second.on("keyLimited", (message) => told["second"]?.push(message));
    const ranOfA = (): number => lab.ran.filter(({ key }) => key === "a").length;
    await queue.addBulk([...jobs(8, () => "a"), ...jobs(20, (i) => `other ${i}`)]);
    await finished(queue, 23);
    expect([ranOfA(), lab.ran.length]).toEqual([3, 23]);
    const [key] = await queue.listKeys();
    const limitedUntilMs = key?.limitedUntilMs ?? 0;
    expect(key).toMatchObject({ key: "a", holder: undefined, parked: 5, paused: undefined });
    const [oldest = 0] = (await countedStarts(lab, "a")).toReversed();
    expect(limitedUntilMs).toBe(oldest + 3_600_000);
    const limited = { queue: "q", key: "a", untilMs: limitedUntilMs };
    await until(() => Object.values(told).flat().length > 0);
    for (const messages of Object.values(told)) expect([[], [limited]]).toContainEqual(messages);
    expect(onChannel.filter(({ untilMs }) => untilMs === limitedUntilMs)).toEqual(Object.values(told).flat());
    const fourth = await queue.explain("4");
    expect(fourth?.message).toBe(
      `key "a": first in line, limited until ${new Date(limitedUntilMs).toISOString()}: 3 of 3 starts in 3600 s`,
    );
    await first.close();
    lab.worker(undefined, hourly);
    await queue.addBulk(jobs(20, (i) => `later ${i}`));
    await finished(queue, 43);
    expect(ranOfA()).toBe(3);
  });

  it("lets no more jobs start in any window of its duration, and starts the waiting jobs in order afterwards", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    for (let n = 0; n < 2; n++) lab.worker(undefined, rules);
    await queue.addBulk(jobs(8, () => "a"));
    const starts = await startsUntil(lab, "a", async () => (await queue.getCompletedCount()) === 8);
    expectApart(starts, rate.max, rate.duration);
    expect(lab.inversions()).toEqual([]);
    expect(lab.overlaps()).toEqual([]);
    await until(async () => (await lab.leftovers()).length === 0);
  });

  it("has waiting jobs judged again within an hour, because a job's place in line may be lost", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const running = gate();
    const daily = { ...rules, recheckInterval: 15_000, perKey: { rate: { max: 1, duration: 86_400_000 } } };
    lab.worker(async ({ data }) => (data.i === 0 ? await running.passed : undefined), daily);
    const dueOf = async (id: string): Promise<number> =>
      Math.floor(Number(await lab.redis.zscore("bull:q:delayed", id)) / 4_096);
    await queue.addBulk(jobs(2, () => "a"));
    await until(async () => (await queue.getDelayedCount()) === 1);
    running.open();
    await finished(queue, 1);
    await queue.add("job", { k: "b", i: 3 });
    await finished(queue, 2);
    await queue.add("job", { k: "b", i: 4 });
    await until(async () => (await queue.getDelayedCount()) === 2);
    // One job was in the queue when its key became limited, and the other arrived later.
    for (const id of ["2", "4"]) {
      const dueMs = await dueOf(id);
      expect(dueMs).toBeGreaterThan(Date.now() + 3_000_000);
      expect(dueMs).toBeLessThanOrEqual(Date.now() + 3_600_001);
    }
    expect((await queue.getJob("4"))?.delay).toBe(3_600_001);
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
    const starts = await startsUntil(lab, "a", async () => (await queue.getCompletedCount()) === 1);
    expect(lab.ran).toHaveLength(4);
    expectApart(starts, rate.max, rate.duration);
  });

  it("is not used up by a job that goes back because plain code holds its lock", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const worker = lab.worker(undefined, {
      ...rules,
      timeout: SHORT_MS,
      recheckInterval: 100,
      perKey: { rate: { max: 1, duration: 3_600_000 } },
    });
    const yielded: unknown[] = [];
    worker.on("yielded", (message) => yielded.push(message));
    const held = await redlockOn(lab, lab.connection).acquire("a");
    await queue.addBulk(jobs(2, () => "a"));
    await until(() => yielded.length > 3);
    // While the job waits for the lock, its start does not count.
    await until(async () => (await countedStarts(lab, "a")).length === 0);
    await held.release();
    await finished(queue, 1);
    await until(async () => (await countedStarts(lab, "a")).length === 1);
    expect(await queue.explain("2")).toMatchObject({
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
    const isOver = async (): Promise<boolean> => (await queue.getCompletedCount()) === 3;
    const [ofA, ofB] = await Promise.all(["a", "b"].map((key) => startsUntil(lab, key, isOver)));
    expectApart(ofA ?? [], 1, 2_000);
    expectApart(ofB ?? [], 1, 2_000);
    expect(lab.ran).toHaveLength(3);
  });

  it("is reported if two workers do not agree on it", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker(undefined, rules);
    await until(async () => (await queue.setups()).length === 1);
    lab.worker();
    await until(async () => (await queue.check()).length > 0);
    const [finding] = await queue.check();
    expect(finding).toMatchObject({ code: "OTHER_PER_KEY", severity: "error" });
    expect(finding?.message).toContain('{"rate":{"max":3,"duration":3000}}');
    expect(finding?.message).toContain("how many jobs of a key may run, start or wait");
    await until(() => lab.errors.some((error) => error instanceof WorkerMismatchError));
  });
});

describe("the rate of a key, if clocks differ", () => {
  it("is measured by the clock of Redis", async () => {
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
