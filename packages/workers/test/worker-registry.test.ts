/** Whether the workers of a queue notice that their options differ. */

import { setImmediate as immediate } from "node:timers/promises";
import type { Clock } from "@x/redlock-core";
import { until } from "@x/test-support";
import { WorkerMismatchError } from "@x/workers";
import { Worker } from "bullmq";
import { describe, expect, it } from "vitest";
import type { WorkerFinding } from "../src/errors.ts";
import { differencesOf, type WorkerSetup } from "../src/operators/rules/worker-setup.ts";
import { WorkerRegistry } from "../src/operators/worker-registry.ts";
import { type Data, gate, jobs, Lab, redlockOn } from "./support/lab.ts";

const own: WorkerSetup = { at: "a:1", key: "k", onFailure: "skip", locks: "account:", nodes: 1 };

const findingsOf = (others: readonly WorkerSetup[], withoutKey: readonly string[]): WorkerFinding[] =>
  differencesOf(own, others, withoutKey).map(({ finding }) => finding);

describe("the finding for another set-up", () => {
  const other = { ...own, at: "b:2" };

  it.each([
    ["the same", other, []],
    [
      "another key",
      { ...other, key: "customer.id" },
      [["OTHER_KEY", "error", 'key of b:2: "customer.id", here: "k"; jobs of one entity may run at the same time']],
    ],
    [
      "a function as key",
      { ...other, key: null },
      [
        [
          "OTHER_KEY",
          "warning",
          'key of b:2: a function, here: "k"; unless both have the same effect, jobs of one entity may run at the same time',
        ],
      ],
    ],
    [
      "other names of locks",
      { ...other, locks: "" },
      [
        [
          "OTHER_LOCKS",
          "error",
          'locks of b:2: named "…" on 1 node, here: named "account:…" on 1 node; code that holds one of these locks is not kept out by the other',
        ],
      ],
    ],
    [
      "locks named by a function",
      { ...other, locks: null },
      [
        [
          "OTHER_LOCKS",
          "warning",
          'locks of b:2: named by a function on 1 node, here: named "account:…" on 1 node; unless both have the same effect, code that holds one of these locks is not kept out by the other',
        ],
      ],
    ],
    [
      "more nodes",
      { ...other, nodes: 3 },
      [
        [
          "OTHER_LOCKS",
          "error",
          'locks of b:2: named "account:…" on 3 nodes, here: named "account:…" on 1 node; code that holds one of these locks is not kept out by the other',
        ],
      ],
    ],
    [
      "another onFailure",
      { ...other, onFailure: "halt" as const },
      [
        [
          "OTHER_ON_FAILURE",
          "warning",
          'onFailure of b:2: "halt", here: "skip"; how a failed job affects its key depends on the worker',
        ],
      ],
    ],
  ])("%s", (_, setup, expected) => {
    const found = findingsOf([setup], []);
    expect(found.map(({ code, severity, message }) => [code, severity, message])).toEqual(expected);
  });

  it("combines workers that differ in the same way", () => {
    const others = ["d:4", "b:2", "b:2", "c:3"].map((at, index) => ({ ...own, at, key: index === 3 ? "z" : "x" }));
    expect(findingsOf(others, []).map(({ subjects }) => subjects)).toEqual([["b:2", "d:4"], ["c:3"]]);
  });

  it("names some of the jobs that run without their key, and lists all", () => {
    const [finding] = findingsOf([], ["1", "2", "3", "4", "5", "6", "7"]);
    expect(finding).toMatchObject({ code: "PLAIN_WORKER", severity: "error", subjects: { length: 7 } });
    expect(finding?.message).toMatch(
      /^jobs 1, 2, 3, 4, 5 and 2 more run without having their key: a worker without keys .* took them, or /,
    );
  });

  it("uses the singular for one job that runs without its key", () => {
    const [finding] = findingsOf([], ["2"]);
    expect(finding?.message).toMatch(/^job 2 runs without having its key: a worker without keys .* took it, or /);
  });
});

