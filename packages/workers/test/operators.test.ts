/** The view and the calls of operators: explanations of the lane's replies, and a running queue. */

import { hostname } from "node:os";
import { until } from "@x/test-support";
import type { Job } from "bullmq";
import { describe, expect, it } from "vitest";
import { busyKeyOf, type Explanation, explanationOf } from "../src/operators/rules/key-report.ts";
import { parseExplain, parseList } from "../src/scripts/operator-replies.ts";
import { type Data, finished, gate, jobs, Lab, redlockOn, SHORT_MS } from "./support/lab.ts";

describe("the explanation of a reply", () => {
  const keyFacts = (key: string, parked: number, { holders = "", pause = "", isStalled = 0 } = {}): unknown[] => [
    ...[key, holders, "", parked, pause],
    ...["", 1, "", "", "", "", isStalled],
  ];
  const position = (holders: string, rank: number, pause = ""): unknown[] => [
    0,
    rank,
    keyFacts("a", 3, { holders, pause }),
  ];

  /** A worker without a number of slots has reported just now. */
  const ALIVE = [1, 1, [[0, JSON.stringify({ at: "a:1" }), "w"]]] as const;

  /**
   * The reply for a job. The facts are the fields of `jobReply`, from the keys of the job to whether its worker is
   * gone.
   */
  const reply = (state: string, facts: readonly unknown[], fleet: unknown = ALIVE): readonly unknown[] => [
    fleet,
    ["job", ...facts.slice(0, 7), state, "", "", "w", 1_000, "", ...facts.slice(7)],
  ];
  const explained = (state: string, facts: readonly unknown[], fleet?: unknown): Explanation | undefined =>
    explanationOf("7", parseExplain(reply(state, facts, fleet)));

  it.each([
    ["completed", ["a", 0, "", 1, 0, 0, 0, position("", -1)], "finished"],
    ["waiting", ["", 0, "", 0, 0, 0, 0], "no-key"],
    ["active", ["", 0, "", 0, 0, 0, 0], "runs"],
    ["waiting-children", ["", 0, "", 0, 0, 0, 0], "waits-for-children"],
    ["waiting", ["\u001eis empty", 0, "", 0, 0, 0, 0], "unusable-key"],
    ["waiting", [null, 0, "", 0, 0, 0, 0], "not-judged"],
    ["waiting", ["a", 0, "", 0, 0, 0, 0, position("3", -1)], "not-judged"],
    ["active", ["a", 0, "", 0, 0, 0, 0, position("7", -1)], "runs"],
    ["waiting-children", ["a", 0, "", 0, 0, 0, 0, position("3", -1)], "waits-for-children"],
    ["waiting", ["a", 0, "", 0, 0, 0, 0, position("7", -1)], "chosen"],
    ["delayed", ["a", 0, "5000", 0, 0, 0, 0, position("7", -1)], "waits-for-retry"],
    ["delayed", ["a", 0, "5000", 0, 1, 0, 0, position("7", -1)], "waits-for-lock"],
    ["delayed", ["a", 0, "", 0, 0, 0, 0, position("7", -1)], "chosen"],
    ["delayed", ["a", 1, "5000", 0, 0, 0, 0, position("3", 1)], "parked"],
  ] as const)("job 7 in state %s, with the reply %j, gets the verdict %s", (state, raw, verdict) => {
    expect(explained(state, raw)?.verdict).toBe(verdict);
  });

  it("says which jobs are ahead of a job, and why no job starts", () => {
    const words = (...positions: readonly unknown[]): string | undefined =>
      explained("delayed", ["a", 1, "5000", 0, 0, 0, 0, ...positions])?.message;
    expect(words(position("3", 2))).toBe('key "a": behind 2 other jobs, job 3 has it');
    expect(words(position("3", 1))).toBe('key "a": behind 1 other job, job 3 has it');
    expect(words(position("", 0))).toBe('key "a": first in line, no job has it, due at 1970-01-01T00:00:05.000Z');
    expect(words(position("", 2))).toBe('key "a": behind 2 other jobs, no job has it');
    expect(words(position("", 0, '{"reason":"migration","since":1}'))).toBe('key "a" is paused: migration');
    expect(words(position("", 0, '{"reason":"failed","since":1,"jobId":"3"}'))).toBe(
      'key "a" is stopped by job 3, which failed',
    );
    expect(words(position("", 0, '{"reason":"migration","since":1,"jobId":"3","until":2}'))).toBe(
      'key "a" is stopped by job 3, which failed, and paused until 1970-01-01T00:00:00.002Z: migration',
    );
  });

  it("says that the worker of a job is gone, and that no worker runs", () => {
    const about = (
      state: string,
      isStalled: number,
      { heardAgo, holder = "7", rank = -1 }: { heardAgo?: number; holder?: string; rank?: number } = {},
    ) => {
      const position = [0, rank, keyFacts("a", 3, { holders: holder, isStalled: holder === "3" ? 1 : 0 })];
      const facts = ["a", rank < 0 ? 0 : 1, "", state === "completed" ? 1 : 0, 0, 0, isStalled, position];
      const report = JSON.stringify({ at: "vm:7", status: { slots: 5 } });
      return explained(state, facts, [1, 0, heardAgo === undefined ? [] : [[heardAgo, report, "w"]]]);
    };
    expect(about("active", 0)).toMatchObject({ verdict: "runs", message: "is running" });
    expect(about("active", 0, { heardAgo: 30 })?.message).toBe("is running in vm:7");
    const silent = "is running, but its worker vm:7 has not reported for 31 s";
    expect(about("active", 0, { heardAgo: 31 })?.message).toBe(silent);
    const gone = "had started, and its worker is gone: a worker that runs moves it on within its stalledInterval";
    expect(about("active", 1, { heardAgo: 10 })).toMatchObject({ verdict: "stalled", message: gone });
    expect(about("active", 1)?.message).toBe(`${gone}; no worker with keys runs`);
    const chosen = "is next on its key, and waits for a free slot";
    expect(about("waiting", 0, { heardAgo: 30 })?.message).toBe(`${chosen}: 4 of 5 slots of 1 worker are free`);
    expect(about("waiting", 0, { heardAgo: 31 })?.message).toBe(`${chosen}; no worker with keys has reported for 31 s`);
    expect(about("delayed", 0, { holder: "3", rank: 1 })).toMatchObject({
      message: 'key "a": behind 1 other job, job 3 has it, and the worker of job 3 is gone; no worker with keys runs',
      keys: [{ isStalled: true, isHolderRemoved: false }],
    });
    expect(about("completed", 0)?.message).not.toContain("no worker");
  });

  it("says how many slots are busy if a job waits for one", () => {
    const words = (active: number, ...slots: readonly (number | undefined)[]): string | undefined => {
      const reports = slots.map((count, at) => [
        0,
        JSON.stringify({ at: `a:${at}`, status: { slots: count } }),
        `${at}`,
      ]);
      return explained("waiting", ["a", 0, "", 0, 0, 0, 0, position("7", -1)], [active, 1, reports])?.message;
    };
    const chosen = "is next on its key, and waits for a free slot";
    expect(words(15, 5, 5, 5)).toBe(`${chosen}: all 15 slots of 3 workers are busy`);
    expect(words(14, 5, 5, 5)).toBe(`${chosen}: 1 of 15 slots of 3 workers are free`);
    expect(words(1, 1)).toBe(`${chosen}: the only slot of 1 worker is busy`);
    expect(words(3, undefined)).toBe(chosen);
  });

  it("says why a job waits if it has no key, or if its queue is paused", () => {
    const words = (state: string, pin: string, isPaused = 0): string | undefined =>
      explained(state, [pin, 0, "", 0, 0, isPaused, 0])?.message;
    expect(words("waiting", "")).toBe("has no key, and waits for a free slot");
    expect(words("delayed", "")).toBe("has no key, and waits for its time");
    expect(words("waiting", "", 1)).toBe("has no key, and waits for a free slot; the queue is paused");
    expect(words("active", "", 1)).toBe("is running in a:1");
  });

  it("says which key a failed job has stopped, and how to continue", () => {
    const words = (paused: string): string | undefined =>
      explained("failed", ["a", 0, "", 1, 0, 0, 0, position("", -1, paused)])?.message;
    expect(words("")).toBe("has failed");
    expect(words('{"reason":"failed","since":1,"jobId":"7"}')).toBe(
      'has failed, and stopped key "a": retry the job, then resume the key; or only resume it',
    );
  });

  it("is undefined for an unknown job", () => {
    expect(explanationOf("7", parseExplain([]))).toBeUndefined();
  });

  it("lists no holder for a free key, and all holders for a key that several jobs hold", () => {
    const rows = [
      keyFacts("a", 2, { pause: '{"reason":"r","since":5}' }),
      keyFacts("b", 1, { holders: "3" }),
      keyFacts("c", 0, { holders: "4\u001f5" }),
    ];
    const { cursor, keys } = parseList(["9", ...rows]);
    expect(cursor).toBe("9");
    expect(keys.map(busyKeyOf).map((key) => [key.key, key.holders, key.parked, key.paused?.reason])).toEqual([
      ["a", [], 2, "r"],
      ["b", ["3"], 1, undefined],
      ["c", ["4", "5"], 0, undefined],
    ]);
  });
});

