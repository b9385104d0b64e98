/**
 * Costs in requests and commands, never in time: for each job, on free and on contended keys, with any number of
 * waiting jobs.
 */
import { Redlock } from "@x/redlock-core";
import { startCluster, startRedis, until } from "@x/test-support";
import { ExclusiveWorker } from "@x/workers";
import { Queue } from "bullmq";
import { Cluster } from "ioredis";
import { expect, it } from "vitest";
import { type Data, finished, gate, jobs, Lab, redlockOn } from "./support/lab.ts";

interface Costs {
  readonly requests: number;
  readonly commands: number;
}

/** The requests to the queue's Redis: scripts, and the commands inside them. */
async function costs(lab: Lab): Promise<Costs> {
  const stats = await lab.redis.info("commandstats");
  const calls = [...stats.matchAll(/cmdstat_(\w+):calls=(\d+)/g)].map(
    ([, name, count]) => [name, Number(count)] as const,
  );
  const sum = (names: (name: string | undefined) => boolean): number =>
    calls.filter(([name]) => names(name)).reduce((total, [, count]) => total + count, 0);
  return {
    requests: sum((name) => name === "evalsha" || name === "eval"),
    commands: sum((name) => name !== "evalsha" && name !== "eval" && name !== "info" && name !== "config"),
  };
}

async function add(queue: Queue<Data>, count: number, keyOf: (i: number) => unknown, ms = 0): Promise<void> {
  for (let i = 0; i < count; i += 5_000) {
    await queue.addBulk(
      Array.from({ length: Math.min(5_000, count - i) }, (_, n) => ({
        name: "job",
        data: { k: keyOf(i + n), i: i + n, ms },
      })),
    );
  }
}

it.each([
  ["free keys", 2_000, (i: number) => `k${i}`],
  ["contended keys", 2_000, (i: number) => `k${i % 20}`],
] as const)("sends about one request per job to the queue's Redis: %s", async (_name, count, keyOf) => {
  await using locks = await startRedis();
  await using lab = await Lab.start();
  const redlock = new Redlock({ path: locks.path }, { ttl: 10_000 });
  lab.defer(async () => await redlock.close());
  const queue = lab.queue();
  await add(queue, count, keyOf);
  await lab.redis.config("RESETSTAT");
  const done = gate();
  const worker = lab.worker(undefined, { redlock, concurrency: 50 });
  worker.on("completed", () => {
    if (lab.ran.length === count && lab.ran.every((run) => run.endedMs !== undefined)) done.open();
  });
  await done.passed;
  const { requests } = await costs(lab);
  expect(requests / count).toBeLessThan(1.15);
  expect(lab.overlaps()).toEqual([]);
  expect(lab.inversions()).toEqual([]);
});

it("does not let 5,000 jobs of a hot key hold up 1,000 jobs of other keys", async () => {
  await using lab = await Lab.start();
  const queue = lab.queue();
  await add(queue, 5_000, () => "hot", 1);
  await add(queue, 1_000, (i) => `cold${i}`, 1);
  const othersDone = gate();
  let [hot, cold, hotWhenOthersWereDone] = [0, 0, 0];
  const worker = lab.worker(
    (job) => {
      if (job.data.k === "hot") hot += 1;
      else cold += 1;
      if (cold < 1_000) return;
      hotWhenOthersWereDone ||= hot;
      othersDone.open();
    },
    { concurrency: 10 },
  );
  await othersDone.passed;
  expect(hotWhenOthersWereDone).toBeLessThan(2_500);
  expect(lab.overlaps()).toEqual([]);
  expect(lab.inversions()).toEqual([]);
  await worker.close(true);
});

it("starts the jobs that it has taken, and closes, while it parks a burst of jobs of one key", async () => {
  const burst = 30_000;
  await using lab = await Lab.start();
  const queue = lab.queue();
  await queue.addBulk(jobs(1, () => "other"));
  await add(queue, burst, () => "hot");
  const started = gate();
  const running = gate();
  const worker = lab.worker(
    async () => {
      started.open();
      await running.passed;
    },
    { concurrency: 10 },
  );
  lab.defer(async () => running.open());
  await started.passed;
  expect(await queue.getDelayedCount()).toBeLessThan(burst / 2);
  await until(async () => (await queue.getActiveCount()) === 2);
  const closed = worker.close();
  running.open();
  await closed;
  expect(await queue.getDelayedCount()).toBeLessThan(burst / 2);
  expect(lab.errors).toEqual([]);
});