describe("the reports", () => {
  const strays = (...ids: string[]): unknown => [[], ids];
  const status = { slots: 5, busy: 2, completed: 7, failed: 1, stalled: 0, locksLost: 0 };

  function registryThatSees(
    replies: unknown[],
    faults: Error[] = [],
  ): {
    registry: WorkerRegistry;
    found: WorkerFinding[];
    looks: string[];
    reports: string[];
    overdue: boolean[];
    tick: () => Promise<void>;
    minute: () => Promise<void>;
    pending: () => number;
  } {
    const timers: (() => void)[] = [];
    let nowMs = 0;
    const clock = {
      monotonicMs: () => nowMs,
      schedule: (afterMs: number, run: () => void) => {
        expect(afterMs).toBe(10_000);
        timers.push(run);
        return () => void timers.splice(timers.indexOf(run), 1);
      },
    } as unknown as Clock;
    const found: WorkerFinding[] = [];
    const looks: string[] = [];
    const reports: string[] = [];
    const registry = new WorkerRegistry({
      clock,
      id: "this",
      setup: own,
      status: () => status,
      report: async (_id, text) => {
        const fault = faults.shift();
        if (fault !== undefined) throw fault;
        reports.push(text);
      },
      rules: "{}",
      exchange: async (_id, setup) => {
        looks.push(setup);
        const reply = replies.shift() ?? strays();
        if (reply instanceof Error) throw reply;
        return reply;
      },
      onFinding: (finding) => found.push(finding),
    });
    const overdue: boolean[] = [];
    const tick = async (): Promise<void> => {
      nowMs += 10_000;
      timers.shift()?.();
      await immediate();
      overdue.push(registry.isOverdue);
    };
    const minute = async (): Promise<void> => {
      for (let n = 0; n < 6; n++) await tick();
    };
    return { registry, found, looks, reports, overdue, tick, minute, pending: () => timers.length };
  }

  it("come every 10 s, each as one request, and compare the workers once a minute", async () => {
    const { registry, looks, reports, minute } = registryThatSees([]);
    registry.join();
    await immediate();
    for (let n = 0; n < 10; n++) await minute();
    expect([looks.length, reports.length]).toEqual([11, 50]);
    // Less than one request in 5 s.
    expect(looks.length + reports.length).toBeLessThan(600 / 5);
    expect(JSON.parse(reports[0] ?? "")).toMatchObject({ ...own, at: expect.stringMatching(/:\d+$/), status });
    expect(looks[1]).toBe(reports[0]);
    registry.leave();
  });

  it("reports a finding once, and again when it returns", async () => {
    const { registry, found, minute } = registryThatSees([
      strays("1"),
      strays("2"),
      strays(),
      new Error("away"),
      strays("3"),
    ]);
    registry.join();
    registry.join();
    await immediate();
    for (let n = 0; n < 4; n++) await minute();
    expect(found.map(({ subjects }) => subjects)).toEqual([["1"], ["3"]]);
  });

  it("reports each difference once, whichever worker has it", async () => {
    const others = (...setups: Partial<WorkerSetup>[]): unknown => [
      setups.map((setup) => [0, JSON.stringify({ ...own, at: "b:2", ...setup }), "other"]),
      [],
    ];
    const { registry, found, minute } = registryThatSees([
      others({ key: "x" }),
      others({ key: "x", at: "c:3" }),
      others({ key: "x" }, { key: "y" }),
      others({ key: "y" }),
    ]);
    registry.join();
    await immediate();
    for (let n = 0; n < 3; n++) await minute();
    expect(found.map(({ subjects, message }) => [subjects, message.slice(0, 15)])).toEqual([
      [["b:2"], 'key of b:2: "x"'],
      [["b:2"], 'key of b:2: "y"'],
    ]);
  });

  it("ends when the worker leaves, even during a check, and removes the worker's record", async () => {
    const { registry, found, looks, pending } = registryThatSees([strays("1")]);
    registry.join();
    registry.leave();
    registry.leave();
    await immediate();
    expect(found).toEqual([]);
    expect(pending()).toBe(0);
    expect(looks).toEqual([expect.stringContaining('"key":"k"'), ""]);
    registry.join();
    expect(looks).toHaveLength(2);
  });

  it("are overdue when there was none for 30 s, until the next one or the end of the worker", async () => {
    const fault = new Error("READONLY You can't write against a read only replica.");
    const { registry, overdue, tick } = registryThatSees(
      [strays(), fault],
      [1, 2, 3, 4, 5].map(() => fault),
    );
    expect(registry.isOverdue).toBe(false);
    registry.join();
    await immediate();
    // Five reports fail, then the comparison of the next minute, and the report after it succeeds.
    for (let n = 0; n < 7; n++) await tick();
    expect(overdue).toEqual([false, false, false, true, true, true, false]);
    registry.leave();
    for (let n = 0; n < 4; n++) await tick();
    expect(registry.isOverdue).toBe(false);
  });

  it("records the worker only once it has joined", async () => {
    const { registry, looks, pending } = registryThatSees([]);
    registry.leave();
    expect(looks).toEqual([]);
    expect(pending()).toBe(0);
  });
});

