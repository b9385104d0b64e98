import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import { until } from "@x/test-support";
import { type ExclusiveWorkerOptions, type WorkerEvents, type WorkerTraces } from "@x/workers";
import { describe, expect, it } from "vitest";
import { type Data, finished, gate, jobs, Lab, listen, redlockOn, SHORT_MS } from "./support/lab.ts";

const NAMES = ["parked", "locked", "yielded", "woken", "released"] as const;
const KEYS = ["keyPaused", "keyResumed"] as const;

describe("the events of an exclusive worker and of its queue", () => {
  it("are emitted to its listeners and published to the channels alike", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const events: [string, unknown][] = [];
    const messages = [...NAMES, ...KEYS].map((name) => [name, listen(lab, `x.workers.${name}`)] as const);
    const held = await redlockOn(lab, lab.connection).acquire("a");
    const worker = lab.worker(undefined, { concurrency: 1, timeout: SHORT_MS, recheckInterval: 60_000 });
    for (const name of NAMES) worker.on(name, (message: WorkerEvents[typeof name]) => events.push([name, message]));
    for (const name of KEYS) queue.on(name, (message: unknown) => void events.push([name, message]));
    await queue.pauseKey("other", "for a test");
    await queue.resumeKey("other");
    await queue.addBulk([...jobs(2, () => "a"), ...jobs(1, () => "b")]);
    await until(() => ["yielded", "parked"].every((each) => events.some(([name]) => name === each)));
    await held.release();
    await finished(queue, 3);
    await until(() => events.filter(([name]) => name === "released").length === 3);
    const told = (name: string): unknown[] => events.filter(([each]) => each === name).map(([, message]) => message);
    for (const [name, onChannel] of messages) expect(onChannel).toEqual(told(name));
    const first = { queue: "q", jobId: "1", keys: ["a"] };
    expect(told("keyPaused")).toEqual([{ queue: "q", key: "other", reason: "for a test" }]);
    expect(told("keyResumed")).toEqual([{ queue: "q", key: "other" }]);
    expect(told("parked")).toEqual([{ queue: "q", jobs: 1 }]);
    expect(told("yielded")).toEqual([{ ...first, reason: "held", delayMs: 60_000 }]);
    expect(told("woken")).toEqual([first]);
    const facts = { ...first, fencingToken: expect.any(Number) };
    expect(told("locked")).toContainEqual({ ...facts, waitMs: expect.any(Number) });
    expect(told("released")).toContainEqual({ ...facts, heldMs: expect.any(Number), confirmed: true });
  });

  it("are emitted once to a listener of once(), and not to a removed listener", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const heard: string[] = [];
    const removed = (): void => void heard.push("removed");
    queue.once("keyPaused", ({ key }) => heard.push(key));
    queue.on("keyPaused", removed).off("keyPaused", removed);
    for (const key of ["a", "b"]) await queue.pauseKey(key);
    expect(heard).toEqual(["a"]);
  });

  it("continue when a listener throws, which emits an error event", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const worker = lab.worker();
    worker.on("locked", () => {
      throw new Error("a listener's");
    });
    await queue.addBulk(jobs(3, () => "a"));
    await finished(queue, 3);
    expect(lab.errors.map(String)).toEqual(Array.from({ length: 3 }, () => "Error: a listener's"));
  });
});

