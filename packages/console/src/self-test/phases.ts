/** The phases of the self-test. Each runs on a queue of its own, and throws `BrokenPromise` if a promise is broken. */
import { setTimeout as delay } from "node:timers/promises";
import type { JobData } from "./member.ts";
import { BrokenPromise, type Stage } from "./stage.ts";

export interface Phase {
  readonly name: string;
  readonly run: (stage: Stage) => Promise<void>;
}

type Added = Parameters<Stage["queue"]["addBulk"]>[0];

/** How often the phases with killed workers kill one. */
const KILLS = 5;
const SOAK_ROUNDS = 12;

function jobs(count: number, dataOf: (i: number) => Omit<JobData, "i">, opts: object = {}): Added {
  return Array.from({ length: count }, (_, i) => ({ name: "job", data: { i, ...dataOf(i) }, opts }));
}

function mustBe(isSo: boolean, fault: string): void {
  if (!isSo) throw new BrokenPromise(fault);
}

const exclusionAndOrder: Phase = {
  name: "exclusion and order",
  async run(stage) {
    await stage.queue.addBulk(jobs(300, (i) => (i % 8 === 7 ? {} : { k: `k${i % 8}` })));
    await Promise.all([stage.spawn(), stage.spawn(), stage.spawn()]);
    await stage.untilEnded(300);
    await stage.judge({ isOrdered: true });
  },
};

const stalledJobs: Phase = {
  name: "jobs of killed workers",
  async run(stage) {
    await stage.queue.addBulk(jobs(180, (i) => ({ k: `k${i % 6}`, ms: 25 })));
    const members = await Promise.all([stage.spawn(), stage.spawn()]);
    for (let kill = 1; kill <= KILLS; kill += 1) {
      await stage.until("a start", () => stage.events.length > kill * 30);
      await stage.kill(members.shift());
      members.push(await stage.spawn());
    }
    await stage.untilEnded(180);
    await stage.judge({ isOrdered: true });
  },
};

const orderedRetries: Phase = {
  name: "retries that keep the order",
  async run(stage) {
    const failuresOf = (i: number): number => i % 3;
    const opts = { attempts: 3, backoff: { type: "fixed", delay: 40 } };
    const added = await stage.queue.addBulk(jobs(36, (i) => ({ k: `k${i % 3}`, failures: failuresOf(i) }), opts));
    await stage.queue.addBulk(jobs(2, () => ({ k: "final", failures: 9 }), opts));
    const wanted = new Map(added.map(({ id, data }) => [String(id), failuresOf(data.i) + 1]));
    await Promise.all([stage.spawn({ onFailure: "block" }), stage.spawn({ onFailure: "block" })]);
    await stage.untilEnded(36, 2);
    await stage.judge({ isOrdered: true, runsOf: (jobId) => wanted.get(jobId) ?? 3 });
  },
};

const skippedRetries: Phase = {
  name: "retries that let the key move on",
  async run(stage) {
    const failuresOf = (i: number): number => (i % 4 === 0 ? 1 : 0);
    const added = await stage.queue.addBulk([
      ...jobs(20, (i) => ({ k: `k${i % 2}`, failures: failuresOf(i) }), { attempts: 2, backoff: 60 }),
      ...jobs(20, (i) => ({ k: `k${i % 2}`, failures: failuresOf(i) }), { attempts: 2 }),
    ]);
    const wanted = new Map(added.map(({ id, data }) => [String(id), failuresOf(data.i) + 1]));
    await Promise.all([stage.spawn(), stage.spawn()]);
    await stage.untilEnded(40);
    await stage.judge({ runsOf: (jobId) => wanted.get(jobId) ?? 1 });
  },
};

const delays: Phase = {
  name: "delays",
  async run(stage) {
    const added = await stage.queue.addBulk([
      ...jobs(12, (i) => ({ k: `k${i % 2}` }), { delay: 500 }),
      ...jobs(6, () => ({ k: "moved", delaysFor: 200 })),
    ]);
    await stage.spawn();
    await stage.untilEnded(18);
    const dueOf = new Map(added.map(({ id, timestamp, opts }) => [String(id), timestamp + (opts.delay ?? 0)]));
    for (const { jobId, what, atMs } of stage.events) {
      if (what === "start") mustBe(atMs >= (dueOf.get(jobId) ?? 0) - 50, `job ${jobId} started before it was due`);
    }
    const moved = new Set(added.filter(({ data }) => data.k === "moved").map(({ id }) => String(id)));
    await stage.judge({ runsOf: (jobId) => (moved.has(jobId) ? 2 : 1) });
  },
};

const priorities: Phase = {
  name: "priorities",
  async run(stage) {
    const added = await stage.queue.addBulk(
      Array.from({ length: 12 }, (_, i) => ({
        name: "job",
        data: { k: "k", i },
        opts: { priority: 1 + ((i * 5) % 4) },
      })),
    );
    await stage.spawn({ concurrency: 1 });
    await stage.untilEnded(12);
    const priorityOf = new Map(added.map(({ id, opts }) => [String(id), opts.priority ?? 0]));
    const started = stage.events.filter(({ what }) => what === "start").map(({ jobId }) => priorityOf.get(jobId) ?? 0);
    mustBe(
      started.every((priority, index) => index === 0 || priority >= (started[index - 1] ?? 0)),
      `jobs started with the priorities ${started.join(", ")}, expected ascending ones`,
    );
    await stage.judge({});
  },
};

