/** Five processes, one of which is killed every 1.5 s: checked by their recorded history. */
import { setTimeout as delay } from "node:timers/promises";
import { spawnChild, startRedis, until } from "@x/test-support";
import { Redis } from "ioredis";
import { expect, it } from "vitest";
import { judge, readHistory, type Task } from "./support/history.ts";
import { Lab } from "./support/lab.ts";

const child = new URL("./children/worker.ts", import.meta.url);
const processCount = 5;
const keyCount = 25;
const killEveryMs = 1_500;

/** Skewed: the first key gets about a quarter of the jobs. */
function skewed(i: number): string {
  const share = ((i * 7_919) % 5_000) / 5_000;
  return `k${Math.floor(keyCount ** share) - 1}`;
}

it.each([
  ["block", 5_000],
  ["skip", 5_000],
] as const)(
  "loses no job, lets none of a key overlap, and keeps their order (%s, %i jobs)",
  { timeout: 120_000 },
  async (onFailure, jobCount) => {
    await using server = await startRedis();
    await using lab = await Lab.start();
    const history = new Redis({ path: server.path });
    lab.defer(async () => history.disconnect());
    const queue = lab.queue();
    for (let i = 0; i < jobCount; i += 1_000) {
      await queue.addBulk(
        Array.from({ length: 1_000 }, (_, n) => ({ name: "job", data: { k: skewed(i + n), i: i + n, ms: 1 } })),
      );
    }
    const task: Task = {
      queuePath: lab.server.path,
      historyPath: server.path,
      options: {
        lockDuration: 1_200,
        stalledInterval: 400,
        recheckInterval: 2_000,
        concurrency: 8,
        drainDelay: 1,
        maxStalledCount: 1_000,
        onFailure,
      },
    };
    const deaths = new Map<number, bigint>();
    const spawn = (): ReturnType<typeof spawnChild> => {
      const process = spawnChild(child, { args: [JSON.stringify(task)] });
      lab.defer(async () => await process.kill());
      return process;
    };
    const workers = Array.from({ length: processCount }, spawn);
    const isDone = async (): Promise<boolean> => (await queue.getJobCountByTypes("completed", "failed")) === jobCount;
    for (let kills = 0; kills < 40 && !(await isDone()); kills++) {
      await delay(killEveryMs);
      const victim = (kills * 3) % processCount;
      // The moment of death, not the moment when it is noticed: by then other workers may have the jobs.
      deaths.set(workers[victim]?.pid ?? 0, process.hrtime.bigint());
      await workers[victim]?.kill();
      workers[victim] = spawn();
    }
    await until(isDone, 60_000);
    expect(await queue.getFailedCount()).toBe(0);
    await until(async () => (await lab.leftovers()).length === 0);
    const events = await readHistory(history);
    const verdict = judge(events, deaths);
    expect(verdict).toEqual({ overlaps: [], inversions: [], tokenRegressions: [], started: jobCount });
    expect(deaths.size).toBeGreaterThan(2);
  },
);
