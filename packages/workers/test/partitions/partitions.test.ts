/** A queue in partitions on one server: the promises of one queue, one concurrency, and processes that disagree. */

import { setTimeout as delay } from "node:timers/promises";
import { inspect } from "node:util";
import { type Clock, systemClock } from "@x/redlock-core";
import { until } from "@x/test-support";
import { DivisionMismatchError, ExclusionRefusedError, type ExclusiveWorker, JobKeyError } from "@x/workers";
import { PartitionedQueue, PartitionedWorker, type PartitionedWorkerOptions, partitionOf } from "@x/workers/partitions";
import { Worker } from "bullmq";
import { describe, expect, it, vi } from "vitest";
import { queueRedisOf } from "../../src/bullmq/bullmq.ts";
import { Door, KNOWN_AFTER_MS, LayoutRecord } from "../../src/partitions/layout.ts";
import { divisionOf } from "../../src/partitions/options.ts";
import { moveQueue, repeatOf } from "../../src/partitions/repartition.ts";
import { type Data, gate, jobs, Lab, type Ran } from "../support/lab.ts";

const PARTITIONS = 4;

function queueOf(lab: Lab, partitions = PARTITIONS): PartitionedQueue<Data> {
  const queue = new PartitionedQueue<Data>("q", { partitions, key: "k", connection: lab.connection });
  for (const each of queue.queues) each.on("error", () => {});
  lab.defer(async () => await queue.close());
  return queue;
}

function workerOf(
  lab: Lab,
  options: Partial<PartitionedWorkerOptions<Data, string>> = {},
  body: (data: Data) => unknown = async ({ ms }) => await delay(ms ?? 2),
): PartitionedWorker<Data> {
  const worker = new PartitionedWorker<Data>(
    "q",
    async (job, _token, _signal, lock) => {
      const record: Ran = {
        jobId: `${job.queueName}:${job.id}`,
        key: String(job.data.k),
        i: job.data.i,
        fencingToken: lock.fencingToken,
        startedMs: performance.now(),
        endedMs: undefined,
      };
      lab.ran.push(record);
      try {
        return await body(job.data);
      } finally {
        record.endedMs = performance.now();
      }
    },
    { partitions: PARTITIONS, key: "k", connection: lab.connection, concurrency: 5, ...options },
  );
  worker.on("error", (error) => lab.errors.push(error));
  lab.defer(async () => await worker.close());
  return worker;
}

/** A key of the partition. */
function keyIn(partition: number, name = "k"): string | undefined {
  const keys = Array.from({ length: 99 }, (_, i) => `${name}${i}`);
  return keys.find((key) => partitionOf(key, PARTITIONS) === partition);
}

/** The greatest number of runs at one time. */
function most({ ran }: Lab): number {
  const steps = ran.flatMap(({ startedMs, endedMs = Number.POSITIVE_INFINITY }) => [
    { at: startedMs, by: 1 },
    { at: endedMs, by: -1 },
  ]);
  let [now, top] = [0, 0];
  for (const { by } of steps.toSorted((x, y) => x.at - y.at || x.by - y.by)) top = Math.max(top, (now += by));
  return top;
}