describe("workers of one queue", () => {
  it("find no difference if all agree, with any jobs", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const done = gate();
    for (let n = 0; n < 2; n += 1) lab.worker(async () => await done.passed, { onFailure: "block" });
    await queue.addBulk([
      ...jobs(3, () => "a"),
      ...jobs(3, () => ["b", "c"]),
      ...jobs(2, () => undefined),
      ...jobs(1, () => "paused"),
    ]);
    await until(async () => (await queue.getActiveCount()) === 5);
    await queue.pauseKey("paused");
    expect(await queue.check()).toEqual([]);
    expect(lab.errors).toEqual([]);
    done.open();
  });

  it.each(["path", "function"] as const)("find jobs of a plain worker, keys by %s", async (kind) => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const done = gate();
    const plain = new Worker<Data>("q", async () => await done.passed, { connection: lab.connection, concurrency: 5 });
    lab.defer(async () => await plain.close());
    await queue.addBulk([...jobs(2, () => "a"), ...(kind === "path" ? jobs(1, () => undefined) : [])]);
    await until(async () => (await queue.getActiveCount()) >= 2);
    lab.worker(undefined, { key: kind === "path" ? "k" : (job) => job.data.k as string | undefined });
    await until(() => lab.errors.length > 0);
    expect(lab.errors).toEqual([expect.any(WorkerMismatchError)]);
    expect(lab.errors[0]?.message).toMatch(/^queue q: jobs? [\d, ]+ runs? without having/);
    const [finding, ...others] = await queue.check();
    expect(finding).toMatchObject({ code: "PLAIN_WORKER", severity: "error" });
    expect([...(finding?.subjects ?? [])].sort()).toEqual(["1", "2"]);
    expect(others).toEqual([]);
    done.open();
  });

  it("find a job that a plain worker took after the job had been parked", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const done = gate();
    const worker = lab.worker(async () => await done.passed, { concurrency: 1 });
    await queue.addBulk(jobs(2, () => "a"));
    await until(async () => (await queue.getActiveCount()) === 1);
    await worker.pause(true);
    const second = lab.worker(undefined, { autorun: false });
    await second.getNextJob("token", { block: false });
    await until(async () => (await queue.getDelayedCount()) === 1);
    const plain = new Worker<Data>("q", async () => await done.passed, { connection: lab.connection });
    lab.defer(async () => await plain.close());
    await (await queue.getJob("2"))?.promote();
    await until(async () => (await queue.getActiveCount()) === 2);
    expect((await queue.check()).map(({ code, subjects: ids }) => [code, ids])).toEqual([["PLAIN_WORKER", ["2"]]]);
    done.open();
  });

  it("do not blame a plain worker for jobs fetched manually, keyed later, or without a key elsewhere", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const done = gate();
    lab.worker(
      async (job) => {
        await job.updateData({ ...job.data, k: "later" });
        await done.passed;
      },
      { concurrency: 1 },
    );
    lab.defer(async () => done.open());
    await queue.addBulk(jobs(1, () => undefined));
    await until(async () => (await queue.getJob("1"))?.data.k === "later");
    const byHand = lab.worker(undefined, { key: () => "", autorun: false });
    await queue.addBulk(jobs(1, () => "a"));
    expect((await byHand.getNextJob("token", { block: false }))?.id).toBe("2");
    expect((await queue.check()).map(({ code }) => code)).toEqual(["OTHER_KEY"]);
    done.open();
  });

  it("find the jobs of a plain worker however many there are, and name at most a hundred", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue("q", { key: "k" });
    const done = gate();
    const plain = new Worker<Data>("q", async () => await done.passed, {
      connection: lab.connection,
      concurrency: 120,
    });
    lab.defer(async () => await plain.close());
    await queue.addBulk(jobs(120, () => "a"));
    await until(async () => (await queue.getActiveCount()) === 120);
    expect((await queue.check()).map(({ code, subjects: ids }) => [code, ids.length])).toEqual([["PLAIN_WORKER", 100]]);
    done.open();
  });

  it("report other keys, another onFailure, and other locks", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const first = lab.worker();
    await expect.poll(() => lab.redis.hlen("bull:q:lane:workers"), { timeout: 20_000 }).toBe(1);
    const options = { key: "other", onFailure: "block", resource: "account:", redlock: redlockOn(lab, lab.connection) };
    const second = lab.worker(undefined, options as object);
    await until(() => lab.errors.length === 3);
    const codes = lab.errors.map((error) => (error as WorkerMismatchError).finding.code);
    expect(codes).toEqual(["OTHER_KEY", "OTHER_LOCKS", "OTHER_ON_FAILURE"]);
    expect((await queue.check()).map(({ message }) => message)).toEqual([
      expect.stringMatching(/^key of \S+: "(other|k)", of \S+: "(other|k)"; jobs of one entity/),
      expect.stringMatching(/^locks of \S+: named "(account:)?…" on 1 node, of \S+: named "(account:)?…" on 1 node/),
      expect.stringMatching(/^onFailure of \S+: "(block|skip)", of \S+: "(block|skip)"; how a failed job/),
    ]);
    await second.close();
    expect(await queue.check()).toEqual([]);
    await first.close();
  });

  it("are not joined by a queue that only looks, and forget a killed worker", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    expect(await queue.check()).toEqual([]);
    expect(await lab.redis.exists("bull:q:lane:workers")).toBe(0);
    const now = Math.floor(Date.now() / 1_000);
    const setup = JSON.stringify({ ...own, key: "k", locks: "" });
    const ages = { alive: 20, killed: 60, forgotten: 910 };
    const entries = Object.entries(ages).flatMap(([id, age]) => [id, `${now - age} ${setup}`]);
    await lab.redis.hset("bull:q:lane:workers", ...entries);
    expect(await queue.setups()).toMatchObject([{ at: own.at }]);
    expect((await lab.redis.hkeys("bull:q:lane:workers")).sort()).toEqual(["alive", "killed"]);
    expect((await queue.overview()).workers.filter(({ isGone }) => isGone)).toHaveLength(1);
  });

  it("report their slots and counts", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker(async (job) => (job.data.i === 1 ? Promise.reject(new Error("no")) : undefined), {
      concurrency: 3,
    });
    await queue.addBulk(jobs(4, (i) => `k${i}`));
    await until(async () => (await queue.getCompletedCount()) === 3 && (await queue.getFailedCount()) === 1);
    // The next comparison brings a new report. BullMQ emits its events after the job has ended.
    // A worker reports every 10 s.
    await expect
      .poll(async () => (await queue.overview()).workers, { timeout: 20_000 })
      .toMatchObject([{ status: { slots: 3, busy: 0, completed: 3, failed: 1, locksLost: 0 }, isGone: false }]);
    expect((await queue.overview()).workers[0]?.status?.version).toMatch(/^\d+\.\d+\.\d+/);
  });

  it("leave nothing behind when the last worker is closed", async () => {
    await using lab = await Lab.start();
    lab.queue();
    const worker = lab.worker();
    await expect.poll(() => lab.redis.pttl("bull:q:lane:workers"), { timeout: 20_000 }).toBeGreaterThan(880_000);
    await worker.close();
    expect(await lab.redis.exists("bull:q:lane:workers")).toBe(0);
  });
});
