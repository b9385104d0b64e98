/** `perKey.concurrency`: how many jobs of a key run at a time, over all workers, and through the death of one. */
import { startRedis, until } from "@x/test-support";
import { describe, expect, it } from "vitest";
import { startCrew } from "./support/crew.ts";
import { type Event, readHistory } from "./support/history.ts";
import { finished, gate, jobs, Lab, redlockOn, SHORT_MS } from "./support/lab.ts";

const rules = { recheckInterval: 3_600_000, perKey: { concurrency: 3 } } as const;

/**
 * Returns the greatest number of runs of one key at a time. A run without an end has ended when its process was dead.
 */
function mostAtOnce(events: readonly Event[], deaths: ReadonlyMap<number, bigint>): number {
  const ends = events.filter(({ what }) => what === "end");
  const changes = events
    .filter(({ what }) => what === "start")
    .flatMap((start) => {
      const end = ends.find(({ jobId, pid, fencingToken }) => {
        return jobId === start.jobId && pid === start.pid && fencingToken === start.fencingToken;
      });
      const endNs = end === undefined ? deaths.get(start.pid) : BigInt(end.ns);
      if (endNs === undefined) throw new Error(`job ${start.jobId} of ${start.pid} has no end`);
      return [
        { ns: BigInt(start.ns), by: 1 },
        { ns: endNs, by: -1 },
      ];
    })
    .toSorted((a, b) => Number(a.ns - b.ns));
  let [running, most] = [0, 0];
  for (const { by } of changes) {
    running += by;
    most = Math.max(most, running);
  }
  return most;
}

describe.concurrent("the concurrency of a key", () => {
  it("runs jobs up to the limit, in order, and no more, across two workers", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const gates = Array.from({ length: 9 }, gate);
    const resources: string[] = [];
    const addWorker = (): unknown =>
      lab.worker(
        async (job, _signal, lock) => {
          if (job.data.k !== "a") return;
          resources.push(...lock.resources);
          await gates[job.data.i]?.passed;
        },
        { ...rules, concurrency: 6 },
      );
    addWorker();
    addWorker();
    lab.defer(async () => {
      for (const each of gates) each.open();
    });
    await queue.addBulk([...jobs(9, () => "a"), ...jobs(6, (i) => `other ${i}`)]);
    const ofKey = (): number[] => lab.ran.filter(({ key }) => key === "a").map(({ i }) => i);
    await finished(queue, 6);
    await until(() => resources.length === 3);
    // Two jobs that are handed out at the same time may start in any order.
    expect(new Set(ofKey())).toEqual(new Set([0, 1, 2]));
    expect(resources.toSorted()).toEqual(["a", "a\u001f1", "a\u001f2"]);
    expect(await queue.listKeys()).toMatchObject([{ key: "a", holder: "1", holders: ["1", "2", "3"], parked: 6 }]);
    expect(await queue.jobsOf("a")).toMatchObject({
      holders: ["1", "2", "3"],
      parked: ["4", "5", "6", "7", "8", "9"],
    });
    expect((await queue.explain("5"))?.message).toBe(
      'key "a": behind 1 other job, jobs 1, 2, 3 have it (3 of 3 slots)',
    );
    expect((await queue.explain("2"))?.verdict).toBe("runs");
    // The second job ends: its slot goes to the first job in line, together with the slot's lock.
    gates[1]?.open();
    await until(() => resources.length === 4);
    expect(resources[3]).toBe("a\u001f1");
    for (const [index, done] of [0, 2, 3, 4, 5].entries()) {
      gates[done]?.open();
      await until(() => resources.length === 5 + index);
    }
    for (const each of gates) each.open();
    await finished(queue, 15);
    expect(ofKey().slice(3)).toEqual([3, 4, 5, 6, 7, 8]);
    const tokens = lab.ran.map(({ fencingToken }) => fencingToken);
    expect(new Set(tokens).size).toBe(15);
    expect(await lab.leftovers()).toEqual([]);
    expect(lab.errors).toEqual([]);
  });

  it("keeps plain code out of the first slot only", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    lab.worker(undefined, { ...rules, timeout: SHORT_MS, perKey: { concurrency: 2 } });
    const held = await redlockOn(lab, lab.connection).acquire("a");
    await queue.addBulk(jobs(5, () => "a"));
    await finished(queue, 4);
    expect(new Set(lab.ran.map(({ i }) => i))).toEqual(new Set([1, 2, 3, 4]));
    await held.release();
    await finished(queue, 5);
    expect(await lab.leftovers()).toEqual([]);
  });

  it("works together with several keys, a rate, pauses, and locks on other nodes", async () => {
    await using lab = await Lab.start();
    await using locks = await startRedis();
    const queue = lab.queue();
    const redlock = redlockOn(lab, { path: locks.path });
    const perKey = { concurrency: 2, rate: { max: 1_000, duration: 60_000 } };
    lab.worker(undefined, { redlock, recheckInterval: 500, perKey });
    await queue.pauseKey("b", "for a while", { for: 300 });
    await queue.addBulk(jobs(60, (i) => [["a"], ["b"], ["a", "b"]][i % 3]));
    await finished(queue, 60, 30_000);
    expect(await queue.getFailedCount()).toBe(0);
    await until(async () => (await lab.leftovers()).every((key) => key.includes("lane:starts=")));
    expect(lab.errors).toEqual([]);
  });

  it("is reset to one job at a time by a worker without slots", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const running = gate();
    const first = lab.worker(async () => await running.passed, rules);
    await queue.addBulk(jobs(3, () => "a"));
    await until(() => lab.ran.length === 3);
    running.open();
    await finished(queue, 3);
    await first.close();
    lab.ran.length = 0;
    lab.worker();
    await queue.addBulk(jobs(5, () => "a"));
    await finished(queue, 8);
    expect(lab.overlaps()).toEqual([]);
    expect(await lab.leftovers()).toEqual([]);
  });
});

it("never runs more jobs of a key than its slots allow, in two processes that are killed one after the other", async () => {
  await using lab = await Lab.start();
  const queue = lab.queue();
  const options = {
    lockDuration: 2_000,
    stalledInterval: 300,
    recheckInterval: 1_000,
    timeout: SHORT_MS,
    concurrency: 6,
    drainDelay: 1,
    maxStalledCount: 10,
    perKey: { concurrency: 3 },
  };
  const { history, spawn } = await startCrew(lab, options);
  await queue.addBulk(jobs(120, () => "a", 15));
  const deaths = new Map<number, bigint>();
  let dying = spawn();
  for (const started of [10, 30, 50]) {
    const next = spawn();
    await until(async () => (await history.llen("history")) >= 2 * started);
    // The moment of death, not the moment when it is noticed: by then other workers may have the jobs.
    deaths.set(dying.pid ?? 0, process.hrtime.bigint());
    await dying.kill();
    dying = next;
  }
  await finished(queue, 120, 40_000);
  expect(await queue.getFailedCount()).toBe(0);
  const events = await readHistory(history);
  expect(new Set(events.map(({ jobId }) => jobId)).size).toBe(120);
  expect(mostAtOnce(events, deaths)).toBe(3);
  await until(async () => (await lab.leftovers()).length === 0);
});
