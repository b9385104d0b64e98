/** `ExclusiveQueue`: calls that follow the options of the queue's workers, from a process without these options. */
import { until } from "@x/test-support";
import { ExclusiveQueue, type ExclusiveWorkerOptions } from "@x/workers";
import { describe, expect, it } from "vitest";
import { checkScripts, installedScripts, queueTargetOf } from "../src/bullmq/bullmq.ts";
import { composeScripts } from "../src/bullmq/rules/compose.ts";
import { operate } from "../src/lane/operate.ts";
import { formatRules, parseRules } from "../src/operators/rules/stored-rules.ts";
import { resolveOptions } from "../src/options.ts";
import { type Data, finished, gate, jobs, Lab } from "./support/lab.ts";

const RULES = "bull:q:lane:rules";

describe("the stored rules of the workers", () => {
  it.each([
    { key: "account.id" },
    { key: () => "a" },
    { key: "k", onFailure: "halt", recheckInterval: 500 },
    { key: "k", perKey: { concurrency: 3, rate: { max: 5, duration: 1_000 }, maxWaiting: { max: 2, drop: "oldest" } } },
    { key: "k", between: { rotate: { weights: { b: 3, a: 2 } } } },
    { key: "k", whenBusy: "merge", perKey: { batch: { size: 5, wait: 10 } } },
    { key: "k", whenBusy: "interrupt" },
    { key: "k", whenBusy: "drop" },
  ] as readonly Partial<ExclusiveWorkerOptions>[])("are the same after they were stored: %j", (given) => {
    const { rules } = resolveOptions("q", { connection: {}, ...given } as ExclusiveWorkerOptions);
    const parsed = parseRules(formatRules(rules));
    expect(JSON.parse(JSON.stringify(parsed))).toEqual(JSON.parse(JSON.stringify(rules)));
  });

  it.each([
    "",
    "no JSON",
    "[]",
    '{"slots":"1 end","nearMs":-1,"line":{"max":1,"as":"x"},"rate":{"max":"a"},"path":[1]}',
  ])("have only defaults if they are damaged: %j", (text) => {
    expect(parseRules(text)).toMatchObject({ onFailure: "skip", slots: 1, nearMs: 15_000, path: undefined });
    expect(parseRules(text)).toMatchObject({ line: undefined, rate: undefined, rotate: undefined });
  });
});

describe("an exclusive queue", () => {
  it("does not pass on the key of a job that waits for its retry, because the workers block the key", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker(
      () => {
        throw new Error("for a test");
      },
      { onFailure: "block", concurrency: 1 },
    );
    await queue.add("first", { k: "a", i: 0 }, { attempts: 2, backoff: 3_600_000 });
    await queue.add("second", { k: "a", i: 1 });
    await until(async () => (await queue.explain("1"))?.verdict === "waits-for-retry");
    await until(async () => (await queue.explain("2"))?.verdict === "parked");
    expect(await queue.listKeys()).toMatchObject([{ key: "a", holder: "1", parked: 1 }]);
    await lab.anotherRuns();
    expect(lab.ran.map(({ i }) => i)).toEqual([0]);
  });

  it("follows the options of workers that start later, with the next call", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    expect(await queue.listKeys()).toEqual([]);
    const running = gate();
    const options = { perKey: { concurrency: 2, rate: { max: 9, duration: 3_600_000 } }, concurrency: 5 };
    const worker = lab.worker(() => running.passed, options);
    await queue.addBulk(jobs(3, () => "a"));
    await until(async () => (await queue.jobsOf("a")).parked.length === 1);
    expect(await queue.listKeys()).toMatchObject([{ slots: 2, rate: { counted: 2, max: 9 }, holders: ["1", "2"] }]);
    expect((await queue.explain("3"))?.message).toContain("2 of 2 slots");
    running.open();
    await finished(queue, 3);
    await worker.close();
    const idle = gate();
    lab.worker(() => idle.passed, { concurrency: 5 });
    await queue.addBulk(jobs(2, () => "a"));
    await until(async () => (await queue.jobsOf("a")).parked.length === 1);
    expect(await queue.listKeys()).toMatchObject([{ slots: 1, rate: undefined }]);
    idle.open();
  });

  it("follows the worker that is left when the newest worker has gone", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker();
    await until(async () => (await lab.redis.get(RULES)) !== null);
    const first = await lab.redis.get(RULES);
    const second = lab.worker(undefined, { onFailure: "block" });
    await until(async () => (await lab.redis.get(RULES)) !== first);
    await second.close();
    // Like the first worker, once a minute.
    const [id = "", rules = ""] = (first ?? "").split(/ (.*)/s);
    const setup = (await lab.redis.hget("bull:q:lane:workers", id))?.replace(/^\d+ /, "") ?? "";
    const script = composeScripts(checkScripts(installedScripts()).scripts, parseRules(rules)).operate;
    const call = { script, nowMs: Date.now(), rules: "" };
    await operate(queueTargetOf(queue), call, "exchange", [id, setup, 180_000, rules]);
    expect(await lab.redis.get(RULES)).toBe(first);
  });

  it("finds the jobs that no worker has looked at by the workers' path, or by its own key", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const own = lab.queue("q", { key: ({ data }) => data.k as string });
    await queue.pause();
    await queue.addBulk(jobs(4, (i) => (i % 2 === 0 ? "a" : "b")));
    await expect(queue.jobsOf("a", { state: "all" })).rejects.toThrow(
      'key must be given to the ExclusiveQueue "q" as to its workers, or state must be "parked", got "all"',
    );
    await expect(queue.removeJobs("a")).rejects.toThrow(TypeError);
    expect((await own.jobsOf("a", { state: "waiting" })).waiting?.toSorted()).toEqual(["1", "3"]);
    lab.worker();
    await until(async () => (await lab.redis.get(RULES)) !== null);
    expect((await lab.queue().jobsOf("b", { state: "waiting" })).waiting?.toSorted()).toEqual(["2", "4"]);
    expect(await lab.queue().removeJobs("b")).toBe(2);
    expect(await own.removeJobs("a")).toBe(2);
  });

  it("reports the warnings of all workers, and jobs without their key only if jobs have keys", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    expect(await queue.check()).toEqual([]);
    lab.worker(undefined, { skipStalledCheck: true });
    await until(async () => (await queue.setups()).length === 1);
    const [{ at } = { at: "" }] = await queue.setups();
    expect(await queue.check()).toEqual([
      {
        code: "NO_STALLED_CHECK",
        severity: "warning",
        subjects: [at],
        message: expect.stringContaining(`${at}: skipStalledCheck is true`),
      },
    ]);
  });

  it("removes the failed command from its error events", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const errors: Error[] = [];
    queue.on("error", (error) => errors.push(error));
    queue.emit("error", Object.assign(new Error("refused"), { command: { name: "auth", args: ["secret"] } }));
    expect(errors.map((error) => [error.message, Object.keys(error)])).toEqual([["refused", []]]);
  });

  it.each([
    [{ key: 5 }, TypeError, "key must be a path"],
    [{ key: "a..b" }, RangeError, "key must be a path"],
    [{ prefx: "a" }, TypeError, 'unknown option "prefx": did you mean "prefix"?'],
  ])("refuses the options %j before anything is sent", (options, kind, message) => {
    const connection = { host: "127.0.0.1", port: 1, lazyConnect: true };
    const make = (): unknown => new ExclusiveQueue<Data>("q", { connection, ...options } as never);
    expect(make).toThrow(kind);
    expect(make).toThrow(message);
  });
});
