/** Each policy of a key, in real processes one of which is killed while a job runs, others wait, and the end is open. */
import { until } from "@x/test-support";
import { describe, expect, it } from "vitest";
import { startCrew } from "./support/crew.ts";
import { type Event, judge, readHistory } from "./support/history.ts";
import { finished, Lab } from "./support/lab.ts";

const tuned = {
  lockDuration: 2_000,
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
  ] as const)("loses no job under %s, and each job ends once, in one place", async (policy, options) => {
    for (const crashAt of ["processing", "finish-sent"] as const) {
      await using lab = await Lab.start();
      const { history, spawn } = await startCrew(lab, { ...tuned, ...options });
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
      const { overlaps, tokenRegressions, started } = judge(events, deaths);
      // Only jobs in the full line have an order: a job whose worker died while failing it returns at any time.
      const inLine = policy === "maxWaiting" ? events.filter(({ i }) => i <= options.perKey.maxWaiting.max) : events;
      const { inversions } = judge(inLine, deaths);
      expect({ overlaps, inversions, tokenRegressions }, crashAt).toEqual({
        overlaps: [],
        inversions: [],
        tokenRegressions: [],
      });
      // The newest job is never dropped, and without a policy of the line each job runs.
      const last = events.some(({ i }) => i === JOBS - 1);
      if (policy === "latest" || policy === "interrupt") expect(last, crashAt).toBe(true);
      if (policy === "rate") expect(started, crashAt).toBe(JOBS);
      if (policy === "rate") expect(await windowsOver(lab, 4, 1_500), crashAt).toEqual([]);
      const returned = await Promise.all(ids.map(async (id) => (await queue.getJob(id))?.returnvalue as unknown));
      const ran = new Set(events.map(({ jobId }) => jobId));
      for (const [index, id] of ids.entries()) {
        // A job that did not run has a result that says so, or was in the call of another job.
        if (places[index] !== "completed" || ran.has(id)) continue;
        if (policy === "merge") expect(returned[index], `${crashAt}: job ${id}`).toBe("done");
        else expect(returned[index], `${crashAt}: job ${id}`).toHaveProperty("notRun");
      }
      await until(async () => (await lab.leftovers()).filter((key) => !key.includes("lane:starts")).length === 0);
    }
  });

  it("loses no job under a policy that changes, and runs no more jobs than the policy allows", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const { history, spawn } = await startCrew(lab, { ...tuned });
    lab.worker(undefined, { autorun: false });
    const phases: Phase[] = [];
    const deaths = new Map<number, bigint>();
    const slots = [3, 1, 2, 3] as const;
    let older = spawn();
    for (const [index, concurrency] of slots.entries()) {
      const newer = spawn();
      await until(() => older.messages.length > 0 && newer.messages.length > 0);
      const rate = index === slots.length - 1 ? { max: 4, duration: 1_500 } : undefined;
      phases.push({ sentNs: process.hrtime.bigint(), concurrency });
      await queue.setKeyPolicy("a", { concurrency, rate });
      // A job was judged under the policy that was set before the job was added, or under a later policy.
      const data = Array.from({ length: JOBS / 2 }, (_, i) => ({ k: "a", i: index * 100 + i, ms: 50 }));
      await queue.addBulk(data.map((each) => ({ name: "job", data: each })));
      await until(async () => (await readHistory(history)).some(({ i }) => i === index * 100 + 2));
      // The moment of death, not the moment when it is noticed: by then other workers may have the jobs.
      deaths.set(older.pid ?? 0, process.hrtime.bigint());
      expect((await older.kill()).signal).toBe("SIGKILL");
      older = newer;
    }
    const count = (slots.length * JOBS) / 2;
    await finished(queue, count);
    expect(await queue.getJobCountByTypes("completed")).toBe(count);
    const events = await readHistory(history);
    expect(tooMany(events, deaths, phases)).toEqual([]);
    expect(judge(events, deaths).started).toBe(count);
    expect(await windowsOver(lab, 4, 1_500, (count * 3) / 4)).toEqual([]);
    expect(await queue.removeKeyPolicy("a")).toBe(true);
    await until(async () => (await lab.leftovers()).filter((key) => !key.includes("lane:starts")).length === 0);
    expect(lab.errors).toEqual([]);
  });
});

interface Phase {
  /** When the policy was sent. */
  readonly sentNs: bigint;
  readonly concurrency: number;
}

/**
 * Returns the starts at which more jobs of living processes ran than any policy allowed at the time of the decision.
 */
function tooMany(events: readonly Event[], deaths: ReadonlyMap<number, bigint>, phases: readonly Phase[]): string[] {
  const endOf = (start: Event): bigint | undefined => {
    const end = events.find(
      ({ what, jobId, fencingToken }) => what === "end" && jobId === start.jobId && fencingToken === start.fencingToken,
    );
    return end === undefined ? deaths.get(start.pid) : BigInt(end.ns);
  };
  const starts = events.filter(({ what }) => what === "start").map((start) => ({ start, endNs: endOf(start) }));
  return starts.flatMap(({ start }) => {
    const ns = BigInt(start.ns);
    const running = starts.filter(
      (each) => BigInt(each.start.ns) <= ns && (each.endNs === undefined || each.endNs > ns),
    );
    const said = phases.filter(({ sentNs }, index) => index >= Math.floor(start.i / 100) && sentNs <= ns);
    const most = Math.max(...said.map(({ concurrency }) => concurrency));
    return running.length > most ? [`${running.length} ran with job ${start.jobId}, ${most} may`] : [];
  });
}

/**
 * Returns the windows with more than `max` starts of jobs whose ID is greater than `after`, by the clock of the queue's
 * Redis.
 *
 * A script notes the event and counts the start one after the other. A busy machine may stop Redis between the two.
 */
async function windowsOver(lab: Lab, max: number, windowMs: number, after = 0): Promise<string[]> {
  const events = await lab.redis.xrange("bull:q:events", "-", "+");
  const active = events.filter(([, fields]) => fields[1] === "active" && Number(fields[3]) > after);
  const starts = active.map(([id]) => Number(id.split("-")[0]));
  return starts.flatMap((ms, index) => {
    const before = starts[index - max];
    return before !== undefined && ms - before < windowMs - 100 ? [`start ${index} ${ms - before} ms after`] : [];
  });
}