describe("a running queue", () => {
  it("counts each key once, even if the hash of holders shrinks meanwhile", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const writes = lab.redis.pipeline();
    for (let i = 0; i < 2_000; i++) writes.hset(`bull:q:job${i}`, "lk", `k${i}`);
    await writes.exec();
    const [fill, shrink] = [
      `for i = 0, 1999 do redis.call('HSET', KEYS[1], 'k' .. i, 'job' .. i) end
       for i = 1, 30000 do redis.call('HSET', KEYS[1], 'gone' .. i, '!:paused') end`,
      `for i = 1, 30000 do redis.call('HDEL', KEYS[1], 'gone' .. i) end
       for i = 1, 20000 do redis.call('HGET', KEYS[1], 'k0') end`,
    ];
    const counted: number[] = [];
    for (let round = 0; round < 12; round++) {
      await lab.redis.eval(fill, 1, "bull:q:lane:holders");
      const counts = queue.counts();
      for (let page = 0; page < round; page++) await lab.redis.ping();
      await lab.redis.eval(shrink, 1, "bull:q:lane:holders");
      counted.push((await counts).busyKeys);
    }
    expect(counted).toEqual(counted.map(() => 2_000));
  });

  it("distinguishes a job whose worker was killed from a running job, and a queue without workers from a busy one", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    await queue.addBulk(jobs(2, () => "a"));
    expect((await queue.explain("2"))?.message).toBe(
      "is not in a line, and waits for a free slot; no worker with keys runs",
    );
    const running = gate();
    lab.worker(async () => await running.passed, { skipStalledCheck: true, skipLockRenewal: true });
    await until(async () => (await queue.counts()).parked === 1);
    expect(await queue.explain("1")).toMatchObject({
      verdict: "runs",
      message: `is running in ${hostname()}:${process.pid}`,
    });
    expect(await queue.listKeys()).toMatchObject([{ key: "a", holder: "1", isStalled: false }]);
    // The state after a worker was killed: the lock of its job has expired, and the worker reports nothing.
    await lab.redis.del("bull:q:1:lock", "bull:q:lane:workers");
    expect(await queue.explain("1")).toMatchObject({ verdict: "stalled", state: "active" });
    expect(await queue.explain("2")).toMatchObject({
      message: 'key "a": first in line, job 1 has it, and the worker of job 1 is gone; no worker with keys runs',
      keys: [{ isStalled: true, isHolderRemoved: false }],
    });
    expect(await queue.listKeys()).toMatchObject([{ key: "a", holder: "1", isStalled: true }]);
    running.open();
  });

  it("reads a key with its jobs, and the queue with its workers, each at one moment", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const running = gate();
    lab.worker(async () => await running.passed, { concurrency: 2, skipStalledCheck: true });
    await queue.addBulk([...jobs(30, () => "a"), ...jobs(3, (i) => `b${i}`)]);
    await until(async () => (await queue.counts()).parked === 29);
    const at = `${hostname()}:${process.pid}`;
    const reading = await queue.readKey("a", { limit: 3 });
    const added = await queue.getJob("1");
    expect(reading).toMatchObject({ key: "a", holder: "1", parked: 29, message: `job 1 is running in ${at}` });
    expect(Math.abs(reading.atMs - Date.now())).toBeLessThan(60_000);
    expect(reading.jobs.map(({ id, name, verdict, worker }) => [id, name, verdict, worker])).toEqual([
      ["1", "job", "runs", at],
      ["2", "job", "parked", undefined],
      ["3", "job", "parked", undefined],
      ["4", "job", "parked", undefined],
    ]);
    expect(reading.jobs[0]).toMatchObject({ startedMs: added?.processedOn, lockMs: expect.any(Number) });
    expect(reading.jobs[2]?.message).toBe((await queue.explain("3"))?.message);
    expect((await queue.readKey("a")).jobs).toHaveLength(26);
    expect(await queue.readKey("none")).toMatchObject({
      jobs: [],
      message: "no job has the key, and none waits for it",
    });
    const { workers, ...overview } = await queue.overview();
    const none = { keys: [], readings: [] };
    expect(overview).toEqual({
      atMs: expect.any(Number),
      isPaused: false,
      runnable: 2,
      active: 2,
      stalled: [],
      exclusion: { mode: "on", ended: 0, overlaps: 0, outOfOrder: 0, keys: [] },
      ...none,
    });
    const whole = await queue.overview({ keys: 10, read: ["b0", "a"] });
    expect(whole).toMatchObject({ runnable: 2, active: 2, workers: [{ setup: { at } }] });
    expect(whole.keys.toSorted((one, other) => (one.key < other.key ? -1 : 1))).toEqual(await queue.listKeys());
    expect(whole.readings.map(({ key, jobs }) => [key, jobs.length])).toEqual([
      ["b0", 1],
      ["a", 26],
    ]);
    expect(whole.readings[1]?.message).toBe((await queue.readKey("a")).message);
    expect((await queue.overview({ keys: 1 })).keys).toHaveLength(1);
    await expect(queue.overview({ read: ["1", "2", "3", "4", "5", "6"] })).rejects.toThrow(
      "read must be an array of at most 5 keys",
    );
    expect(workers).toMatchObject([{ setup: { at, key: "k" }, status: { slots: 2, completed: 0 }, isGone: false }]);
    expect(await queue.explain("32")).toMatchObject({
      message: "is not in a line, and waits for a free slot: all 2 slots of 1 worker are busy",
    });
    await lab.redis.del("bull:q:1:lock");
    await queue.pauseKey("a", "migration");
    expect(await queue.overview()).toMatchObject({ stalled: ["1"], active: 2 });
    const paused = await queue.readKey("a", { limit: 1 });
    expect([paused.message, paused.jobs.map(({ verdict }) => verdict)]).toEqual([
      'key "a" is paused: migration',
      ["stalled", "parked"],
    ]);
    await expect(queue.readKey("a", { limit: 101 })).rejects.toThrow("limit must be an integer from 0 to 100, got 101");
    running.open();
  });

  it("lists keys, counts jobs and explains why a job waits", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const running = gate();
    lab.worker(async (job) => (job.data.i === 0 ? await running.passed : undefined), { concurrency: 2 });
    await queue.addBulk([...jobs(4, () => "a"), ...jobs(1, () => "b")]);
    await until(async () => (await queue.getDelayedCount()) === 3 && (await queue.getActiveCount()) === 2);
    await queue.add("job", { k: "c", i: 5 });
    const keys = (await queue.listKeys()).sort((x, y) => x.key.localeCompare(y.key));
    const added = (await queue.getJob("2"))?.timestamp;
    expect(keys.map(({ sinceMs, ...key }) => ({ ...key, isRunning: sinceMs !== undefined }))).toEqual([
      {
        key: "a",
        holder: "1",
        holders: ["1"],
        parked: 3,
        slots: 1,
        isStalled: false,
        isRunning: true,
        waitingSinceMs: added,
      },
      { key: "b", holder: "5", holders: ["5"], parked: 0, slots: 1, isStalled: false, isRunning: true },
    ]);
    const { oldestWaitingMs, longestHeldMs, ...counts } = await queue.counts();
    expect(longestHeldMs).toBeGreaterThan(0);
    expect(counts).toEqual({
      runnable: 1,
      active: 2,
      parked: 3,
      runnableKeys: 1,
      busyKeys: 2,
      pausedKeys: 0,
      waitingKeys: 1,
      limitedKeys: 0,
      longestLine: 3,
    });
    expect(Date.now() - oldestWaitingMs).toBeGreaterThanOrEqual(added ?? 0);
    expect(await queue.explain("1")).toMatchObject({ verdict: "runs", state: "active" });
    expect(await queue.explain("6")).toMatchObject({
      verdict: "not-judged",
      message: expect.stringContaining("free slot"),
    });
    const third = await queue.explain("3");
    expect(third).toMatchObject({ verdict: "parked", message: 'key "a": behind 1 other job, job 1 has it' });
    expect(third?.dueAtMs).toBeGreaterThan(Date.now());
    expect(await queue.explain("99")).toBeUndefined();
    running.open();
    await finished(queue, 6);
    expect(await queue.explain("3")).toMatchObject({ verdict: "finished" });
    expect(await queue.listKeys()).toEqual([]);
  });

  it.each(["is asked for its keys", "is replaced by another worker"])(
    "forgets the keys of jobs that were removed while they held or waited for them, when it %s",
    async (when) => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const running = gate();
      const worker = lab.worker(
        async (job) => {
          if (job.data.i === 99) await running.passed;
          else throw new Error("not yet");
        },
        { onFailure: "block" },
      );
      await queue.add("job", { k: "a", i: 99 });
      await until(() => lab.ran.length === 1);
      await queue.addBulk([
        ...jobs(5, (i) => `retried${i}`).map((job) => ({ ...job, opts: { attempts: 9, backoff: 3_600_000 } })),
        ...jobs(5, (i) => ["a", `other${i}`]),
      ]);
      await until(async () => (await queue.getDelayedCount()) === 10);
      for (const job of await queue.getDelayed()) await job.remove();
      running.open();
      await until(async () => (await queue.getActiveCount()) === 0);
      expect(await lab.leftovers()).not.toEqual([]);
      if (when === "is asked for its keys") {
        expect(await queue.listKeys()).toEqual([]);
        expect(await queue.counts()).toMatchObject({ runnable: 0, active: 0, parked: 0, busyKeys: 0, waitingKeys: 0 });
      } else {
        await worker.close();
        lab.worker();
      }
      await until(async () => (await lab.leftovers()).length === 0);
    },
  );

  it.each([
    ["that were in line behind a job removed while it waited for its retry", "retry"],
    ["with several keys, one of which is free", "several"],
  ])("does not let a job wait for removed jobs %s", async (_what, kind) => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const running = gate();
    const body = async (job: { readonly data: { readonly i: number } }): Promise<void> => {
      if (job.data.i === 0 && kind === "retry") throw new Error("not yet");
      if (job.data.i === 0) await running.passed;
    };
    // Another worker, for which once a minute is enough, has just compared the workers.
    await lab.redis.set("bull:q:lane:sweep", Date.now(), "PX", 60_000);
    for (let n = 0; n < 2; n++) lab.worker(body, { onFailure: "block", recheckInterval: 1_000, drainDelay: 1 });
    const holder = await queue.add("job", { k: "a", i: 0 }, { attempts: 2, backoff: 3_600_000 });
    await until(() => lab.ran.length === 1);
    const removed = await queue.addBulk(
      jobs(60, () => (kind === "retry" ? "a" : ["a", "b"])).map((job) => ({ ...job, data: { ...job.data, i: 1 } })),
    );
    const last = await queue.add("job", { k: kind === "retry" ? "a" : "b", i: 99 });
    await until(async () => (await queue.getDelayedCount()) === (kind === "retry" ? 62 : 61));
    for (const job of [...removed, ...(kind === "retry" ? [holder] : [])]) await job.remove();
    await until(async () => await last.isCompleted());
    running.open();
  });

  it("forgets the keys of an obliterated queue when it is asked for its keys, but keeps pauses of operators", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const running = gate();
    lab.worker(() => running.passed, { concurrency: 4 });
    await queue.addBulk(jobs(20, (i) => `k${i % 5}`));
    await until(async () => (await queue.getActiveCount()) === 4);
    await queue.pauseKey("k0", "migration");
    await queue.obliterate({ force: true });
    expect(await queue.counts()).toMatchObject({ parked: 0, busyKeys: 0, pausedKeys: 1 });
    running.open();
    expect(await queue.resumeKey("k0")).toBe(true);
    await until(async () => (await lab.leftovers()).length === 0);
  });

  it("leaves the worker's name with a job of several keys, and its own text only while the job is parked", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const running = gate();
    await queue.addBulk([...jobs(1, () => "a"), ...jobs(2, (i) => ["a", `b${i}`])]);
    lab.worker(() => running.passed, { name: "one", concurrency: 3 });
    await until(async () => (await queue.getDelayedCount()) === 2);
    const processedBy = async (): Promise<unknown[]> =>
      await Promise.all(["1", "2", "3"].map(async (id) => (await queue.getJob(id))?.processedBy));
    expect(await processedBy()).toEqual(["one", "nobody yet: waits for key a, b0", "nobody yet: waits for key a, b1"]);
    running.open();
    await finished(queue, 3);
    expect(await processedBy()).toEqual(["one", "one", "one"]);
    expect(await queue.listKeys()).toEqual([]);
  });

  it("pauses a key: the running job ends, no other job of the key starts, other keys continue", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const running = gate();
    lab.worker(async (job) => (job.data.i === 0 ? await running.passed : undefined));
    await queue.addBulk(jobs(3, () => "a"));
    await until(() => lab.ran.length === 1);
    expect(await queue.pauseKey("a", "migration")).toBe(true);
    expect(await queue.pauseKey("a")).toBe(false);
    running.open();
    await finished(queue, 1);
    await queue.addBulk([...jobs(2, () => "a"), ...jobs(3, () => "b")]);
    await finished(queue, 4);
    expect(lab.ran.filter((run) => run.key === "a")).toHaveLength(1);
    expect(await queue.counts()).toMatchObject({ parked: 4, busyKeys: 0, pausedKeys: 1 });
    expect(await queue.explain("2")).toMatchObject({ message: 'key "a" is paused: migration' });
    expect(await queue.jobsOf("a")).toMatchObject({ holder: undefined, holders: [], parked: ["2", "3", "4", "5"] });
    expect(await queue.jobsOf("a", { limit: 2 })).toMatchObject({
      holder: undefined,
      holders: [],
      parked: ["2", "3"],
    });
    expect(await queue.jobsOf("free")).toEqual({ holder: undefined, holders: [], parked: [], parkedSinceMs: [] });
    expect(await queue.resumeKey("a")).toBe(true);
    expect(await queue.resumeKey("a")).toBe(false);
    await finished(queue, 8);
    expect(lab.ran.filter((run) => run.key === "a").map((run) => run.i)).toEqual([0, 1, 2, 0, 1]);
    expect(await queue.listKeys()).toEqual([]);
  });

  it.each(["waits for its retry", "was chosen and waits for a slot", "waits for a lock that plain code holds"])(
    "starts no job after a pause, not even a job that has the key and %s, and starts it first afterwards",
    async (how) => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const first = gate();
      const plain = redlockOn(lab, lab.connection);
      const held = how.startsWith("waits for a lock") ? await plain.acquire("a") : undefined;
      const fails = how === "waits for its retry";
      const busy = gate();
      lab.worker(
        async (job) => {
          if (job.data.k !== "a") await busy.passed;
          else if (job.data.i === 0 && lab.ran.length < 3) await first.passed;
          if (fails && job.data.i === 0 && job.attemptsStarted === 1) throw new Error("once");
        },
        { onFailure: "block", concurrency: 2, timeout: SHORT_MS },
      );
      const isChosen = how.startsWith("was chosen");
      if (isChosen) await queue.pauseKey("a");
      const options = { attempts: 2, backoff: { type: "fixed", delay: 1_500 } };
      await queue.addBulk(jobs(3, () => "a").map((job) => ({ ...job, opts: options })));
      if (isChosen) {
        await until(async () => (await queue.getDelayedCount()) === 3);
        await queue.addBulk(jobs(2, (i) => `other ${i}`));
        await until(async () => (await queue.getActiveCount()) === 2);
        await queue.resumeKey("a");
      } else if (held === undefined) await until(() => lab.ran.length === 1);
      first.open();
      const has = "1";
      const verdict = isChosen ? "chosen" : fails ? "waits-for-retry" : "waits-for-lock";
      await until(async () => (await queue.explain(has))?.verdict === verdict);
      const started = lab.ran.length;
      await queue.pauseKey("a", "migration");
      expect(await queue.explain(has)).toMatchObject({
        verdict,
        message: expect.stringContaining('key "a" is paused'),
      });
      busy.open();
      await held?.release();
      await until(async () => (await queue.explain(has))?.message === 'key "a" is paused: migration');
      await lab.anotherRuns();
      expect(lab.ran.slice(started).filter(({ key }) => key === "a")).toEqual([]);
      await queue.resumeKey("a");
      await finished(queue, isChosen ? 5 : 3);
      expect(lab.ran.filter(({ key }) => key === "a").map(({ i }) => i)).toEqual(fails ? [0, 0, 1, 2] : [0, 1, 2]);
      expect(await lab.leftovers()).toEqual([]);
    },
  );

  it.each(["after it was judged", "immediately"])(
    "starts a job that failed and halted its key first when it is retried manually and the key is resumed %s",
    async (when) => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      lab.worker(
        (job) => {
          if (job.data.i === 0 && lab.ran.length === 1) throw new Error("once");
        },
        { onFailure: "halt" },
      );
      await queue.addBulk(jobs(4, (i) => (i === 0 ? ["a", "b"] : i === 3 ? "b" : "a")));
      await until(async () => (await queue.getFailedCount()) === 1 && (await queue.getDelayedCount()) === 3);
      const [failed] = await queue.getFailed();
      await failed?.retry();
      if (when === "after it was judged") await until(async () => (await queue.getDelayedCount()) === 4);
      await queue.resumeKey("a");
      await queue.resumeKey("b");
      await finished(queue, 4);
      expect(lab.ran.map(({ i }) => i).slice(0, 2)).toEqual([0, 0]);
      expect(lab.ran.filter(({ i }) => i === 1 || i === 2).map(({ i }) => i)).toEqual([1, 2]);
      expect(await lab.leftovers()).toEqual([]);
    },
  );

  it.each([
    ["its path", "k"],
    ["a function", (job: { readonly data: Data }) => job.data.k as string | string[]],
  ] as const)(
    "keeps the order of a job that reuses the ID of a removed job that halted a key, with the key from %s",
    async (_how, key) => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const busy = gate();
      lab.worker(
        async ({ data }) => {
          if (data.i === 0) throw new Error("for good");
          if (data.i === 1) await busy.passed;
        },
        { key, onFailure: "halt" },
      );
      lab.defer(async () => busy.open());
      const add = async (i: number, k: unknown, jobId: string): Promise<Job<Data>> =>
        await queue.add("job", { i, k }, { jobId });
      const nine = await add(0, "a", "nine");
      await until(async () => (await queue.explain("nine"))?.message.includes('stopped key "a"') === true);
      await nine.remove();
      await add(1, "d", "five");
      await until(() => lab.ran.length === 2);
      for (const [i, k, id] of [
        [2, "d", "six"],
        [3, "d", "seven"],
        [4, ["d", "a"], "nine"],
      ] as const) {
        await add(i, k, id);
        await until(async () => (await queue.explain(id))?.verdict === "parked");
      }
      await queue.resumeKey("a");
      busy.open();
      await finished(queue, 4);
      expect(lab.ran.slice(1).map(({ jobId }) => jobId)).toEqual(["q:five", "q:six", "q:seven", "q:nine"]);
      expect(await lab.leftovers()).toEqual([]);
    },
  );

  it.each([
    ["its path", "k"],
    ["a function", (job: { readonly data: Data }) => job.data.k as string | string[]],
  ] as const)(
    "puts a job that reuses the ID of the removed holder behind the jobs in line, with the key from %s",
    async (_how, key) => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      lab.worker(
        ({ data }) => {
          if (data.i === 0) throw new Error("once");
        },
        { key, onFailure: "block" },
      );
      const retried = { jobId: "again", attempts: 2, backoff: 3_600_000 };
      const removed = await queue.add("job", { i: 0, k: "a" }, retried);
      await until(async () => (await queue.explain("again"))?.verdict === "waits-for-retry");
      await queue.addBulk(jobs(3, () => "a").slice(1));
      await until(async () => (await queue.getDelayedCount()) === 3);
      await queue.pauseKey("a");
      await queue.pause();
      await removed.remove();
      await queue.add("job", { i: 3, k: "a" });
      await queue.add("job", { i: 4, k: "a" }, { jobId: "again" });
      await queue.resume();
      await until(async () => (await queue.getDelayedCount()) === 4);
      await queue.resumeKey("a");
      await finished(queue, 4);
      expect(lab.ran.map(({ i }) => i)).toEqual([0, 1, 2, 3, 4]);
      expect(await lab.leftovers()).toEqual([]);
    },
  );

  it("places a job that halted its keys before a job that is already in front, with any IDs", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const failing = new Set(["z", "m"]);
    lab.worker(
      (job) => {
        if (failing.delete(job.id ?? "")) throw new Error("once");
      },
      { onFailure: "halt" },
    );
    const ids = ["z", "m", "n"];
    await queue.addBulk(
      jobs(3, (i) => (i === 0 ? ["a", "b"] : "a")).map((job, i) => ({ ...job, opts: { jobId: ids[i] ?? "" } })),
    );
    await until(async () => (await queue.getFailedCount()) === 1);
    await queue.resumeKey("a");
    await until(async () => (await queue.getFailedCount()) === 2);
    await queue.pause();
    for (const failed of await queue.getFailed()) await failed.retry();
    await queue.resumeKey("a");
    await queue.resumeKey("b");
    const places = await Promise.all(
      ["z", "m", "n"].map(async (id) => Number(await lab.redis.hget(`bull:${queue.name}:${id}`, "ls"))),
    );
    expect(places.toSorted((a, b) => a - b)).toEqual(places);
    expect(new Set(places).size).toBe(3);
    await queue.resume();
    await finished(queue, 3);
    expect(await lab.leftovers()).toEqual([]);
  });

  it("keeps the operator's reason when a job fails and halts a paused key, and one resume ends both", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const running = gate();
    const body = async (job: { readonly data: { readonly i: number } }): Promise<void> => {
      if (job.data.i > 0) return;
      await running.passed;
      throw new Error("broken");
    };
    lab.worker(body, { onFailure: "halt" });
    await queue.addBulk(jobs(2, () => "a"));
    await until(() => lab.ran.length === 1);
    await queue.pauseKey("a", "migration until 5 pm");
    const [before] = await queue.listKeys();
    running.open();
    await until(async () => (await queue.getFailedCount()) === 1);
    const [after] = await queue.listKeys();
    expect(after?.paused).toEqual({ reason: "migration until 5 pm", sinceMs: before?.paused?.sinceMs, jobId: "1" });
    expect(await queue.pauseKey("a", "again")).toBe(false);
    expect(await queue.resumeKey("a")).toBe(true);
    await finished(queue, 2);
    expect(await queue.listKeys()).toEqual([]);
  });

  it("pauses a free key, and one of several keys of a job", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker();
    await queue.pauseKey("a");
    await queue.addBulk(jobs(1, () => ["a", "b"]));
    await until(async () => (await queue.getDelayedCount()) === 1);
    await queue.addBulk([...jobs(1, () => "b"), ...jobs(1, () => "c")]);
    await finished(queue, 1);
    // The job of a and b waits for a, and keeps its place in line for b.
    expect(await queue.explain("2")).toMatchObject({
      verdict: "parked",
      keys: [{ key: "b", ahead: 1, holder: undefined }],
    });
    await queue.resumeKey("a");
    await finished(queue, 3);
    expect(lab.ran.map((run) => run.jobId)).toEqual(["q:3", "q:1", "q:2"]);
    expect(await lab.leftovers()).toEqual([]);
  });

  it("limits the list of keys, and refuses an invalid key", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const running = gate();
    lab.worker(async () => await running.passed);
    await queue.addBulk(jobs(10, (i) => `k${i}`));
    await until(() => lab.ran.length === 10);
    expect(await queue.listKeys({ limit: 3 })).toHaveLength(3);
    await expect(queue.listKeys({ limit: 0 })).rejects.toThrow(RangeError);
    await expect(queue.pauseKey("")).rejects.toThrow(
      'key must be a string of 1 to 512 bytes without control characters, got ""',
    );
    await expect(queue.pauseKey(7 as never)).rejects.toThrow(TypeError);
    await expect(queue.explain(7 as never)).rejects.toThrow(TypeError);
    running.open();
    await finished(queue, 10);
  });
});
