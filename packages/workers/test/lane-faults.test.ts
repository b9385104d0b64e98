/** Scripts of the lane that fail halfway: Redis keeps their earlier writes, and no job may be lost. */

import { setTimeout as delay } from "node:timers/promises";
import { until } from "@x/test-support";
import { type JobLock, LaneError } from "@x/workers";
import type { Job, Queue } from "bullmq";
import { Redis } from "ioredis";
import { describe, expect, it, vi } from "vitest";
import type { ComposedScript, composeScripts, LaneScripts } from "../src/bullmq/rules/compose.ts";
import { type Data, finished, Lab } from "./support/lab.ts";

const HEAD = "local call, try = redis.call, redis.pcall";

/** In every run of a script, the lane's command with the number in `<queue>:fault` fails. BullMQ's own commands do not. */
const FAULTY_HEAD = `
local faultKey, step = string.match(KEYS[1], '^[^:]*:[^:]*:') .. 'fault', 0
local faultAt = tonumber(redis.call('GET', faultKey) or 0)
local function isDue()
  step = step + 1
  if step == faultAt then redis.call('INCR', faultKey .. 's') return true end
end
local function call(...) if isDue() then error({err = 'NOPERM injected'}) end return redis.call(...) end
local function try(...) if isDue() then return {err = 'NOPERM injected'} end return redis.pcall(...) end
`;

vi.mock("../src/bullmq/rules/compose.ts", async (original) => {
  const actual: { composeScripts: typeof composeScripts } = await original();
  const faulty = (script: ComposedScript): ComposedScript => {
    if (!script.lua.includes(HEAD)) throw new Error(`${script.name} has another head`);
    return { ...script, name: `faulty:${script.name}`, lua: script.lua.replace(HEAD, FAULTY_HEAD) };
  };
  const allFaulty = <T extends string>(scripts: Readonly<Record<T, ComposedScript>>): Record<T, ComposedScript> =>
    Object.fromEntries(Object.entries<ComposedScript>(scripts).map(([name, each]) => [name, faulty(each)])) as Record<
      T,
      ComposedScript
    >;
  // Hundreds of workers have the same few rules, and all texts of one are 1.6 MB.
  const composed = new Map<string, LaneScripts>();
  return {
    ...actual,
    composeScripts: (...args: Parameters<typeof composeScripts>): LaneScripts => {
      const rules = JSON.stringify(args.slice(1));
      const known = composed.get(rules);
      if (known !== undefined) return known;
      const { commands, operate, cancel } = actual.composeScripts(...args);
      const scripts = { commands: allFaulty(commands), operate: faulty(operate), cancel: faulty(cancel) };
      composed.set(rules, scripts);
      return scripts;
    },
  };
});

const LISTS = ["wait", "paused", "active"];
const SETS = ["prioritized", "delayed", "waiting-children", "completed", "failed"];

/** Returns in how many places each job is at one moment. */
async function places({ redis }: Lab, queue: string): Promise<Map<string, number>> {
  const transaction = redis.multi();
  for (const list of LISTS) transaction.lrange(`bull:${queue}:${list}`, 0, -1);
  for (const set of SETS) transaction.zrange(`bull:${queue}:${set}`, "0", "-1");
  const counts = new Map<string, number>();
  for (const [, ids] of (await transaction.exec()) ?? []) {
    for (const id of ids as string[]) counts.set(id, (counts.get(id) ?? 0) + 1);
  }
  return counts;
}

async function misplaced(lab: Lab, queue: string, ids: readonly string[]): Promise<string[]> {
  const counts = await places(lab, queue);
  return ids.filter((id) => counts.get(id) !== 1).map((id) => `${id} in ${counts.get(id) ?? 0} places`);
}

const options = { recheckInterval: 100, drainDelay: 1, lockDuration: 3_000, stalledInterval: 500, concurrency: 4 };

/** A step takes a second. Next to other work, twenty-four servers have taken ten times as long. */
const STEP_MS = 45_000;

function isToFail(job: Job<Data>): boolean {
  return job.data.i % 4 === 3 && job.attemptsMade === 0;
}

