/** `between: "rotate"`: the next key if several keys have waiting jobs. */
import { until } from "@x/test-support";
import { ExclusiveWorker, WorkerMismatchError } from "@x/workers";
import type { Queue } from "bullmq";
import { describe, expect, it } from "vitest";
import { startCrew } from "./support/crew.ts";
import { readHistory } from "./support/history.ts";
import { type Data, finished, gate, jobs, Lab } from "./support/lab.ts";

/** No job returns because of a timer, so only turns start jobs. */
const rules = { recheckInterval: 3_600_000, between: "rotate", concurrency: 1 } as const;

const keysOf = ({ ran }: Lab): string => ran.map(({ key }) => (key === "undefined" ? "-" : key)).join("");

function jobsOf(keys: string, opts?: object): { name: string; data: Data; opts?: object }[] {
  return keys.split("").map((k, i) => ({
    name: "job",
    data: { ...(k === "-" ? {} : { k }), i, ms: 0 },
    ...(opts === undefined ? {} : { opts }),
  }));
}

/** Runs jobs of these keys, all of which wait when the worker begins. Returns the keys in the order of their starts. */
async function orderOf(keys: string, options: object, add?: (queue: Queue<Data>) => Promise<unknown>): Promise<string> {
  await using lab = await Lab.start();
  const queue = lab.queue();
  await (add?.(queue) ?? queue.addBulk(jobsOf(keys)));
  lab.worker(undefined, { ...rules, ...options });
  await finished(queue, keys.length);
  expect(lab.errors).toEqual([]);
  await until(async () => (await lab.leftovers()).length === 0);
  return keysOf(lab);
}