describe("a queue in partitions", () => {
  it("runs one job of a key at a time, in order, and never exceeds the concurrency shared by all partitions", async () => {
    await using lab = await Lab.start();
    const queue = queueOf(lab);
    await queue.addBulk(jobs(600, (i) => `key${i % 37}`));
    const spread = await Promise.all(queue.queues.map(async (each) => await each.getWaitingCount()));
    expect(spread.filter((count) => count > 0)).toHaveLength(PARTITIONS);
    workerOf(lab);
    workerOf(lab);
    await lab.ended(600);
    expect(lab.overlaps()).toEqual([]);
    expect(lab.inversions()).toEqual([]);
    expect(most(lab)).toBeLessThanOrEqual(10);
    await until(async () => (await queue.getJobCounts()).completed === 600);
    expect(lab.errors).toEqual([]);
  });

  it("runs with a concurrency of one, with any number of partitions", async () => {
    await using lab = await Lab.start();
    const queue = queueOf(lab);
    await queue.addBulk(jobs(200, (i) => `key${i % 20}`, 0));
    workerOf(lab, { concurrency: 1 });
    await lab.ended(200);
    expect(most(lab)).toBe(1);
    expect(lab.inversions()).toEqual([]);
  });

  it("starves no partition while the others have backlogs", async () => {
    await using lab = await Lab.start();
    const queue = queueOf(lab);
    const rare = keyIn(0, "rare");
    const many = Array.from({ length: 400 }, (_, i) => `many${i}`).filter((key) => partitionOf(key, PARTITIONS) !== 0);
    const backlog = 20 * many.length;
    await queue.addBulk(jobs(backlog, (i) => many[i % many.length], 5));
    workerOf(lab, { concurrency: 2 });
    await until(() => lab.ran.length > 20);
    await queue.add("job", { k: rare, i: 0 });
    await until(() => lab.ran.some(({ key }) => key === rare));
    expect(lab.ran.length).toBeLessThan(backlog / 2);
  });

  it("is served by an idle process when a busy process was notified of a job first", async () => {
    await using lab = await Lab.start();
    const queue = queueOf(lab);
    const end = gate();
    const [long, short] = [keyIn(0), keyIn(1)];
    const options = { concurrency: 1, drainDelay: 300 };
    workerOf(lab, options, async () => await end.passed);
    lab.defer(async () => end.open());
    const blocked = async (count: number): Promise<void> =>
      await until(async () => ((await lab.redis.client("LIST")) as string).split("cmd=bzpopmin").length === count + 1);
    await blocked(PARTITIONS);
    await queue.add("job", { k: long, i: 0 });
    await until(() => lab.ran.length === 1);
    await blocked(PARTITIONS);
    workerOf(lab, options);
    await blocked(2 * PARTITIONS);
    await queue.add("job", { k: short, i: 0 });
    await until(() => lab.ran.some(({ key }) => key === short));
  });

  it("starts no job when it is paused while a partition waits for a slot", async () => {
    await using lab = await Lab.start();
    const queue = queueOf(lab);
    const end = gate();
    const [first, second] = [keyIn(0), keyIn(1)];
    const worker = workerOf(lab, { concurrency: 1 }, async () => await end.passed);
    lab.defer(async () => end.open());
    const wakeUps = async (): Promise<number> => (await lab.redis.keys("*:marker")).length;
    await queue.add("job", { k: first, i: 0 });
    await until(() => lab.ran.length === 1);
    await queue.add("job", { k: second, i: 0 });
    // The worker of the other partition passes its wake-up on, and waits for the slot.
    await until(async () => (await wakeUps()) > 0);
    await worker.pause(true);
    end.open();
    await lab.ended(1);
    await lab.anotherRuns();
    expect(lab.ran.map(({ key }) => key)).toEqual([first]);
    await worker.resume();
    await lab.ended(2);
  });

  it("is paused, resumed, and closed as one", async () => {
    await using lab = await Lab.start();
    const queue = queueOf(lab);
    const worker = workerOf(lab);
    await worker.waitUntilReady();
    await worker.pause();
    await queue.addBulk(jobs(20, (i) => `key${i}`));
    await lab.anotherRuns();
    expect(lab.ran).toEqual([]);
    await worker.resume();
    await lab.ended(20);
    const told: string[] = [];
    worker.on("closing", () => void told.push("closing"));
    worker.on("closed", () => void told.push("closed"));
    await Promise.all([worker.close(), worker.close()]);
    expect(told).toEqual(["closing", "closed"]);
    await queue.add("job", { k: "late", i: 0 });
    await lab.anotherRuns();
    expect(lab.ran).toHaveLength(20);
  });

  it("answers questions, and runs nothing, without a processor", async () => {
    await using lab = await Lab.start();
    const queue = queueOf(lab);
    await queue.addBulk(jobs(8, (i) => `key${i}`));
    const operator = new PartitionedWorker<Data>("q", null, {
      partitions: PARTITIONS,
      key: "k",
      connection: lab.connection,
    });
    const errors: unknown[] = [];
    operator.on("error", (error) => errors.push(error));
    lab.defer(async () => await operator.close());
    expect(await queue.pauseKey("key1")).toBe(true);
    expect((await queue.listKeys()).map(({ key }) => key)).toEqual(["key1"]);
    expect(await queue.setups()).toEqual([]);
    expect((await queue.getJobCounts("waiting")).waiting).toBe(8);
    expect(operator.isRunning()).toBe(false);
    expect(errors).toEqual([]);
  });

  it("emits the events of one queue", async () => {
    await using lab = await Lab.start();
    const queue = queueOf(lab);
    const worker = workerOf(lab, {}, ({ i }) => {
      if (i === 3) throw new Error("no");
      return i;
    });
    const told: string[] = [];
    worker.on("completed", (job, result) => told.push(`completed ${String(job.data.i)} ${String(result)}`));
    worker.on("failed", (job, error) => told.push(`failed ${String(job?.data.i)} ${error.message}`));
    const drained = new Promise<void>((resolve) => {
      worker.on("drained", resolve);
    });
    await queue.addBulk(jobs(6, (i) => `key${i}`));
    await until(() => told.length === 6);
    expect(told.toSorted()).toEqual([
      "completed 0 0",
      "completed 1 1",
      "completed 2 2",
      "completed 4 4",
      "completed 5 5",
      "failed 3 no",
    ]);
    await drained;
  });

  it("emits an error to a listener, and prints it like BullMQ only without a listener", async () => {
    await using lab = await Lab.start();
    using printed = vi.spyOn(console, "error").mockImplementation(() => {});
    const worker = workerOf(lab, { autorun: false });
    const error = new Error("as it should");
    worker.workers[1]?.emit("error", error);
    expect(lab.errors).toEqual([error]);
    expect(printed).not.toHaveBeenCalled();

    const { connection } = lab;
    const alone = new PartitionedWorker<Data>("q", null, { partitions: PARTITIONS, key: "k", connection });
    lab.defer(async () => await alone.close());
    alone.workers[1]?.emit("error", error);
    expect(printed).toHaveBeenCalledExactlyOnceWith(error);
  });

  it("leaves the failed command, which may contain a password, out of every error and all output", async () => {
    await using lab = await Lab.start();
    using printed = vi.spyOn(console, "error").mockImplementation(() => {});
    const refused = (): Error =>
      Object.assign(new Error("WRONGPASS"), { command: { name: "auth", args: ["planted-secret"] } });
    const queue = new PartitionedQueue<Data>("q", { partitions: PARTITIONS, key: "k", connection: lab.connection });
    lab.defer(async () => await queue.close());
    const worker = workerOf(lab, { autorun: false });
    queue.queues[1]?.emit("error", refused());
    expect(printed).toHaveBeenCalledTimes(1);
    const told: unknown[] = [];
    queue.on("error", (error) => told.push(error));
    queue.queues[1]?.emit("error", refused());
    worker.workers[1]?.emit("error", refused());
    expect(printed).toHaveBeenCalledTimes(1);
    for (const each of queue.queues) {
      for (const method of ["add", "addBulk", "getJob", "count", "upsertJobScheduler"] as const) {
        vi.spyOn(each, method).mockRejectedValue(refused());
      }
    }
    const data = { k: "a", i: 0 };
    const rejected = await Promise.allSettled([
      queue.add("job", data),
      queue.addBulk([{ name: "job", data }]),
      queue.getJob("1"),
      queue.getJob("1", { key: "a" }),
      queue.count(),
      queue.upsertJobScheduler("often", { every: 1_000 }, { name: "job", data }),
    ]);
    expect(rejected.map((each) => String((each as PromiseRejectedResult).reason))).toEqual(
      Array.from({ length: 6 }, () => "Error: WRONGPASS"),
    );
    const all = [...printed.mock.calls.flat(), ...told, ...lab.errors, ...rejected];
    expect(all).toHaveLength(9);
    expect(inspect(all, { depth: 9, showHidden: true })).not.toContain("planted-secret");
  });

  it("reports whether it runs or is paused, and runs once, as BullMQ's worker does", async () => {
    await using lab = await Lab.start();
    const worker = workerOf(lab, { autorun: false });
    const states = (): boolean[] => [worker.isRunning(), worker.isPaused()];
    expect(states()).toEqual([false, false]);
    const ended = worker.run();
    await expect(worker.run()).rejects.toThrow("Worker is already running.");
    await until(() => worker.isRunning());
    await expect(worker.run()).rejects.toThrow("Worker is already running.");
    await worker.pause();
    await ended;
    expect(states()).toEqual([false, true]);
    await worker.resume();
    expect(states()).toEqual([true, false]);
    await worker.close();
    expect(states()).toEqual([false, false]);
    expect(PartitionedWorker.RateLimitError().message).toBe(Worker.RateLimitError().message);
  });

  it("does not report that it runs while a partition cannot write to its Redis, and does not start again", async () => {
    await using lab = await Lab.start();
    const worker = workerOf(lab, { autorun: false });
    let starts = 0;
    worker.on("ready", () => (starts += 1));
    const ended = worker.run();
    await until(() => worker.isRunning());
    for (const each of worker.workers) {
      using outage = vi.spyOn(each, "isRunning").mockReturnValue(false);
      expect(worker.isRunning()).toBe(false);
      await expect(worker.run()).rejects.toThrow("Worker is already running.");
      expect(outage).toHaveBeenCalled();
    }
    expect(worker.isRunning()).toBe(true);
    for (const each of worker.workers) vi.spyOn(each, "isRunning").mockReturnValue(false);
    await expect(worker.run()).rejects.toThrow("Worker is already running.");
    expect(starts).toBe(1);
    await worker.close();
    await ended;
  });

  it("continues, pauses and closes even if listeners throw, as BullMQ's worker does", async () => {
    await using lab = await Lab.start();
    using printed = vi.spyOn(console, "error").mockImplementation(() => {});
    const queue = queueOf(lab);
    const worker = workerOf(lab, { concurrency: 1 });
    const fault = new Error("a listener's own");
    for (const event of [
      "active",
      "completed",
      "locked",
      "released",
      "ready",
      "paused",
      "closing",
      "closed",
    ] as const) {
      worker.on(event, () => {
        throw fault;
      });
    }
    const late = new Error("of the listener of errors");
    worker.on("error", (error) => {
      if (error === fault) throw late;
    });
    await queue.addBulk(jobs(9, (i) => `key${i % 3}`));
    await until(async () => (await queue.getJobCounts("completed"))["completed"] === 9);
    expect(lab.ran).toHaveLength(9);
    expect(await queue.getJobCounts("failed")).toEqual({ failed: 0 });
    await worker.pause();
    await worker.close();
    expect(new Set(lab.errors)).toEqual(new Set([fault]));
    expect(new Set(printed.mock.calls.flat())).toEqual(new Set([late]));
  });

  it("hands out jobs that are fetched manually, without a limit", async () => {
    await using lab = await Lab.start();
    const queue = queueOf(lab);
    await queue.addBulk(jobs(2, () => keyIn(0)).concat(jobs(1, () => keyIn(1))));
    const { connection } = lab;
    const operator = new PartitionedWorker<Data>("q", null, { partitions: PARTITIONS, key: "k", connection });
    operator.on("error", (error) => lab.errors.push(error));
    lab.defer(async () => await operator.close());
    const [first, second] = operator.workers as [ExclusiveWorker<Data>, ExclusiveWorker<Data>];
    const one = await first.getNextJob("token-1");
    const other = await second.getNextJob("token-2");
    expect([one?.data.k, other?.data.k]).toEqual([keyIn(0), keyIn(1)]);
    await one?.moveToCompleted(1, "token-1", false);
    const next = await first.getNextJob("token-3");
    expect(next?.data).toEqual({ k: keyIn(0), i: 1 });
    await next?.moveToCompleted(1, "token-3", false);
    await other?.moveToCompleted(1, "token-2", false);
    expect(lab.errors).toEqual([]);
  });

  it("fails a job whose key function is asynchronous, and handles the rejection of the function's promise", async () => {
    await using lab = await Lab.start();
    const queue = queueOf(lab);
    const unhandled: unknown[] = [];
    const note = (error: unknown): void => void unhandled.push(error);
    process.on("unhandledRejection", note);
    lab.defer(async () => void process.off("unhandledRejection", note));
    const key = (async () => await Promise.reject(new Error("late"))) as never;
    const worker = workerOf(lab, { key });
    const failed = new Promise<Error>((resolve) => {
      worker.on("failed", (_job, error) => resolve(error));
    });
    await queue.add("job", { k: "a", i: 0 });
    expect((await failed).message).toMatch(/its key function returned a promise, but must be synchronous$/);
    const { connection } = lab;
    const producer = new PartitionedQueue<Data>("q", { partitions: PARTITIONS, key, connection });
    lab.defer(async () => await producer.close());
    await expect(producer.add("job", { k: "a", i: 1 })).rejects.toThrow(
      /^the job's key function returned a promise, but must be synchronous$/,
    );
    expect(unhandled).toEqual([]);
  });

  it("fails a job that was added to the wrong partition, and does not run it", async () => {
    await using lab = await Lab.start();
    const queue = queueOf(lab);
    const worker = workerOf(lab);
    const failed = new Promise<Error>((resolve) => {
      worker.on("failed", (_job, error) => resolve(error));
    });
    const partition = partitionOf("42", PARTITIONS);
    await queue.queues[(partition + 1) % PARTITIONS]?.add("job", { k: "42", i: 0 });
    const error = await failed;
    expect(error).toBeInstanceOf(JobKeyError);
    expect(error.message).toContain(
      `belongs to partition ${partition}, but the job was added to partition ${(partition + 1) % PARTITIONS}`,
    );
    expect(lab.ran).toEqual([]);
  });

  it("reports its keys, jobs and counts over all partitions", async () => {
    await using lab = await Lab.start();
    const queue = queueOf(lab);
    const end = gate();
    workerOf(lab, {}, async () => await end.passed);
    lab.defer(async () => end.open());
    const keys = ["a", "b", "c", "d"];
    const added = await queue.addBulk(jobs(8, (i) => keys[i % 4]));
    await until(() => lab.ran.length === 4);
    await until(async () => (await queue.counts()).parked === 4);
    const listed = await queue.listKeys();
    expect(listed.map(({ key, parked }) => `${key} ${parked}`).toSorted()).toEqual(keys.map((key) => `${key} 1`));
    // The keys to read are in different partitions.
    const whole = await queue.overview({ keys: 3, read: ["d", "a", "b"] });
    expect(whole).toMatchObject({ active: 4, keys: [{}, {}, {}] });
    expect(whole.readings.map(({ key, parked }) => `${key} ${parked}`)).toEqual(["d 1", "a 1", "b 1"]);
    const lines = (await queue.exportPrometheusMetrics({ env: "test" })).split("\n");
    expect(lines).toContain('x_workers_jobs{queue="q", env="test", state="parked"} 4');
    expect(lines).toContain('x_workers_longest_line{queue="q", env="test"} 1');
    expect(lines).toContain('bullmq_job_count{queue="q", state="active", env="test"} 4');
    expect(new Set(lines).size).toBe(lines.length);
    expect(await queue.setups()).toMatchObject([{ key: "k", onFailure: "skip" }]);
    expect(await queue.jobsOf("a")).toMatchObject({ holder: added[0]?.id, parked: [added[4]?.id] });
    expect((await queue.explain(String(added[4]?.id), { key: "a" }))?.verdict).toBe("parked");
    expect(
      (await queue.getJobs(["active", "delayed"], 0, 9, true)).map((job) => job.data.i).toSorted((a, b) => a - b),
    ).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
    expect((await queue.getJob(String(added[2]?.id), { key: "c" }))?.data.i).toBe(2);
  });

  it("is watched and made exclusive in all partitions, or in none", async () => {
    await using lab = await Lab.start();
    const queue = queueOf(lab);
    const end = gate();
    expect(await queue.setExclusion("watch")).toBe(true);
    workerOf(lab, { concurrency: 20 }, async () => await end.passed);
    lab.defer(async () => end.open());
    const keys = ["a", "b", "c", "d"];
    await queue.addBulk(jobs(12, (i) => keys[i % 4]));
    await until(() => lab.ran.length === 12);
    const { exclusion } = await queue.overview();
    expect(exclusion).toMatchObject({ mode: "watch", overlaps: 8, outOfOrder: 0 });
    const report = await queue.exclusion({ limit: 3 });
    expect(report).toMatchObject({ mode: "watch", overlaps: 8, overlappingKeys: 4, obstacles: [] });
    expect(report.keys.map(({ starts }) => starts)).toEqual([2, 2, 2]);
    const [one] = queue.queues;
    const plain = new Worker(String(one?.name), async () => {}, {
      connection: lab.connection,
      prefix: String(one?.opts.prefix),
    });
    plain.on("error", () => {});
    lab.defer(async () => await plain.close());
    await until(async () => (await queue.exclusion()).obstacles.length === 1);
    await expect(queue.setExclusion("on")).rejects.toThrow(ExclusionRefusedError);
    const modes = await Promise.all(queue.queues.map(async (each) => (await each.exclusion()).mode));
    expect(new Set(modes)).toEqual(new Set(["watch"]));
    await plain.close();
    await until(async () => (await queue.exclusion()).obstacles.length === 0);
    expect(await queue.setExclusion("on")).toBe(true);
    const after = await queue.exclusion();
    expect(after).toMatchObject({ mode: "on", overlappingKeys: 4 });
    expect(after.watchedUntilMs).toBeGreaterThanOrEqual(after.watchedSinceMs ?? Number.POSITIVE_INFINITY);
  });

  it("puts a flow and a job scheduler into the partition of their key", async () => {
    await using lab = await Lab.start();
    const queue = queueOf(lab);
    const worker = workerOf(lab);
    const flow = await queue.addFlow({
      name: "parent",
      data: { k: "{t}sum", i: 2 },
      children: [
        { name: "child", queueName: "q", data: { k: "{t}a", i: 0 } },
        { name: "child", queueName: "q", data: { k: "{t}b", i: 1 } },
      ],
    });
    expect(flow.job.queueName).toBe(`{q-${partitionOf("t", PARTITIONS)}of${PARTITIONS}}`);
    await lab.ended(3);
    expect(lab.ran.at(-1)?.key).toBe("{t}sum");
    await expect(
      queue.addFlow({
        name: "p",
        data: { k: "42", i: 0 },
        children: [{ name: "c", queueName: "q", data: { k: "b", i: 0 } }],
      }),
    ).rejects.toThrow(/must belong to one partition, got/);

    await queue.upsertJobScheduler("nightly", { pattern: "0 3 * * *" }, { name: "tick", data: { k: "a", i: 9 } });
    await queue.upsertJobScheduler("nightly", { pattern: "0 4 * * *" }, { name: "tick", data: { k: "b", i: 9 } });
    const schedulers = await queue.getJobSchedulers();
    expect(schedulers.map(({ key, pattern }) => [key, pattern])).toEqual([["nightly", "0 4 * * *"]]);
    expect(await queue.removeJobScheduler("nightly")).toBe(true);
    await worker.close();
  });
});