it("emits drained when the queue is drained, and not while it parks a burst of jobs of one key", async () => {
  const burst = 20_000;
  await using lab = await Lab.start();
  const queue = lab.queue();
  await add(queue, burst, () => "hot");
  const running = gate();
  const worker = lab.worker(async () => await running.passed, { concurrency: 2, autorun: false });
  lab.defer(async () => running.open());
  const waiting: Promise<number>[] = [];
  worker.on("drained", () => void waiting.push(queue.getWaitingCount()));
  void worker.run();
  await until(async () => (await queue.getDelayedCount()) === burst - 1);
  await until(() => waiting.length > 0);
  expect(await Promise.all(waiting)).toEqual([0]);
});

it("returns the next job from a manual fetch, even while a burst of jobs of one key is parked", async () => {
  await using lab = await Lab.start();
  const queue = lab.queue();
  await add(queue, 3_000, () => "hot");
  await queue.addBulk(jobs(1, () => "other"));
  const worker = lab.worker(undefined, { autorun: false });
  expect((await worker.getNextJob("one", { block: false }))?.data.k).toBe("hot");
  expect((await worker.getNextJob("two", { block: false }))?.data.k).toBe("other");
  await Promise.all(
    (await queue.getActive()).map(
      async (job) => await job.moveToCompleted("", job.data.k === "hot" ? "one" : "two", false),
    ),
  );
});

/** The nightly run asks for 100,000. */
const LINE = Number(process.env["LINE_JOBS"] ?? 30_000);

it(`costs the same per job with 100 and with ${LINE} jobs in line`, { timeout: 120_000 }, async () => {
  const perJob: Costs[] = [];
  for (const backlog of [100, LINE]) {
    await using locks = await startRedis();
    await using lab = await Lab.start();
    const redlock = new Redlock({ path: locks.path }, { ttl: 10_000 });
    lab.defer(async () => await redlock.close());
    const queue = lab.queue();
    await add(queue, backlog + 200, () => "a");
    const start = gate();
    const measured = gate();
    let counted: Costs = { requests: 0, commands: 0 };
    const worker = lab.worker(
      async (job) => {
        if (job.data.i === 0) await start.passed;
        if (job.data.i === 80) measured.open();
        if (job.data.i >= 80) await new Promise(() => {});
      },
      { redlock, concurrency: 2, recheckInterval: 600_000 },
    );
    await until(async () => (await queue.getDelayedCount()) === backlog + 199, 60_000);
    await lab.redis.config("RESETSTAT");
    start.open();
    await measured.passed;
    counted = await costs(lab);
    perJob.push({ requests: counted.requests / 80, commands: counted.commands / 80 });
    expect(lab.inversions()).toEqual([]);
    await worker.close(true);
  }
  const [small, large] = perJob;
  if (small === undefined || large === undefined) throw new Error("two runs were made");
  expect(large.requests).toBeLessThan(small.requests * 1.3);
  expect(large.commands).toBeLessThan(small.commands * 1.3);
});

/** Stores a holder for each of this number of keys. Each hundredth holder is a job that no longer exists. */
async function occupy({ redis }: Lab, keys: number): Promise<void> {
  const pipeline = redis.pipeline();
  for (let i = 0; i < keys; i += 1) {
    pipeline.hset("bull:q:lane:holders", `k${i}`, `job${i}`);
    if (i % 100 > 0) pipeline.hset(`bull:q:job${i}`, "lk", `k${i}`);
  }
  await pipeline.exec();
}