const flows: Phase = {
  name: "flows",
  async run(stage) {
    const { name: queueName } = stage.queue;
    const trees = await stage.flows.addBulk(
      Array.from({ length: 6 }, (_, i) => ({
        name: "parent",
        queueName,
        data: { k: `p${i % 2}`, i: 100 + i },
        children: Array.from({ length: 3 }, (_child, c) => ({
          name: "child",
          queueName,
          data: { k: `k${c}`, i: 3 * i + c },
        })),
      })),
    );
    const waiting = await stage.queue.addBulk(jobs(6, (i) => ({ k: "w", childKey: `c${i}` })));
    await Promise.all([stage.spawn(), stage.spawn()]);
    await stage.untilEnded(6 + 18 + 6 + 6);
    for (const { job, children = [] } of trees) {
      const start = stage.events.find(({ jobId, what }) => jobId === job.id && what === "start");
      for (const child of children) {
        const end = stage.events.find(({ jobId, what }) => jobId === child.job.id && what === "end");
        mustBe(
          start !== undefined && end !== undefined && end.ns < start.ns,
          `parent ${job.id} started before its child ${child.job.id} had ended`,
        );
      }
    }
    const twice = new Set(waiting.map(({ id }) => String(id)));
    await stage.judge({ runsOf: (jobId) => (twice.has(jobId) ? 2 : 1) });
  },
};

const pauses: Phase = {
  name: "pauses of the queue and of a key",
  async run(stage) {
    await stage.queue.pause();
    await stage.queue.pauseKey("paused");
    await stage.spawn();
    await stage.queue.addBulk(jobs(12, (i) => ({ k: i % 2 === 0 ? "paused" : "k" })));
    await delay(400);
    mustBe(stage.events.length === 0, "a job started while the queue was paused");
    await stage.queue.resume();
    await stage.untilEnded(6);
    mustBe(!stage.events.some(({ key }) => key === "paused"), "a job started while its key was paused");
    await stage.queue.resumeKey("paused");
    await stage.untilEnded(12);
    await stage.judge({ isOrdered: true });
  },
};

const removals: Phase = {
  name: "removal of waiting jobs",
  async run(stage) {
    await stage.spawn();
    const [, ...waiting] = await stage.queue.addBulk(jobs(12, (i) => ({ k: "k", ms: i === 0 ? 1_500 : 1 })));
    await stage.queue.addBulk(jobs(5, () => ({ k: "k2", ms: 1_500 })));
    await stage.until("the parking of jobs", async () => (await stage.queue.counts()).parked === 15);
    for (const index of [0, 4, 5]) await waiting[index]?.remove();
    await waiting[7]?.promote();
    const removed = await stage.queue.removeJobs("k2");
    mustBe(removed === 4, `${removed} jobs of a key were removed, expected 4`);
    await stage.untilEnded(10);
    await stage.judge({ isOrdered: true });
    await stage.queue.obliterate({ force: true });
  },
};

const limits: Phase = {
  name: "several jobs of a key at a time",
  async run(stage) {
    await stage.queue.addBulk(jobs(60, (i) => ({ k: `k${i % 2}`, ms: 10 })));
    const options = { perKey: { concurrency: 2 } };
    await Promise.all([stage.spawn(options), stage.spawn(options)]);
    await stage.untilEnded(60);
    await stage.judge({ concurrency: 2 });
  },
};

/** Everything at the same time, with workers that are killed. Drawn with a fixed seed. */
const soak: Phase = {
  name: "everything at once, with killed workers",
  async run(stage) {
    let state = 1;
    const draw = (below: number): number => {
      state = (state * 48_271) % 2_147_483_647;
      return state % below;
    };
    const options = { onFailure: "block", concurrency: 6 } as const;
    const members = [await stage.spawn(options), await stage.spawn(options), await stage.spawn(options)];
    const wanted = new Map<string, number>();
    for (let round = 0; round < SOAK_ROUNDS; round += 1) {
      const added = await stage.queue.addBulk(
        Array.from({ length: 25 }, (_, i) => {
          const failures = draw(4) === 0 ? 1 + draw(2) : 0;
          const opts = {
            attempts: 3,
            backoff: 20 * draw(4),
            ...(draw(5) === 0 ? { delay: 50 * draw(8) } : {}),
            ...(draw(6) === 0 ? { priority: 1 + draw(3) } : {}),
            ...(draw(8) === 0 ? { lifo: true } : {}),
          };
          const key = draw(9);
          return {
            name: "job",
            data: { ...(key === 8 ? {} : { k: `k${key}` }), i: 25 * round + i, failures, ms: draw(15) },
            opts,
          };
        }),
      );
      for (const { id, data } of added) wanted.set(String(id), (data.failures ?? 0) + 1);
      if (round % 4 === 1) await stage.queue.pause();
      if (round % 3 === 2) {
        await stage.kill(members.shift());
        members.push(await stage.spawn(options));
      }
      await delay(150);
      if (round % 4 === 1) await stage.queue.resume();
      if (round % 5 === 3) await stage.queue.promoteJobs();
    }
    await stage.untilEnded(wanted.size);
    await stage.judge({ runsOf: (jobId) => wanted.get(jobId) ?? 1 });
  },
};

export const PHASES: readonly Phase[] = [
  exclusionAndOrder,
  stalledJobs,
  orderedRetries,
  skippedRetries,
  delays,
  priorities,
  flows,
  pauses,
  removals,
  limits,
  soak,
];
