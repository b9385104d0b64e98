/** A worker is killed exactly at each place where its death could leave a key stuck, lose a job or break the order. */
import { Redlock } from "@x/redlock-core";
import { spawnChild, startRedis, until } from "@x/test-support";
import { Redis } from "ioredis";
import { describe, expect, it } from "vitest";
import { type CrashPoint, judge, readHistory, type Task } from "./support/history.ts";
import { finished, gate, jobs, Lab } from "./support/lab.ts";

const child = new URL("./children/worker.ts", import.meta.url);
const tuned = {
  lockDuration: 2_000,
  stalledInterval: 300,
  recheckInterval: 1_000,
  timeout: 20,
  concurrency: 2,
  drainDelay: 1,
  maxStalledCount: 3,
};

interface Scene extends AsyncDisposable {
  readonly lab: Lab;
  readonly history: Redis;
  spawn(task?: Partial<Task>): ReturnType<typeof spawnChild>;
}

async function scene(): Promise<Scene> {
  const lab = await Lab.start();
  const server = await startRedis();
  const history = new Redis({ path: server.path });
  const paths = { queuePath: lab.server.path, historyPath: server.path };
  return {
    lab,
    history,
    spawn(task = {}) {
      const process = spawnChild(child, { args: [JSON.stringify({ ...paths, options: tuned, ...task })] });
      lab.defer(async () => await process.kill());
      return process;
    },
    async [Symbol.asyncDispose]() {
      await lab[Symbol.asyncDispose]();
      history.disconnect();
      await server.stop();
    },
  };
}

const points: readonly CrashPoint[] = [
  "fetched",
  "locked",
  "processing",
  "released",
  "before-finish",
  "finish-sent",
  "finished",
  "parked",
];

describe.concurrent.each(["skip", "block"] as const)("onFailure: %s", (onFailure) => {
  it.each(points)("loses nothing and leaves no key stuck when killed at %s", async (crashAt) => {
    await using stage = await scene();
    const { lab, history } = stage;
    const queue = lab.queue();
    await queue.addBulk([...jobs(6, () => "a"), ...jobs(3, () => "b")]);
    const options = { ...tuned, onFailure };
    const dying = stage.spawn({ crashAt, options });
    const { signal } = await dying.exited;
    const deaths = new Map([[dying.pid ?? 0, process.hrtime.bigint()]]);
    expect(signal).toBe("SIGKILL");
    stage.spawn({ options });
    await finished(queue, 9, 15_000);
    expect(await queue.getFailedCount()).toBe(0);
    const verdict = judge(await readHistory(history), deaths);
    expect(verdict).toEqual({ overlaps: [], inversions: [], tokenRegressions: [], started: 9 });
    await until(async () => (await lab.leftovers()).length === 0);
  });
});

it.each(["before-delay", "yielded"] as const)(
  "runs a job again whose process died at %s, while plain code held its lock",
  async (crashAt) => {
    await using stage = await scene();
    const { lab, history } = stage;
    const queue = lab.queue();
    const redlock = new Redlock(lab.connection, { ttl: 5_000, autoExtend: true });
    lab.defer(async () => await redlock.close());
    const held = await redlock.acquire("a");
    await queue.addBulk(jobs(3, () => "a"));
    await stage.spawn({ crashAt }).exited;
    stage.spawn();
    await held.release();
    await finished(queue, 3, 15_000);
    expect(judge(await readHistory(history))).toMatchObject({ overlaps: [], inversions: [], started: 3 });
    await until(async () => (await lab.leftovers()).length === 0);
  },
);

it("loses nothing when killed while keys are computed in JavaScript", async () => {
  await using stage = await scene();
  const { lab, history } = stage;
  const queue = lab.queue();
  await queue.addBulk(jobs(200, (i) => `k${i % 9}`));
  const deaths = new Map<number, bigint>();
  for (const crashAt of ["fetched", "finished", "parked"] as const) {
    const dying = stage.spawn({ crashAt, keyFunction: true });
    await dying.exited;
    deaths.set(dying.pid ?? 0, process.hrtime.bigint());
  }
  stage.spawn({ keyFunction: true });
  await finished(queue, 200, 20_000);
  expect(judge(await readHistory(history), deaths)).toMatchObject({ overlaps: [], inversions: [], started: 200 });
});