it("looks at a limited number of keys at a time, and continues there the next time", async () => {
  await using lab = await Lab.start();
  const { redis } = lab;
  // Scripts that acquire locks would be proved with a mark.
  const redlock = redlockOn(lab, lab.connection);
  const gone = async (keys: number): Promise<number> => keys - (await redis.hlen("bull:q:lane:holders"));
  /** Measures one check as a worker makes it when it starts. The check notes its turn again at its end. */
  const look = async (): Promise<{ readonly commands: number; readonly cursor: string }> => {
    await redis.config("RESETSTAT");
    const worker = lab.worker(undefined, { redlock, recheckInterval: 3_600_000, autorun: false });
    await until(async () => /cmdstat_set:calls=2,/.test(await redis.info("commandstats")));
    const { commands } = await costs(lab);
    await worker.close();
    return { commands, cursor: (await redis.get("bull:q:lane:sweep"))?.split(" ")[1] ?? "" };
  };
  await occupy(lab, 1_000);
  const all = await look();
  expect([all.cursor, await gone(1_000)]).toEqual(["0", 10]);

  await redis.flushall();
  await occupy(lab, 20_000);
  const first = await look();
  expect(first.cursor).not.toBe("0");
  // A page has slightly more keys than requested.
  expect(first.commands).toBeLessThan(all.commands * 6);
  expect(await gone(20_000)).toBeGreaterThanOrEqual(30);
  expect(await gone(20_000)).toBeLessThan(80);
  let looks = 1;
  while ((await look()).cursor !== "0") looks += 1;
  expect(looks).toBeLessThanOrEqual(4);
  expect(await gone(20_000)).toBe(200);
});

it("judges the first job in line less often if thousands of keys are busy", async () => {
  await using lab = await Lab.start();
  const queue = lab.queue();
  const delays: (number | undefined)[] = [];
  for (const key of ["few", "many"]) {
    await queue.addBulk(jobs(2, () => key));
    const worker = lab.worker(undefined, { recheckInterval: 1_000, autorun: false });
    await worker.getNextJob("one", { block: false });
    await worker.getNextJob("other", { block: false });
    const [parked] = await queue.getDelayed(0, 0);
    delays.push(parked?.delay);
    await worker.close();
    await lab.redis.zrem("bull:q:delayed", String(parked?.id));
    await occupy(lab, 5_050);
  }
  expect(delays).toEqual([1_000, 6_000]);
});

it("runs on a Redis Cluster with a hash-tagged prefix", async () => {
  await using cluster = await startCluster();
  await using lab = await Lab.start();
  const connect = (): Cluster =>
    new Cluster(
      cluster.nodes.map(({ host, port }) => ({ host, port })),
      { redisOptions: { maxRetriesPerRequest: null } },
    );
  const [forQueue, forWorkers] = [connect(), connect()];
  const queue = new Queue<Data>("q", { connection: forQueue, prefix: "{bull}" });
  const running = new Set<string>();
  const clashes: string[] = [];
  const starts = new Map<string, number[]>();
  const workers = [1, 2].map(() => {
    const worker = new ExclusiveWorker<Data>(
      "q",
      async (job) => {
        const key = String(job.data.k);
        if (running.has(key)) clashes.push(key);
        running.add(key);
        starts.set(key, [...(starts.get(key) ?? []), job.data.i]);
        await lab.redis.ping();
        running.delete(key);
      },
      { connection: forWorkers, prefix: "{bull}", key: "k", concurrency: 10 },
    );
    worker.on("error", (error) => lab.errors.push(error));
    return worker;
  });
  try {
    await queue.addBulk(jobs(200, (i) => `k${i % 6}`));
    await finished(queue, 200, 30_000);
    expect(clashes).toEqual([]);
    for (const each of starts.values()) expect(each).toEqual([...each].sort((a, b) => a - b));
    expect(lab.errors).toEqual([]);
    // Two keys in two slots cannot be locked together: such a job fails instead of waiting forever.
    await queue.addBulk(jobs(1, () => ["k1", "k2"]));
    await finished(queue, 201);
    expect((await queue.getFailed())[0]?.failedReason).toMatch(/must share a hash slot/);
  } finally {
    await Promise.all(workers.map(async (worker) => await worker.close()));
    await queue.close();
    await Promise.all([forQueue.quit(), forWorkers.quit()]);
  }
});