async function fill(queue: Queue<Data>, count: number): Promise<string[]> {
  const added = await queue.addBulk(
    Array.from({ length: count }, (_, i) => ({
      name: "job",
      data: { k: [undefined, "a", "a", ["a", "b:c"], "b:c", "a"][i % 6], i },
      opts: { attempts: 2, ...(i % 5 === 4 ? { priority: 1 + (i % 2) } : {}) },
    })),
  );
  return added.map((job) => String(job.id));
}

describe.concurrent("a script of the lane that fails halfway", () => {
  it.each([
    { onFailure: "skip", from: "path" },
    { onFailure: "halt", from: "function" },
    { onFailure: "skip", from: "path", whenBusy: "latest" },
    { onFailure: "block", from: "path", whenBusy: "interrupt" },
    { onFailure: "skip", from: "path", slots: 2 },
    { onFailure: "skip", from: "path", between: "rotate" },
  ] as const)(
    "loses no job, whichever of its commands fails; $onFailure, key by $from, $whenBusy, $slots, $between",
    async ({
      onFailure,
      from,
      ...others
    }: {
      readonly onFailure: "skip" | "block" | "halt";
      readonly from: string;
      readonly whenBusy?: "latest" | "interrupt";
      readonly slots?: number;
      readonly between?: "rotate";
    }) => {
      const STEPS = 60;
      const errors: Error[] = [];
      let reached = 0;
      // On the server, queue and connections of the previous step, which already have the texts of all scripts.
      const one = async (lab: Lab, queue: Queue<Data>, connections: readonly Redis[], step: number): Promise<void> => {
        await lab.redis.flushdb();
        await lab.redis.set("bull:q:fault", step);
        const ids = await fill(queue, 24);
        const key =
          from === "path" ? ("k" as const) : (job: { readonly data: Data }) => job.data.k as string | undefined;
        const backedOff = new Set<number>();
        const body = (job: Job<Data>, _signal: AbortSignal, lock: JobLock): void => {
          const { i } = job.data;
          if (i % 7 === 2 && backedOff.size < backedOff.add(i).size) lock.backOff(30);
          if (onFailure === "skip" && isToFail(job)) throw new Error("to be retried");
        };
        const rate = { max: 4, duration: 60 };
        const { slots = 1, ...given } = others;
        const perKey = onFailure === "halt" || slots > 1 ? { rate, concurrency: slots } : {};
        // No job waits for the check for stalled jobs, or for the end of a lease.
        const rules = { ...options, lockDuration: 2 * STEP_MS, onFailure, key, resource: "q:", perKey, ...given };
        const workers = connections.map((connection) => lab.worker(body, { ...rules, connection }));
        const isReached = async (): Promise<boolean> => (await lab.redis.exists("bull:q:faults")) === 1;
        // If no script has this step, the step is not reached, and all jobs end.
        await until(async () => {
          expect(await misplaced(lab, "q", ids), `step ${step}`).toEqual([]);
          return (await isReached()) || (await queue.getJobCountByTypes("completed", "failed")) === ids.length;
        }, STEP_MS);
        // Even while three rechecks fail.
        for (let n = 0; n < 8; n++) {
          await delay(40);
          expect(await misplaced(lab, "q", ids), `step ${step}`).toEqual([]);
        }
        await lab.redis.del("bull:q:fault");
        await until(async () => {
          expect(await misplaced(lab, "q", ids), `step ${step}, afterwards`).toEqual([]);
          return (await queue.getJobCountByTypes("completed", "failed")) === ids.length;
        }, STEP_MS);
        expect(
          (await queue.getFailed()).map(
            (job) => `${job.id} ${job.failedReason} ${job.attemptsMade} ${job.attemptsStarted}`,
          ),
          `step ${step}: failed`,
        ).toEqual([]);
        if (await isReached()) reached += 1;
        await Promise.all(workers.map((worker) => worker.close()));
      };
      // A third of the steps is enough to reach the parts for slots, turns and superseded jobs.
      const stride = Object.keys(others).length === 0 ? 1 : 3;
      const steps = Array.from({ length: STEPS / stride }, (_, n) => (n + 1) * stride);
      await Promise.all(
        [1, 2, 3, 4].map(async () => {
          await using lab = await Lab.start();
          const queue = lab.queue();
          const connections = [1, 2].map(() => new Redis(lab.connection));
          lab.defer(async () => await Promise.all(connections.map((connection) => connection.quit())));
          for (let step = steps.shift(); step !== undefined; step = steps.shift())
            await one(lab, queue, connections, step);
          errors.push(...lab.errors);
        }),
      );
      expect(reached).toBeGreaterThan(40 / stride);
      expect(errors.some((error) => error instanceof LaneError)).toBe(true);
    },
    300_000,
  );

  it.each(["lane:holders", "lane:line=a", "lane:line=b\u001fc", "lane:paused", "lane:seq"])(
    "loses no job while the key %s has another type",
    async (name) => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const ids = await fill(queue, 24);
      const free = await queue.add("job", { k: "free", i: 0 });
      await lab.redis.rpush(`bull:q:${name}`, "planted");
      const body = (job: Job<Data>): void => {
        if (isToFail(job)) throw new Error("to be retried");
      };
      lab.worker(body, options);
      if (name !== "lane:holders") await until(async () => (await free.getState()) === "completed");
      await until(async () => {
        expect(await misplaced(lab, "q", ids)).toEqual([]);
        return name === "lane:paused" || lab.errors.some((error) => error instanceof LaneError);
      });
      // Longer than the time after which a job stalls: a job that cannot be judged does not stall.
      await delay(5_000);
      expect(await misplaced(lab, "q", ids)).toEqual([]);
      await lab.redis.del(`bull:q:${name}`);
      const raw = lab.errors.filter((error) => /WRONGTYPE/.test(error.message) && !(error instanceof LaneError));
      expect(raw).toEqual([]);
      await finished(queue, ids.length + 1);
      expect(await queue.getFailedCount()).toBe(0);
      expect(lab.overlaps()).toEqual([]);
      expect(await queue.counts()).toMatchObject({ parked: 0, busyKeys: 0 });
    },
  );

  // BullMQ's own texts do not contain these commands, or use them only before the first change.
  it.each(["hsetnx", "zrank", "xrevrange", "xdel", "pttl", "zscore", "hdel", "hmget"])(
    "loses no job while the worker may not use %s",
    async (command) => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const ids = await fill(queue, 24);
      await lab.redis.call("ACL", "SETUSER", "worker", "on", "nopass", "~*", "&*", "+@all", `-${command}`);
      const connection = { ...lab.connection, username: "worker", password: "x" };
      lab.worker(undefined, { ...options, connection });
      // Even while ten rechecks fail.
      for (let n = 0; n < 10; n++) {
        await delay(100);
        expect(await misplaced(lab, "q", ids)).toEqual([]);
      }
      await lab.redis.call("ACL", "SETUSER", "worker", "+@all");
      await finished(queue, ids.length);
      expect(await queue.getFailedCount()).toBe(0);
      expect(await misplaced(lab, "q", ids)).toEqual([]);
      expect(lab.overlaps()).toEqual([]);
    },
  );

  it("runs a job whose key JavaScript computes, even if the hash of the next job has another type", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    await queue.addBulk([1, 2].map((i) => ({ name: "job", data: { k: "a", i } })));
    await lab.redis.set("bull:q:2", "planted");
    lab.worker(undefined, { ...options, key: (job) => job.data.k as string });
    await finished(queue, 1);
    expect(lab.ran.map(({ i }) => i)).toEqual([1]);
  });

  it("keeps a key stopped if its pause is unreadable", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker(undefined, options);
    await queue.pauseKey("a");
    await lab.redis.hset("bull:q:lane:paused", "a", "no JSON");
    await queue.addBulk([
      { name: "job", data: { k: "a", i: 0 } },
      { name: "job", data: { k: "b", i: 1 } },
    ]);
    await finished(queue, 1);
    expect(lab.ran.map(({ key }) => key)).toEqual(["b"]);
    expect(await queue.resumeKey("a")).toBe(true);
    await finished(queue, 2);
    expect(lab.errors).toEqual([]);
  });
});