describe("processes with different numbers of partitions", () => {
  it("detect it: a producer is refused, and a worker runs nothing and reports an error", async () => {
    await using lab = await Lab.start();
    const queue = queueOf(lab, 4);
    await queue.add("job", { k: "a", i: 0 });
    const other = queueOf(lab, 8);
    await expect(other.add("job", { k: "a", i: 1 })).rejects.toThrow(DivisionMismatchError);
    await expect(other.add("job", { k: "a", i: 1 })).rejects.toThrow(
      "this process has 8 partitions, but the queue has 4: set partitions to 4 here, or move the queue here with moveFrom(4)",
    );
    workerOf(lab, { partitions: 8 });
    await until(() => lab.errors.length === 1);
    expect(lab.errors[0]).toBeInstanceOf(DivisionMismatchError);
    expect((await other.check()).map(({ code }) => code)).toEqual(["OTHER_PARTITIONS"]);
    expect(await queue.check()).toEqual([]);
    expect(await other.count()).toBe(0);
    expect(lab.ran).toEqual([]);
  });

  it("detect that they name different servers", async () => {
    await using lab = await Lab.start();
    await queueOf(lab).add("job", { k: "a", i: 0 });
    const both = [lab.connection, { ...lab.connection, db: 1 }];
    const other = new PartitionedQueue<Data>("q", { partitions: PARTITIONS, key: "k", connection: both });
    lab.defer(async () => await other.close());
    await expect(other.add("job", { k: "a", i: 1 })).rejects.toThrow(
      /the queue is on 1 servers, not on 2: name the same servers in every process \(connection\)$/,
    );
  });

  it("are told which number to move from, and which move to finish first", async () => {
    await using lab = await Lab.start();
    const [four, seven, nine] = [queueOf(lab, 4), queueOf(lab, 7), queueOf(lab, 9)];
    await expect(seven.moveFrom(4)).rejects.toThrow(/no partitions yet: add jobs, there is nothing to move$/);
    await four.add("job", { k: "a", i: 0 });
    await expect(seven.moveFrom(5)).rejects.toMatchObject({ code: "DIVISION_MISMATCH", name: "DivisionMismatchError" });
    await expect(seven.moveFrom(5)).rejects.toThrow(
      /moveFrom\(5\) was called, but the queue has 4 partitions: call moveFrom\(4\)$/,
    );
    await expect(seven.moveFrom(4, { signal: AbortSignal.abort() })).rejects.toThrow(/abort/i);
    // The refused call has announced nothing.
    await expect(nine.moveFrom(5)).rejects.toThrow(/has 4 partitions: call moveFrom\(4\)$/);
    await seven.moveFrom(4, { signal: AbortSignal.timeout(100) }).catch(String);
    await expect(nine.moveFrom(4)).rejects.toThrow(
      /is being moved to 7: finish that first, with moveFrom\(4\) where partitions is 7$/,
    );
    await expect(nine.add("job", { k: "a", i: 1 })).rejects.toThrow(/being moved to 7: set partitions to 7 here$/);
  });

  it("move the queue: old jobs run first, then jobs added meanwhile, each once and in order", async () => {
    await using lab = await Lab.start();
    const before = queueOf(lab, 4);
    const after = queueOf(lab, 7);
    await before.addBulk(jobs(100, (i) => `key${i % 10}`));
    await before.upsertJobScheduler("often", { every: 60_000 }, { name: "tick", data: { k: "tick", i: 0 } });
    const old = workerOf(lab, { partitions: 4, concurrency: 3 }, async () => await delay(10));
    await until(() => lab.ran.length > 10);
    const left: number[] = [];
    const moved = after.moveFrom(4, { onProgress: (count) => left.push(count) });
    // The move is announced: the new producers may add jobs, and their workers wait.
    const late = Array.from({ length: 100 }, (_, i) => ({ name: "job", data: { k: `key${i % 10}`, i: 100 + i } }));
    await expect
      .poll(
        async () =>
          await after.addBulk(late).then(
            () => true,
            () => false,
          ),
      )
      .toBe(true);
    workerOf(lab, { partitions: 7 });
    expect(await moved).toBe(0);
    expect(left.at(-1)).toBe(0);
    await expect(before.add("job", { k: "a", i: 0 })).rejects.toThrow(/is being moved to 7: set partitions to 7 here$/);
    await until(() => lab.ran.filter(({ key, endedMs }) => key !== "tick" && endedMs !== undefined).length === 200);
    expect(lab.inversions()).toEqual([]);
    expect(lab.overlaps()).toEqual([]);
    expect((await after.getJobSchedulers()).map(({ key }) => key)).toEqual(["often"]);
    expect(await before.getJobSchedulers()).toEqual([]);
    await old.close();
    // Back to an earlier division: its doors open again.
    expect(await before.moveFrom(7)).toBe(0);
    await before.add("job", { k: "back", i: 0 });
    await expect(after.add("job", { k: "back", i: 1 })).rejects.toThrow(/is being moved to 4/);
  });

  it("keep the changes that producers with the new number make to a job scheduler during the move", async () => {
    await using lab = await Lab.start();
    const [two, four] = [queueOf(lab, 2), queueOf(lab, 4)];
    const template = { name: "tick", data: { k: "tick", i: 0 } };
    await two.upsertJobScheduler("changed", { pattern: "0 3 * * *" }, template);
    await two.upsertJobScheduler("same", { pattern: "0 3 * * *" }, template);
    const moved = four.moveFrom(2);
    const changed = async (): Promise<string> =>
      await four.upsertJobScheduler("changed", { pattern: "0 4 * * *" }, template).then(() => "changed", String);
    await expect.poll(changed).toBe("changed");
    expect((await two.getJobSchedulers()).map(({ key }) => key)).toContain("changed");
    expect(await moved).toBe(0);
    const found = (await four.getJobSchedulers()).map(({ key, pattern }) => `${key}: ${pattern}`);
    expect(found.toSorted()).toEqual(["changed: 0 4 * * *", "same: 0 3 * * *"]);
    expect(await two.getJobSchedulers()).toEqual([]);
  });

  it("wait until each producer knows that the old partitions are closed, and then move schedulers and count jobs", async () => {
    await using lab = await Lab.start();
    const [two, four] = [queueOf(lab, 2), queueOf(lab, 4)];
    await two.upsertJobScheduler("daily", { pattern: "0 3 * * *" }, { name: "tick", data: { k: "tick", i: 0 } });
    const steps: string[] = [];
    const isClosed = async (): Promise<boolean> => {
      const doors = await Promise.all(two.queues.map(async (queue) => await lab.redis.get(queue.toKey("closed"))));
      return doors.every((next) => next === "4");
    };
    const clock: Clock = {
      ...systemClock,
      schedule: (ms, run, options) => {
        if (ms >= 2 * KNOWN_AFTER_MS) steps.push("waits");
        return systemClock.schedule(ms, run, options);
      },
    };
    const division = divisionOf("q", { partitions: 4, connection: lab.connection });
    const parts = {
      clock,
      record: new LayoutRecord(division, queueRedisOf(four.queues[0] as object)),
      doors: four.queues.map((queue) => new Door(queueRedisOf(queue), clock)),
      onError: () => {},
      addScheduler: async () => void steps.push(`moves a scheduler, the doors are closed: ${await isClosed()}`),
    };
    const connection = { connection: lab.connection, onProgress: () => void steps.push("counts") };
    expect(await moveQueue(division, 2, parts, connection)).toBe(0);
    expect(steps).toEqual(["waits", "moves a scheduler, the doors are closed: true", "counts"]);
  });

  it("keep a job scheduler that could not be added to the new partitions", async () => {
    await using lab = await Lab.start();
    const [two, four] = [queueOf(lab, 2), queueOf(lab, 4)];
    await two.upsertJobScheduler("daily", { pattern: "0 3 * * *" }, { name: "tick", data: { k: "tick", i: 0 } });
    const target = four.queueOf("tick");
    vi.spyOn(target, "upsertJobScheduler").mockRejectedValueOnce(new Error("no answer"));
    await expect(four.moveFrom(2)).rejects.toThrow("no answer");
    expect((await two.getJobSchedulers()).map(({ key }) => key)).toEqual(["daily"]);
    expect(await four.moveFrom(2)).toBe(0);
    expect((await four.getJobSchedulers()).map(({ key }) => key)).toEqual(["daily"]);
    expect(await two.getJobSchedulers()).toEqual([]);
  });

  it("do not close the partitions to which the queue is being moved back", async () => {
    await using lab = await Lab.start();
    const [two, four] = [queueOf(lab, 2), queueOf(lab, 4)];
    await two.add("job", { k: "a", i: 0 });
    await two.drain();
    expect(await four.moveFrom(2)).toBe(0);
    await four.add("job", { k: "a", i: 1 });
    await two.moveFrom(4, { signal: AbortSignal.timeout(100) }).catch(String);
    // A process of the abandoned number moves the queue when it starts, as it did before.
    await expect(four.moveFrom(2)).rejects.toThrow(
      /moveFrom\(2\) was called, but the queue has 4 partitions and is being moved to 2: finish that first, with moveFrom\(4\) where partitions is 2$/,
    );
    await four.drain();
    expect(await two.moveFrom(4)).toBe(0);
    await two.add("job", { k: "a", i: 2 });
  });

  it("refuse to move if connection has other servers than the old partitions", async () => {
    await using lab = await Lab.start();
    await queueOf(lab, 4).add("job", { k: "a", i: 0 });
    const connection = [lab.connection, { ...lab.connection, db: 1 }];
    const two = new PartitionedQueue<Data>("q", { partitions: 8, key: "k", connection });
    lab.defer(async () => await two.close());
    await expect(two.moveFrom(4)).rejects.toThrow(/connection must have the 1 servers of the old partitions, got 2/);
    expect(
      await two.moveFrom(4, { connection: lab.connection, signal: AbortSignal.timeout(100) }).catch(String),
    ).toMatch(/Timeout|abort/i);
  });

  it("run nothing before the move, even when paused and resumed", async () => {
    await using lab = await Lab.start();
    const queue = queueOf(lab, 4);
    await queue.add("job", { k: "a", i: 0 });
    const worker = workerOf(lab, { partitions: 8 });
    await worker.pause();
    await worker.resume();
    expect(worker.isRunning()).toBe(false);
    await until(() => lab.errors.length === 1);
    expect(worker.workers.some((each) => each.isRunning())).toBe(false);
  });

  it("keep the time of a daily job scheduler", async () => {
    const day = 86_400_000;
    const next = Date.now() + 3_600_000;
    const scheduler = { key: "daily", name: "tick", every: day, next, limit: 5, iterationCount: 3 };
    expect(repeatOf(scheduler)).toEqual({ every: day, startDate: next, limit: 2 });
    expect(repeatOf({ ...scheduler, offset: 7 })).toEqual({ every: day, offset: 7, limit: 2 });
    expect(repeatOf({ ...scheduler, iterationCount: 5 })).toBeUndefined();
  });
});