it("refuses the late writes and the result of a worker that was frozen past its leases", async () => {
  await using stage = await scene();
  const { lab, history } = stage;
  const queue = lab.queue();
  await queue.addBulk(jobs(3, () => "a"));
  const frozen = stage.spawn({ holdsUntilAborted: true });
  const isKind =
    (kind: string) =>
    (message: unknown): message is { kind: string; fencingToken: number } =>
      (message as { kind?: string }).kind === kind;
  const { fencingToken } = await frozen.message(isKind("holding"));
  frozen.freeze();
  const survivor = lab.worker(undefined, tuned);
  const writes: number[] = [];
  survivor.on("completed", () => writes.push(1));
  await finished(queue, 3, 15_000);
  const newest = Math.max(...lab.ran.map((run) => run.fencingToken));
  expect(Math.min(...lab.ran.map((run) => run.fencingToken))).toBeGreaterThan(fencingToken);
  await history.hset("store", { token: newest, value: "newest" });
  frozen.thaw();
  expect(await frozen.message(isKind("zombie"))).toMatchObject({ written: 0, isHeld: false });
  expect(await frozen.message(isKind("error"))).toBeDefined();
  expect(await history.hget("store", "value")).toBe("newest");
  expect((await queue.getJob("1"))?.returnvalue).toBeNull();
  expect(lab.ran.map((run) => run.i)).toEqual([0, 1, 2]);
});

it("continues after the queue's Redis was restarted with its data between jobs", async () => {
  await using lab = await Lab.start({ persistence: true });
  const queue = lab.queue();
  await queue.addBulk(jobs(150, (i) => `k${i % 6}`, 5));
  for (let n = 0; n < 2; n++) lab.worker(undefined, { ...tuned, concurrency: 5 });
  await until(() => lab.ran.length > 30);
  await lab.server.restart();
  await finished(queue, 150, 25_000);
  expect(await queue.getFailedCount()).toBe(0);
  expect(new Set(lab.ran.map((run) => run.jobId)).size).toBe(150);
  expect(lab.overlaps()).toEqual([]);
  await until(async () => (await lab.leftovers()).length === 0);
});

it.each(["close", "pause"] as const)("resolves a %s that began while no connection to Redis existed", async (name) => {
  await using lab = await Lab.start();
  let reconnects = 0;
  const retryStrategy = (): number => {
    reconnects += 1;
    return 1_000;
  };
  const connection = { path: lab.server.path, maxRetriesPerRequest: null, retryStrategy };
  const worker = lab.worker(undefined, { ...tuned, connection });
  await until(async () => String(await lab.redis.client("LIST")).includes("bzpopmin"));
  const before = reconnects;
  await lab.server.kill();
  // The worker's two connections wait for a second before they connect again.
  await until(() => reconnects === before + 2);
  // BullMQ's `pause()` rejects if the server is still down when it connects.
  await lab.server.start();
  await worker[name]();
});

it.each(["kill", "freeze"] as const)("closes by force after a %s of the queue's Redis", async (fault) => {
  await using lab = await Lab.start();
  const queue = lab.queue();
  const ended = gate();
  const busy = lab.worker(async () => await ended.passed, tuned);
  const idle = lab.worker(undefined, tuned, "idle");
  const interrupting = lab.worker(undefined, { ...tuned, whenBusy: "interrupt" }, "interrupting");
  await queue.addBulk(jobs(1, () => "a"));
  await until(() => lab.ran.length === 1);
  await Promise.all([idle.waitUntilReady(), interrupting.waitUntilReady()]);
  await lab.server[fault]();
  await Promise.all([busy, idle, interrupting].map(async (worker) => await worker.close(true)));
  ended.open();
  await lab.ended(1);
  if (fault === "freeze") lab.server.thaw();
  else await lab.server.start();
});