describe.concurrent("the rotation between keys", () => {
  it("gives each key one start in its turn", async () => {
    expect(await orderOf("aaaaaabbbccc", {})).toBe("abcabcabcaaa");
  });

  it("leaves the order of arrival unchanged if the option is not set", async () => {
    expect(await orderOf("aaaaaabbbccc", { between: "arrival" })).toBe("aaaaaabbbccc");
  });

  it("gives a key as many starts in its turn as its weight says", async () => {
    const weighted = { rotate: { weights: { b: 2 } } };
    expect(await orderOf("aaaabbbbbbcccc", { between: weighted })).toBe("abbcabbcabbcac");
  });

  it("uses the weight that operators have set for a key", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const worker = lab.worker(undefined, { ...rules, autorun: false });
    await queue.setKeyPolicy("b", { weight: 2 });
    await queue.addBulk(jobsOf("aaaabbbbbbcccc"));
    worker.run().catch((error: Error) => lab.errors.push(error));
    await finished(queue, 14);
    expect(keysOf(lab)).toBe("abbcabbcabbcac");
    lab.worker();
    await until(async () => (await queue.setups()).length === 2);
    await expect(queue.setKeyPolicy("b", { weight: 2 })).rejects.toThrow('between "arrival" of ');
  });

  it("rotates keys that a function computes", async () => {
    expect(await orderOf("aaaabbcc", { key: ({ data }: { readonly data: Data }) => data.k as string })).toBe(
      "abcabcaa",
    );
  });

  it("alternates jobs without a key and keys, so that neither waits for all of the other", async () => {
    const order = await orderOf("aaaa----bbbb----", {});
    expect(order).toBe("a-b-a-b-a-b-a-b-");
    expect(await orderOf("aaaaaa---", {})).toBe("a-a-a-aaa");
    expect(await orderOf("------aaa", {})).toBe("--a-a-a--");
  });

  it("uses the priority of a job only for the order within its key", async () => {
    const order = await orderOf("aaabbb", {}, async (queue) => {
      await queue.addBulk(jobsOf("aaa", { priority: 1 }));
      await queue.addBulk(jobsOf("bbb", { priority: 9 }));
    });
    expect(order).toBe("ababab");
  });

  it("uses a turn for each slot of a key", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const open = gate();
    await queue.addBulk(jobsOf("aaaabbbcc"));
    lab.worker(async () => await open.passed, { ...rules, concurrency: 4, perKey: { concurrency: 2 } });
    await until(() => lab.ran.length === 4);
    expect(new Set(lab.ran.map(({ key }) => key))).toEqual(new Set(["a", "b", "c"]));
    open.open();
    await finished(queue, 9);
    await until(async () => (await lab.leftovers()).length === 0);
  });

  it("reports how many keys have their turn before a key", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const open = gate();
    await queue.addBulk(jobsOf("abcd"));
    lab.worker(async () => await open.passed, rules);
    await until(() => lab.ran.length === 1);
    const turns = new Map((await queue.listKeys()).map(({ key, keysAhead }) => [key, keysAhead]));
    expect(Object.fromEntries(turns)).toEqual({ a: undefined, b: undefined, c: 0, d: 1 });
    expect((await queue.explain("2"))?.verdict).toBe("chosen");
    expect((await queue.explain("4"))?.message).toBe(
      'key "d": first in line, waits for the turn of the key, behind 1 other key',
    );
    expect(await queue.counts()).toMatchObject({ runnable: 3, active: 1 });
    open.open();
    await finished(queue, 4);
  });

  it("continues if the job whose turn it was, and jobs of waiting keys, are removed manually", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const open = gate();
    await queue.addBulk(jobsOf("abcd"));
    lab.worker(async () => await open.passed, { ...rules, recheckInterval: 200 });
    await until(() => lab.ran.length === 1);
    for (const id of ["2", "3"]) await (await queue.getJob(id))?.remove();
    open.open();
    await finished(queue, 2);
    expect(keysOf(lab)).toBe("ad");
    await until(async () => (await lab.leftovers()).length === 0);
  });

  it("skips paused keys, and includes them again when they are resumed", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const worker = lab.worker(undefined, { ...rules, autorun: false });
    await queue.pauseKey("b", "for a while");
    await queue.addBulk(jobsOf("aaabbbcc"));
    worker.run().catch((error: Error) => lab.errors.push(error));
    await finished(queue, 5);
    expect(keysOf(lab)).toBe("acaca");
    await queue.resumeKey("b");
    await finished(queue, 8);
    await until(async () => (await lab.leftovers()).length === 0);
  });

  it("loses nothing when workers without rotation take over, and continues from the remaining turns", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const open = gate();
    await queue.addBulk(jobsOf("aabbccdd"));
    const rotating = lab.worker(async () => await open.passed, rules);
    await until(() => lab.ran.length === 1);
    const closed = rotating.close();
    open.open();
    await closed;
    expect(await lab.redis.zrange("bull:q:lane:ring", "0", "-1")).toEqual(["c", "d", "a"]);
    const plain = lab.worker(undefined, { ...rules, between: "arrival" });
    await finished(queue, 8);
    await plain.close();
    expect(lab.inversions()).toEqual([]);
    expect(await lab.redis.zcard("bull:q:lane:ring")).toBe(3);

    await queue.addBulk(jobsOf("aaabbbee"));
    lab.worker(undefined, rules);
    await finished(queue, 16);
    expect(keysOf(lab).slice(8)).toBe("abeabeab");
    await until(async () => (await lab.leftovers()).length === 0);
  });

  it("is reported if workers differ in it", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker(undefined, rules);
    await until(async () => (await queue.setups()).length === 1);
    lab.worker();
    await until(() => lab.errors.length > 0);
    expect(lab.errors[0]).toBeInstanceOf(WorkerMismatchError);
    expect(await queue.check()).toMatchObject([{ code: "OTHER_PER_KEY", severity: "error" }]);
  });

  it.each([
    [{ between: "turns" }, RangeError, 'between must be "arrival", "rotate"'],
    [{ between: { rotate: { weights: { a: 0 } } } }, RangeError, "between must be"],
    [{ between: { rotate: { weight: 3 } } }, TypeError, "between must be"],
    [{ between: "rotate", whenBusy: "drop" }, RangeError, 'between must be "arrival" where whenBusy is "drop"'],
  ])("refuses %j", (options, kind, message) => {
    const make = (): unknown => new ExclusiveWorker("q", null, { connection: {}, key: "k", ...(options as object) });
    expect(make).toThrow(kind);
    expect(make).toThrow(message);
  });
});

it("finds quiet keys behind a hot one, and serves each in turn, in two processes of which one is killed", async () => {
  await using lab = await Lab.start();
  const queue = lab.queue();
  const options = {
    lockDuration: 2_000,
    stalledInterval: 300,
    recheckInterval: 1_000,
    concurrency: 1,
    drainDelay: 1,
    maxStalledCount: 10,
    between: "rotate",
  } as const;
  await queue.addBulk(jobs(400, () => "hot", 3));
  await queue.addBulk(jobs(60, (i) => `quiet ${i % 20}`, 3));
  const { history, spawn } = await startCrew(lab, options);
  const dying = spawn();
  await until(async () => (await history.llen("history")) >= 20);
  spawn();
  await dying.kill();
  spawn();
  await finished(queue, 460, 40_000);
  expect(await queue.getFailedCount()).toBe(0);
  const starts = (await readHistory(history)).filter(({ what }) => what === "start");
  const findLatestRun = new Map(starts.map(({ key }, at) => [key, at]));
  findLatestRun.delete("hot");
  // The key of the killed process waits until its job has stalled, however many jobs of other keys run in the meantime.
  const [, last] = [...findLatestRun.values()].sort((a, b) => b - a);
  // Ten pages of look-ahead, one start in each of three rounds, and some more for jobs that ran again.
  expect(last).toBeLessThan(60 + 40);
  await until(async () => (await lab.leftovers()).length === 0);
});