describe("the time for which a job was parked", () => {
  const HOUR_MS = 3_600_000;
  const rules = { recheckInterval: HOUR_MS, stalledInterval: HOUR_MS } as const;
  type Told = [string, boolean];

  /** The runs published on the tracing channel, and whether their jobs were parked for an hour. */
  function runs(lab: Lab): () => Told[] {
    const heard: Told[] = [];
    const listener = (message: unknown): void => {
      const { jobId, parkedMs } = message as WorkerTraces["run"];
      heard.push([jobId, parkedMs >= HOUR_MS]);
      if (parkedMs < 0 || parkedMs > 2 * HOUR_MS) throw new Error(`parked for ${parkedMs} ms`);
    };
    subscribe("tracing:x.workers:run:start", listener);
    lab.defer(async () => void unsubscribe("tracing:x.workers:run:start", listener));
    return () => heard.toSorted(([a, wasParked], [b]) => Number(a) - Number(b) || Number(wasParked) - 0.5);
  }

  async function parkedSince(lab: Lab, ids: readonly string[], ms = Date.now() - HOUR_MS): Promise<void> {
    for (const id of ids) {
      await until(async () => (await lab.redis.hexists(`bull:q:${id}`, "ls")) === 1);
      await lab.redis.hset(`bull:q:${id}`, "lp", ms);
    }
  }

  it.each<[string, Partial<ExclusiveWorkerOptions<Data>>]>([
    ["one slot", {}],
    ["two slots", { perKey: { concurrency: 2 } }],
    ["rotation", { between: "rotate" }],
    ["several keys", { key: ({ data }) => [data.k as string, "all"] }],
  ])("is reported for the run that waited, not for its retry: %s", async (_name, options) => {
    await using lab = await Lab.start();
    const told = runs(lab);
    const queue = lab.queue();
    const running = gate();
    lab.defer(async () => running.open());
    lab.worker(
      async (job) => {
        if (job.id === "1" || job.id === "2") await running.passed;
        if (job.id === "4" && job.attemptsStarted === 1) throw new Error("to be retried");
      },
      { ...rules, ...options },
    );
    await queue.addBulk(jobs(1, () => "a"));
    await until(() => lab.ran.length === 1);
    await queue.addBulk(jobs(1, () => ("perKey" in options ? "a" : "b")));
    await until(async () => lab.ran.length === 2 || (await queue.getDelayedCount()) === 1);
    await queue.addBulk(jobs(3, () => "a").map((job) => ({ ...job, opts: { attempts: 2 } })));
    await parkedSince(lab, ["3", "4", "5"]);
    // The job is parked again, and its wait continues.
    await (await queue.getJob("5"))?.promote();
    await until(async () => (await queue.getWaitingCount()) === 0);
    running.open();
    await finished(queue, 5);
    expect(told()).toEqual([
      ["1", false],
      ["2", false],
      ["3", true],
      ["4", false],
      ["4", true],
      ["5", true],
    ]);
    for (const id of ["3", "4", "5"]) expect(await lab.redis.hexists(`bull:q:${id}`, "lp")).toBe(0);
    expect(lab.errors).toEqual([]);
  });

  it("counts from the job's first parking if its key is paused again before the job is taken", async () => {
    await using lab = await Lab.start();
    const told = runs(lab);
    const queue = lab.queue();
    const worker = lab.worker(undefined, { ...rules, autorun: false });
    await queue.pauseKey("a", "until it waits");
    await queue.addBulk(jobs(1, () => "a"));
    expect(await worker.getNextJob("none", { block: false })).toBeUndefined();
    await parkedSince(lab, ["1"]);
    await queue.resumeKey("a");
    expect((await queue.jobsOf("a")).holders).toEqual(["1"]);
    await queue.pauseKey("a", "again");
    expect(await worker.getNextJob("none", { block: false })).toBeUndefined();
    await queue.resumeKey("a");
    lab.worker(undefined, rules);
    await finished(queue, 1);
    expect(told()).toEqual([["1", true]]);
  });

  it("counts until the start that follows the release of the key's lock by plain code, and starts again after lock.backOff", async () => {
    await using lab = await Lab.start();
    const told = runs(lab);
    const queue = lab.queue();
    const running = gate();
    lab.defer(async () => running.open());
    const plain = redlockOn(lab, lab.connection);
    const worker = lab.worker(
      async (job, _signal, lock) => {
        if (job.id === "1") await running.passed;
        if (job.id === "3" && (await lab.redis.incr("calls")) === 1) lock.backOff(1);
      },
      { ...rules, timeout: SHORT_MS },
    );
    await queue.addBulk(jobs(3, () => "a"));
    await parkedSince(lab, ["2", "3"]);
    const yielded = once(worker as never, "yielded");
    const granted = plain.acquire("a", { ttl: 30_000 });
    running.open();
    const held = await granted;
    await yielded;
    await held.release();
    await finished(queue, 3);
    expect(told()).toEqual([
      ["1", false],
      ["2", true],
      ["3", false],
      ["3", true],
    ]);
    expect(lab.errors).toEqual([]);
  });

  it("is forgotten together with a job that did not run and is retried manually", async () => {
    await using lab = await Lab.start();
    const told = runs(lab);
    const queue = lab.queue();
    const running = gate();
    lab.defer(async () => running.open());
    const line = { perKey: { maxWaiting: { max: 1, drop: "oldest" } } } as const;
    lab.worker(async () => await running.passed, { ...rules, ...line });
    await queue.addBulk(jobs(2, () => "a"));
    await parkedSince(lab, ["2"]);
    await queue.addBulk(jobs(1, () => "a"));
    await until(async () => (await queue.getFailedCount()) === 1);
    running.open();
    await finished(queue, 3);
    await (await queue.getJob("2"))?.retry();
    await until(() => told().length === 3);
    expect(told()).toEqual(["1", "2", "3"].map((id) => [id, false]));
  });
});