describe("invalid input", () => {
  const connection = { path: "/nowhere" };
  it.each([
    ["no partitions", { key: "k", connection }, /partitions must be an integer from 1 to 1024, got undefined/],
    ["P = 0", { partitions: 0, key: "k", connection }, /partitions must be .* got 0/],
    ["no connection", { partitions: 4, key: "k" }, /connection must be an object/],
    [
      "more servers than partitions",
      { partitions: 1, key: "k", connection: [connection, connection] },
      /1 to 1 servers/,
    ],
    ["a key that is no path", { partitions: 4, key: "a..b", connection }, /key must be a path/],
  ])("is refused before any command is sent: %s", (_what, options, message) => {
    expect(() => new PartitionedQueue("q", options as never)).toThrow(message);
    expect(() => new PartitionedWorker("q", async () => {}, options as never)).toThrow(message);
  });

  it("is refused by add if the queue has no key, and by no other call", async () => {
    await using lab = await Lab.start();
    const queue = new PartitionedQueue("q", { partitions: 4, connection: lab.connection });
    lab.defer(async () => await queue.close());
    await expect(queue.add("job", { k: "a" })).rejects.toThrow('key must be given to add jobs to the queue "q"');
    expect(await queue.count()).toBe(0);
    expect(await queue.check()).toEqual([]);
  });

  it.each(["", "a:b", "{a}"])("is refused as a queue name: %j", (name) => {
    expect(() => new PartitionedQueue(name, { partitions: 4, key: "k", connection })).toThrow(RangeError);
  });

  it("of a closed queue adds no flow, and leaves no connection behind", async () => {
    await using lab = await Lab.start();
    const queue = new PartitionedQueue<Data>("q", {
      partitions: 2,
      key: "k",
      connection: { path: lab.server.path, maxRetriesPerRequest: null },
    });
    // The first job makes the producer read the queue's layout.
    await queue.add("job", { k: "a", i: 0 });
    const clients = async (): Promise<number> => ((await lab.redis.client("LIST")) as string).trim().split("\n").length;
    const adding = queue.addFlow({ name: "job", data: { k: "a", i: 1 } }).catch(String);
    await queue.close();
    expect(await adding).toBe('Error: queue "q" is closed');
    await expect(queue.addFlow({ name: "job", data: { k: "a", i: 2 } })).rejects.toThrow('queue "q" is closed');
    await expect.poll(clients).toBe(1);
  });

  it("is refused before a job is added", async () => {
    await using lab = await Lab.start();
    const queue = queueOf(lab);
    await expect(queue.add("job", { k: "", i: 0 })).rejects.toThrow(/the job's key is empty/);
    await expect(queue.add("job", { k: ["42", "b"], i: 0 })).rejects.toThrow(/belongs to partition/);
    // An opened queue has a meta key.
    const keys = await lab.redis.keys("*");
    expect(keys.filter((name) => !name.endsWith(":meta"))).toEqual([]);
  });
});
