/** Each policy of a key, in real processes one of which is killed while a job runs, others wait, and the end is open. */
import { spawnChild, startRedis } from "@x/test-support";
import { Redis } from "ioredis";
import { describe, expect, it } from "vitest";
import { judge, readHistory, type Task } from "./support/history.ts";
import { finished, Lab, until } from "./support/lab.ts";

const child = new URL("./children/worker.ts", import.meta.url);
const tuned = {
  lockDuration: 800,
  stalledInterval: 300,
  recheckInterval: 1_000,
  concurrency: 3,
  drainDelay: 1,
  maxStalledCount: 3,
};
const JOBS = 12;

describe.concurrent("a worker that is killed", () => {
  it.each([
    ["rate", { perKey: { rate: { max: 4, duration: 1_500 } } }],
    ["maxWaiting", { perKey: { maxWaiting: { max: 5 } } }],
    ["latest", { whenBusy: "latest" }],
    ["drop", { whenBusy: "drop" }],
    ["interrupt", { whenBusy: "interrupt" }],
    ["merge", { whenBusy: "merge", perKey: { batch: { size: 4 } } }],
  ] as const)("loses no job under %s, and each ends once, in one place", async (policy, options) => {
    for (const crashAt of ["processing", "finish-sent"] as const) {
      await using lab = await Lab.start();
      const server = await startRedis();
      const history = new Redis({ path: server.path });
      lab.defer(async () => {
        history.disconnect();
        await server.stop();
      });
      const spawn = (task: Partial<Task> = {}): ReturnType<typeof spawnChild> => {
        const paths = { queuePath: lab.server.path, historyPath: server.path };
        const process = spawnChild(child, {
          args: [JSON.stringify({ ...paths, options: { ...tuned, ...options }, ...task })],
        });
        lab.defer(async () => await process.kill());
        return process;
      };
      const queue = lab.queue();
      const ids = (
        await queue.addBulk(Array.from({ length: JOBS }, (_, i) => ({ name: "job", data: { k: "a", i, ms: 20 } })))
      ).map(({ id }) => String(id));
      const dying = spawn({ crashAt });
      expect((await dying.exited).signal).toBe("SIGKILL");
      const deaths = new Map([[dying.pid ?? 0, process.hrtime.bigint()]]);
      spawn();
      await finished(queue, JOBS);
      const places = await Promise.all(ids.map(async (id) => await (await queue.getJob(id))?.getState()));
      const failed = places.filter((state) => state === "failed").length;
      expect(places.filter((state) => state === "completed").length + failed, crashAt).toBe(JOBS);
      if (policy !== "maxWaiting") expect(failed, crashAt).toBe(0);
      const events = await readHistory(history);
      const { overlaps, inversions, tokenRegressions, started } = judge(events, deaths);
      expect({ overlaps, inversions, tokenRegressions }, crashAt).toEqual({
        overlaps: [],
        inversions: [],
        tokenRegressions: [],
      });
      // The newest one is never the one that gives way, and without a policy of the line each one runs.
      const last = events.some(({ i }) => i === JOBS - 1);
      if (policy === "latest" || policy === "interrupt") expect(last, crashAt).toBe(true);
      if (policy === "rate") expect(started, crashAt).toBe(JOBS);
      if (policy === "rate") expect(await windowsOver(lab, 4, 1_500), crashAt).toEqual([]);
      const returned = await Promise.all(ids.map(async (id) => (await queue.getJob(id))?.returnvalue as unknown));
      const ran = new Set(events.map(({ jobId }) => jobId));
      for (const [index, id] of ids.entries()) {
        // Whoever did not run says so, or was in the call of one that did.
        if (places[index] !== "completed" || ran.has(id)) continue;
        if (policy === "merge") expect(returned[index], `${crashAt}: job ${id}`).toBe("done");
        else expect(returned[index], `${crashAt}: job ${id}`).toHaveProperty("notRun");
      }
      await until(async () => (await lab.leftovers()).filter((key) => !key.includes("lane:starts")).length === 0);
    }
  });
});

/** Starts of more than `max` in a window, by the clock of the queue's Redis, which has counted them in the same step. */
async function windowsOver(lab: Lab, max: number, windowMs: number): Promise<string[]> {
  const events = await lab.redis.xrange("bull:q:events", "-", "+");
  const starts = events.filter(([, fields]) => fields[1] === "active").map(([id]) => Number(id.split("-")[0]));
  return starts.flatMap((ms, index) => {
    const before = starts[index - max];
    return before !== undefined && ms - before < windowMs - 20 ? [`start ${index} ${ms - before} ms after`] : [];
  });
}
