/** Policies that operators set for one key instead of the workers' `perKey`. */
import { until } from "@x/test-support";
import { describe, expect, it } from "vitest";
import { startCrew } from "./support/crew.ts";
import { readHistory } from "./support/history.ts";
import { finished, gate, jobs, Lab } from "./support/lab.ts";

// Within the time of a test, no timer brings a job back.
const rules = { recheckInterval: 3_600_000 } as const;

describe.concurrent("the policy of a key", () => {
  it("lets more jobs run at once when the limit rises, and fewer once the running jobs have ended", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const gates = Array.from({ length: 8 }, gate);
    lab.worker(async (job) => {
      if (job.data.k === "a") await gates[job.data.i]?.passed;
    }, rules);
    lab.defer(async () => {
      for (const each of gates) each.open();
    });
    const ofKey = (): number[] => lab.ran.filter(({ key }) => key === "a").map(({ i }) => i);
    await queue.addBulk(jobs(8, () => "a"));
    await until(async () => (await queue.getDelayedCount()) === 7);
    await queue.setKeyPolicy("a", { concurrency: 3 });
    await until(() => lab.ran.length === 3);
    expect(new Set(ofKey())).toEqual(new Set([0, 1, 2]));
    expect((await queue.jobsOf("a")).holders).toEqual(["1", "2", "3"]);
    expect(await queue.getKeyPolicy("a")).toEqual({ concurrency: 3 });
    await queue.setKeyPolicy("a", { concurrency: 1 });
    // The first slot is free, and two more jobs have the key than the policy allows.
    gates[0]?.open();
    await queue.addBulk(jobs(4, (i) => `other ${i}`));
    await finished(queue, 5);
    gates[2]?.open();
    await finished(queue, 6);
    expect(ofKey()).toHaveLength(3);
    expect((await queue.jobsOf("a")).holders).toEqual(["2"]);
    gates[1]?.open();
    await until(() => ofKey().length === 4);
    expect(ofKey()[3]).toBe(3);
    await queue.setKeyPolicy("a", { concurrency: 2 });
    await until(() => ofKey().length === 5);
    expect(await queue.removeKeyPolicy("a")).toBe(true);
    expect(await queue.getKeyPolicy("a")).toBeUndefined();
    gates[3]?.open();
    await finished(queue, 8);
    await queue.addBulk(jobs(1, () => "last"));
    await finished(queue, 9);
    expect((await queue.jobsOf("a")).holders).toEqual(["5"]);
    for (const each of gates) each.open();
    await finished(queue, 13);
    expect(ofKey().slice(3)).toEqual([3, 4, 5, 6, 7]);
    expect(await lab.leftovers()).toEqual([]);
    expect(await queue.removeKeyPolicy("a")).toBe(false);
    expect(lab.errors).toEqual([]);
  });

  it("holds back a chosen job when the limit falls before its start, and later starts it first", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const worker = lab.worker(undefined, { ...rules, autorun: false });
    await queue.setKeyPolicy("a", { concurrency: 2 });
    await queue.addBulk(jobs(4, () => "a"));
    const fetch = async (token: string): Promise<string | undefined> =>
      (await worker.getNextJob(token, { block: false }))?.id;
    expect(await fetch("one")).toBe("1");
    expect(await fetch("two")).toBe("2");
    expect(await fetch("three")).toBeUndefined();
    await queue.setKeyPolicy("a", { concurrency: 3 });
    // The third job was chosen, and has a slot.
    expect((await queue.jobsOf("a")).holders).toEqual(["1", "2", "3"]);
    await queue.setKeyPolicy("a", { concurrency: 2 });
    expect(await fetch("three")).toBeUndefined();
    expect((await queue.jobsOf("a")).holders).toEqual(["1", "2"]);
    expect((await queue.jobsOf("a")).parked).toEqual(["3", "4"]);
    await queue.setKeyPolicy("a", { concurrency: 3 });
    expect(await fetch("three")).toBe("3");
  });

  it("keeps the order of jobs if the key's only slot was given to a job that is not taken yet", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const worker = lab.worker(undefined, { ...rules, autorun: false });
    await queue.pauseKey("a", "until both wait");
    await queue.addBulk(jobs(3, () => "a"));
    expect(await worker.getNextJob("none", { block: false })).toBeUndefined();
    await queue.resumeKey("a");
    expect((await queue.jobsOf("a")).holders).toEqual(["1"]);
    await queue.setKeyPolicy("a", { concurrency: 3 });
    const ids: (string | undefined)[] = [];
    for (const token of ["one", "two", "three"]) ids.push((await worker.getNextJob(token, { block: false }))?.id);
    expect(ids).toEqual(["1", "2", "3"]);
    expect(await queue.removeKeyPolicy("a")).toBe(true);
    expect(await lab.redis.exists("bull:q:lane:chosen")).toBe(0);
  });

  it("lets another job run when the limit rises, although the process of the running job is gone", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const worker = lab.worker(undefined, { ...rules, autorun: false });
    await queue.addBulk(jobs(2, () => "a"));
    const fetch = async (token: string): Promise<string | undefined> =>
      (await worker.getNextJob(token, { block: false }))?.id;
    expect(await fetch("one")).toBe("1");
    // BullMQ's lock of the job expires. No worker has brought the job back yet.
    await lab.redis.del("bull:q:1:lock");
    await queue.setKeyPolicy("a", { concurrency: 2 });
    expect(await fetch("two")).toBe("2");
    expect((await queue.jobsOf("a")).holders).toEqual(["1", "2"]);
  });

  it("limits a key to a rate, and lets its jobs start when the rate is removed", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker(undefined, rules);
    await queue.setKeyPolicy("a", { rate: { max: 2, duration: 3_600_000 } });
    await queue.addBulk([...jobs(6, () => "a"), ...jobs(6, () => "b")]);
    await finished(queue, 8);
    expect(lab.ran.filter(({ key }) => key === "a").map(({ i }) => i)).toEqual([0, 1]);
    const [key] = await queue.listKeys();
    expect(key).toMatchObject({ key: "a", holder: undefined, parked: 4 });
    expect(key?.limitedUntilMs).toBeGreaterThan(Date.now() + 3_000_000);
    const limits = { policy: { rate: { max: 2, duration: 3_600_000 } }, slots: 1, rate: { counted: 2, max: 2 } };
    expect(key).toMatchObject(limits);
    const message = (await queue.explain("3"))?.message ?? "";
    const told = /until (\S+):/.exec(message)?.[1] ?? "";
    expect(message).toBe(`key "a": first in line, limited until ${told}: 2 of 2 starts in 3600 s, by its policy`);
    // Each answer is computed from its own reading of the clock.
    expect(Math.abs(Date.parse(told) - (key?.limitedUntilMs ?? 0))).toBeLessThan(60_000);
    expect(await queue.counts()).toMatchObject({ waitingKeys: 1, limitedKeys: 1 });
    // The recorded starts count against the new rate as well.
    await queue.setKeyPolicy("a", { rate: { max: 4, duration: 3_600_000 } });
    await finished(queue, 10);
    await queue.addBulk(jobs(3, () => "c"));
    await finished(queue, 13);
    expect(lab.ran.filter(({ key }) => key === "a").map(({ i }) => i)).toEqual([0, 1, 2, 3]);
    await queue.removeKeyPolicy("a");
    await finished(queue, 15);
    expect(lab.inversions()).toEqual([]);
    expect((await lab.leftovers()).filter((each) => !each.includes("lane:starts="))).toEqual([]);
    expect(lab.errors).toEqual([]);
  });

  it("starts the first job in line at the time that a new rate allows", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker(undefined, { ...rules, perKey: { rate: { max: 1, duration: 3_600_000 } } });
    await queue.addBulk(jobs(3, () => "a"));
    await until(async () => (await queue.getDelayedCount()) === 2);
    await queue.setKeyPolicy("a", { rate: { max: 1, duration: 500 } });
    await finished(queue, 3);
    expect(lab.inversions()).toEqual([]);
    expect(lab.overlaps()).toEqual([]);
  });

  it("remembers the starts that count in a longer window", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker(undefined, { ...rules, perKey: { rate: { max: 2, duration: 60_000 } } });
    await queue.addBulk(jobs(1, () => "a"));
    await finished(queue, 1);
    await queue.setKeyPolicy("a", { rate: { max: 2, duration: 3_600_000 } });
    expect(await lab.redis.pttl("bull:q:lane:starts=a")).toBeGreaterThan(3_000_000);
  });

  it("limits the line of a key for jobs added later", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const running = gate();
    lab.worker(async () => await running.passed, rules);
    lab.defer(async () => running.open());
    await queue.addBulk(jobs(5, () => "a"));
    await until(async () => (await queue.getDelayedCount()) === 4);
    await queue.setKeyPolicy("a", { maxWaiting: { max: 2, drop: "newest" } });
    await queue.addBulk([...jobs(2, () => "a"), ...jobs(2, () => "b")]);
    await until(async () => (await queue.getFailedCount()) === 2);
    expect(new Set((await queue.getFailed()).map(({ failedReason }) => failedReason))).toEqual(
      new Set([6, 7].map((id) => `job ${id}: the line of key "a" is full (perKey.maxWaiting)`)),
    );
    await queue.setKeyPolicy("a", { maxWaiting: { max: 2, drop: "oldest" } });
    await queue.addBulk(jobs(1, () => "a"));
    await until(async () => (await queue.getFailedCount()) === 5);
    expect((await queue.jobsOf("a")).parked).toEqual(["5", "10"]);
    running.open();
    await finished(queue, 10);
    expect(await queue.removeKeyPolicy("a")).toBe(true);
    expect(await lab.leftovers()).toEqual([]);
  });

  it("is kept until it is removed, and is listed even if the key has no jobs", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker(undefined, rules);
    const keys = Array.from({ length: 1_200 }, (_, i) => `k${i}`);
    await Promise.all(keys.map((key) => queue.setKeyPolicy(key, { concurrency: 2 })));
    await queue.addBulk(jobs(20, (i) => `k${i % 4}`));
    await finished(queue, 20);
    await queue.obliterate({ force: true });
    expect(await queue.listKeys()).toEqual([]);
    expect(await queue.counts()).toMatchObject({ busyKeys: 0, parked: 0 });
    const policies = await queue.listKeyPolicies({ limit: 5_000 });
    expect([...policies.keys()].toSorted()).toEqual(keys.toSorted());
    expect(policies.get("k7")).toEqual({ concurrency: 2 });
    expect((await queue.listKeyPolicies({ limit: 10 })).size).toBe(10);
    for (const key of keys) await queue.removeKeyPolicy(key);
    expect(await lab.leftovers()).toEqual([]);
  });

  it("is left out of the list when it is damaged, with an error that names the key, and can be set again", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const errors: Error[] = [];
    queue.on("error", (error) => errors.push(error));
    lab.worker(() => undefined, rules);
    await queue.setKeyPolicy("a", { concurrency: 2 });
    await queue.setKeyPolicy("b", { concurrency: 3 });
    for (const damaged of ["{", "[]", "null", "5"]) {
      errors.length = 0;
      await lab.redis.hset("bull:q:lane:holders", "a\u001f", damaged);
      expect([...(await queue.listKeyPolicies())]).toEqual([["b", { concurrency: 3 }]]);
      const message = `the stored policy is damaged, set or remove it: ${JSON.stringify(damaged)}`;
      expect(errors.map(String)).toEqual([`TypeError: key "a": ${message}`]);
      await expect(queue.getKeyPolicy("a")).rejects.toThrow(message);
    }
    await lab.redis.hset("bull:q:lane:holders", "a\u001f", "{");
    await queue.addBulk(jobs(1, () => "a"));
    await finished(queue, 1);
    await queue.setKeyPolicy("a", { concurrency: 4 });
    expect(await queue.getKeyPolicy("a")).toEqual({ concurrency: 4 });
  });

  it("is refused if it would have no effect in a running worker", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const refusal = async (given: Parameters<typeof lab.worker>[1], policy: object): Promise<unknown> => {
      await using worker = lab.worker(undefined, given);
      await until(async () => (await queue.setups()).length > 0);
      const refused = await queue.setKeyPolicy("a", policy).catch((error: Error) => error.message);
      await worker.close();
      return refused;
    };
    expect(await refusal({}, {})).toBe("policy must have one of concurrency, rate, maxWaiting, weight, got {}");
    expect(await refusal({}, { weight: 2 })).toContain("policy.weight must be left out");
    expect(await refusal({ onFailure: "block" }, { concurrency: 2 })).toContain("policy.concurrency must be 1");
    expect(await refusal({ whenBusy: "interrupt" }, { concurrency: 2 })).toContain("policy.concurrency must be 1");
    expect(await refusal({ whenBusy: "latest" }, { maxWaiting: { max: 5 } })).toContain("must be left out");
    expect(await refusal({ whenBusy: "merge" }, { maxWaiting: { max: 5, drop: "oldest" } })).toContain('"newest"');
    expect(
      await refusal({ onFailure: "block" }, { concurrency: 1, rate: { max: 5, duration: 1_000 } }),
    ).toBeUndefined();
    lab.worker(undefined, { onFailure: "halt" });
    await until(async () => (await queue.setups()).length === 1);
    const [other] = await queue.setups();
    expect(await refusal({}, { concurrency: 2 })).toContain(`whenBusy of ${other?.at}`);
    await expect(queue.setKeyPolicy("a", { weight: 2 })).rejects.toThrow(`between "arrival" of ${other?.at}`);
  });

  it("does not raise the concurrency of a worker that runs only one job of a key at a time", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    await queue.setKeyPolicy("a", { concurrency: 3 });
    lab.worker(undefined, { ...rules, onFailure: "block" });
    await queue.addBulk(jobs(12, () => "a"));
    await finished(queue, 12);
    expect(lab.overlaps()).toEqual([]);
    expect(lab.inversions()).toEqual([]);
  });

  it("is applied by the worker of another process immediately", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const { history, spawn } = await startCrew(lab, { ...rules, concurrency: 10, lockDuration: 10_000 });
    spawn();
    lab.worker(undefined, { ...rules, autorun: false });
    const starts = async (): Promise<number> =>
      (await readHistory(history)).filter(({ what }) => what === "start").length;
    await queue.setKeyPolicy("a", { rate: { max: 1, duration: 3_600_000 } });
    await queue.addBulk(jobs(30, () => "a"));
    await finished(queue, 1);
    await queue.addBulk(jobs(3, (i) => `b${i}`));
    await finished(queue, 4);
    expect(await starts()).toBe(4);
    await queue.setKeyPolicy("a", { rate: { max: 10, duration: 3_600_000 }, concurrency: 4 });
    await finished(queue, 13);
    await queue.addBulk(jobs(3, (i) => `c${i}`));
    await finished(queue, 16);
    expect(await starts()).toBe(16);
    await queue.removeKeyPolicy("a");
    await finished(queue, 36);
    const order = (await readHistory(history)).filter(({ what, key }) => what === "start" && key === "a");
    expect(order.slice(10).map(({ i }) => i)).toEqual(Array.from({ length: 20 }, (_, n) => n + 10));
  });
});
