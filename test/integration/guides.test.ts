/**
 * The code of the guides in the first two sections of the site does what the guides say. Each snippet runs unchanged on
 * a real server, with the names that its surrounding text assumes. test/fencing runs the code of the fencing guides.
 * The code of all other pages is compiled (snippets.test.ts), and not run.
 */
import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import * as effects from "@x/effects";
import * as leader from "@x/leader";
import * as nodeCron from "@x/leader/node-cron";
import * as scheduler from "@x/leader/scheduler";
import Redlock5 from "@x/node-redlock";
import Redlock4 from "@x/node-redlock/v4";
import * as core from "@x/redlock-core";
import * as semaphores from "@x/semaphore";
import * as redisSemaphore from "@x/semaphore/redis-semaphore";
import { isWithoutPostgres, type RedisServer, startPostgres, startRedis } from "@x/test-support";
import * as testing from "@x/testing";
import * as workers from "@x/workers";
import * as bullmq from "bullmq";
import { CronJob, type CronJobParams } from "cron";
import { Cron, type CronCallback, type CronOptions } from "croner";
import { transform } from "esbuild";
import * as ioredis from "ioredis";
import cron from "node-cron";
import { type Job, type JobCallback, scheduleJob } from "node-schedule";
import pg from "pg";
import { afterAll, beforeAll, expect, it, onTestFinished, vi } from "vitest";

interface Sidebar {
  readonly sidebarOf: (
    pages: readonly string[],
    titleOf: (page: string) => string,
  ) => readonly { readonly items: readonly { readonly link: string }[] }[];
}

const sidebar: string = new URL("../../site/sidebar.mjs", import.meta.url).href;
const { sidebarOf } = (await import(/* @vite-ignore */ sidebar)) as Sidebar;
const folder = fileURLToPath(new URL("../../docs/", import.meta.url));
const AsyncFunction = (async () => undefined).constructor as new (
  ...parts: readonly string[]
) => (...values: readonly unknown[]) => Promise<Record<string, unknown>>;

/** An object that a snippet has created, with or without a name. The test closes the last object first. */
type Closable = { close(): Promise<unknown> } | { stop(): Promise<unknown> } | { quit(): Promise<unknown> };

const run = new Set<string>();
let server: RedisServer;

beforeAll(async () => {
  server = await startRedis();
});
afterAll(() => server.stop());

const patient = { timeout: 20_000 } as const;
const connectionOf = (): bullmq.ConnectionOptions => ({ path: server.path, maxRetriesPerRequest: null });

/** Resolves when the Redlock is closed: then it refuses every call. */
async function untilClosed(redlock: core.Redlock): Promise<void> {
  await vi.waitUntil(
    () =>
      redlock.tryAcquire("after").then(
        () => false,
        () => true,
      ),
    patient,
  );
}

function tracked<Class extends new (...args: never[]) => Closable>(Made: Class): Class {
  return new Proxy(Made, {
    construct: (target, args: never[], newTarget) => {
      const made = Reflect.construct<never[], Closable>(target, args, newTarget as Class);
      if (made instanceof EventEmitter) made.on("error", () => undefined);
      onTestFinished(async () => await close(made));
      return made;
    },
  });
}

async function close(made: Closable): Promise<void> {
  if ("close" in made) await made.close();
  else if ("stop" in made) await made.stop();
  else await made.quit();
}

/** The schedules of the guides run at night, so the tests replace them. */
const EACH_SECOND = "* * * * * *";

/** Ends a schedule with the test. */
function stopped<End extends string, Schedule extends { readonly [Name in End]: () => unknown }>(
  schedule: Schedule,
  end: End,
): Schedule {
  onTestFinished(() => void schedule[end]());
  return schedule;
}

const modules: Record<string, object> = {
  "@x/leader": { ...leader, LeaderElection: tracked(leader.LeaderElection) },
  "@x/leader/scheduler": { ...scheduler, LeaderScheduler: tracked(scheduler.LeaderScheduler) },
  "@x/redlock-core": { ...core, Redlock: tracked(core.Redlock) },
  "@x/workers": {
    ...workers,
    ExclusiveQueue: tracked(workers.ExclusiveQueue),
    ExclusiveWorker: tracked(workers.ExclusiveWorker),
  },
  "@x/effects": { ...effects, OutboxRelay: tracked(effects.OutboxRelay) },
  "@x/leader/node-cron": nodeCron,
  // These classes close the clients that are passed to them.
  "@x/node-redlock": { default: Redlock5 },
  "@x/node-redlock/v4": { default: Redlock4 },
  "@x/semaphore": semaphores,
  "@x/semaphore/redis-semaphore": redisSemaphore,
  "@x/testing": testing,
  ioredis: { ...ioredis, Redis: tracked(ioredis.Redis) },
  "node:assert/strict": { default: assert },
  "node-cron": { default: cron },
  cron: {
    CronJob: {
      from: (options: CronJobParams): CronJob => stopped(CronJob.from({ ...options, cronTime: EACH_SECOND }), "stop"),
    },
  },
  croner: {
    Cron: class extends Cron {
      constructor(_pattern: string, ...rest: [CronOptions, CronCallback]) {
        super(EACH_SECOND, ...rest);
        stopped(this, "stop");
      }
    },
  },
  "node-schedule": {
    scheduleJob: (_pattern: string, run: JobCallback): Job => stopped(scheduleJob(EACH_SECOND, run), "cancel"),
  },
  bullmq: { ...bullmq, Queue: tracked(bullmq.Queue), Worker: tracked(bullmq.Worker) },
};

function snippetsOf(page: string): string[] {
  const text = readFileSync(`${folder}${page}.md`, "utf8");
  return [...text.matchAll(/^```ts\n([^]*?)^```/gm)].map((match) => match[1] ?? "");
}

/** Returns the import of a module as the declaration of a constant. */
function imported(clause: string, name: string): string {
  expect(modules).toHaveProperty([name]);
  const [, whole, list = whole === undefined ? "" : `default: ${whole}`] = /^(?:(\w+)|\{([^}]*)\})$/.exec(clause) ?? [];
  return `const {${list.replaceAll(" as ", ": ")}} = modules["${name}"];`;
}

/**
 * Runs snippet `index` of a page with `names` around it. Returns the constants that the snippet declares at its top
 * level.
 */
async function play<Names extends object>(page: string, index: number, names: object): Promise<Names> {
  run.add(`${page} ${index}`);
  const source = (snippetsOf(page)[index] ?? "").replaceAll("redis://localhost:6379", server.url);
  const { code } = await transform(source, { loader: "ts", format: "esm", target: "node20" });
  const body = code
    .replaceAll(/^import (.*) from "([^"]+)";$/gm, (_, clause: string, name: string) => imported(clause, name))
    .concat(`\nreturn { ${[...code.matchAll(/^const (\w+) =/gm)].map((match) => match[1]).join(", ")} };`);
  const around = { modules, ...modules["@x/workers"], connection: connectionOf(), ...names };
  // An inner function, because the snippet may import a name that also exists around it.
  const whole = `return await (async () => { ${body} })();`;
  return (await new AsyncFunction(...Object.keys(around), whole)(...Object.values(around))) as Names;
}

/** The part of `process` that a snippet uses. The test emits the signals. */
class Process extends EventEmitter {
  readonly env: object = { POD_NAME: "pod-1" };
}

function openRedlock(): core.Redlock {
  const redlock = new core.Redlock({ path: server.path }, { nodeTimeout: 5_000 });
  onTestFinished(() => redlock.close());
  return redlock;
}

function openQueue(name: string): workers.ExclusiveQueue {
  const queue = new workers.ExclusiveQueue(name, { connection: connectionOf() });
  queue.on("error", () => undefined);
  onTestFinished(() => queue.close());
  return queue;
}

/** A processor that records which jobs ran, in their order, and how many jobs of a key ran at a time. */
function recorder<Data extends object>(
  keyOf: (data: Data) => unknown,
): {
  readonly work: (data: Data) => Promise<void>;
  readonly ran: Data[];
  readonly most: () => number;
} {
  const ran: Data[] = [];
  const running = new Map<unknown, number>();
  let most = 0;
  const work = async (data: Data): Promise<void> => {
    const key = keyOf(data);
    const count = (running.get(key) ?? 0) + 1;
    running.set(key, count);
    most = Math.max(most, count);
    ran.push(data);
    await new Promise((resolve) => setTimeout(resolve, 2));
    running.set(key, (running.get(key) ?? 1) - 1);
  };
  return { work, ran, most: () => most };
}

const many = (count: number, dataOf: (i: number) => object): { name: string; data: object }[] =>
  Array.from({ length: count }, (_, i) => ({ name: "job", data: dataOf(i) }));

it("a cron task ran twice: of two replicas one sends the report", async () => {
  const sent: object[] = [];
  const processes = [new Process(), new Process()];
  const replicas = await Promise.all(
    processes.map((process) =>
      play<{ scheduler: scheduler.LeaderScheduler; redlock: core.Redlock }>("problems/cron-ran-twice", 0, {
        process,
        sendReport: async (report: object) => void sent.push(report),
      }),
    ),
  );
  await replicas[1]?.scheduler.trigger("nightly-report");
  await vi.waitUntil(() => sent.length > 0, patient);
  expect(sent).toEqual([{ night: expect.any(Date), signal: expect.any(AbortSignal) }]);
  for (const process of processes) process.emit("SIGTERM");
  for (const { redlock } of replicas) {
    await untilClosed(redlock);
  }
  expect(sent).toHaveLength(1);
});

it("from a queue per customer: one order of a customer at a time, in order", async () => {
  const { work, ran, most } = recorder<{ customerId: string; total: number }>(({ customerId }) => customerId);
  await play("problems/from-a-queue-per-customer", 0, { ship: work });
  await openQueue("orders").addBulk(many(20, (i) => ({ customerId: i % 2 === 0 ? "42" : "43", total: 100 + i })));
  await vi.waitUntil(() => ran.length === 21, patient);
  expect(most()).toBe(1);
  const totals = ran.filter(({ customerId }) => customerId === "42").map(({ total }) => total);
  expect(totals).toEqual([5, ...Array.from({ length: 10 }, (_, i) => 100 + 2 * i)]);
});

it("from Agenda: the leader enqueues a tick, and a worker runs it", async () => {
  const dunned: object[] = [];
  const found = await play<{ scheduler: scheduler.LeaderScheduler }>("problems/from-agenda", 0, {
    redlock: openRedlock(),
    queue: openQueue("invoices"),
    dun: async (data: object) => void dunned.push(data),
  });
  await found.scheduler.trigger("dunning");
  await vi.waitUntil(() => dunned.length > 0, patient);
  expect(dunned).toEqual([{ at: expect.any(String) }]);
});

it("from BullMQ Pro: at most three calls of a tenant at a time", async () => {
  const { work, ran, most } = recorder<{ tenantId: string }>(({ tenantId }) => tenantId);
  await play("problems/from-bullmq-pro", 0, {
    call: async (job: bullmq.Job) => await work(job.data as { tenantId: string }),
  });
  await openQueue("calls").addBulk(many(20, () => ({ tenantId: "a" })));
  await vi.waitUntil(() => ran.length === 20, patient);
  expect(most()).toBeLessThanOrEqual(3);
});

it("from client-go: one controller reconciles until it is asked to stop", async () => {
  const process = new Process();
  const terms: { signal: AbortSignal; fence: number }[] = [];
  const over = play("problems/from-client-go", 0, {
    redlock: openRedlock(),
    process,
    reconcile: async (term: { signal: AbortSignal; fence: number }) => {
      terms.push(term);
      await new Promise((resolve) => term.signal.addEventListener("abort", resolve));
    },
  });
  await vi.waitUntil(() => terms.length > 0, patient);
  process.emit("SIGTERM");
  await over;
  expect(terms).toHaveLength(1);
  expect(terms[0]?.fence).toBeGreaterThan(0);
});

it("from groupmq: the jobs of a project run one at a time, including jobs that fail and are retried", async () => {
  const { work, ran, most } = recorder<{ projectId: string; name: string }>(({ projectId }) => projectId);
  await play("problems/from-groupmq", 0, { store: work });
  await openQueue("events").addBulk(many(10, (i) => ({ projectId: "7", name: String(i) })));
  await vi.waitUntil(() => ran.length === 11, patient);
  expect(most()).toBe(1);
  expect(ran.map(({ name }) => name)).toEqual(["page view", ...Array.from({ length: 10 }, (_, i) => String(i))]);
});

it("from moveToDelayed: the job runs again later", async () => {
  const paid: object[] = [];
  const pay = async (data: object): Promise<void> => void paid.push(data);
  let tries = 0;
  const queue = openQueue("payments");
  await queue.add("pay", { accountId: "1" });
  await play("problems/from-move-to-delayed", 0, { pay, tryLock: async () => ++tries > 1 });
  await vi.waitUntil(() => paid.length === 1, patient);
  expect(tries).toBe(2);
});

it("from moveToDelayed: the worker of this project needs no moveToDelayed", async () => {
  const { work, ran, most } = recorder<{ accountId: string }>(({ accountId }) => accountId);
  await openQueue("payments").addBulk(many(10, () => ({ accountId: "2" })));
  await play("problems/from-move-to-delayed", 1, { pay: work });
  await vi.waitUntil(() => ran.length === 10, patient);
  expect(most()).toBe(1);
});

it.each([
  [0, 1],
  [1, 3],
])("one tenant starves the others: not here (snippet %i, at most %i jobs of a tenant)", async (index, limit) => {
  const { work, ran, most } = recorder<{ tenantId: string }>(({ tenantId }) => tenantId);
  await openQueue("imports").addBulk([
    ...many(100, () => ({ tenantId: "hot" })),
    ...many(10, (i) => ({ tenantId: `cold ${i}` })),
  ]);
  const importRow = async (job: bullmq.Job): Promise<void> => await work(job.data as { tenantId: string });
  await play("problems/one-tenant-starves-the-others", index, { importRow });
  await vi.waitUntil(() => ran.length === 110, patient);
  expect(most()).toBeLessThanOrEqual(limit);
  expect(ran.findLastIndex(({ tenantId }) => tenantId !== "hot")).toBeLessThan(109);
});

it("one turn per conversation: turns in order, and a stream that excludes them", async () => {
  const history: string[] = [];
  const fences: number[] = [];
  const { worker } = await play<{ worker: workers.ExclusiveWorker }>("problems/one-turn-per-conversation", 0, {
    loadHistory: async () => [...history],
    model: { reply: async (turns: readonly string[]) => `${turns.length}: ${String(turns.at(-1))}` },
    saveTurn: async (_id: string, answer: string, { fence }: { fence: number }) => {
      history.push(answer);
      fences.push(fence);
    },
  });
  await openQueue("turns").addBulk(many(5, (i) => ({ conversationId: "c", message: `message ${i}` })));
  await vi.waitUntil(() => history.length === 5, patient);
  expect(history).toEqual([0, 1, 2, 3, 4].map((i) => `${i + 1}: message ${i}`));
  expect(fences).toEqual([...fences].sort((a, b) => a - b));
  const streamed: unknown[] = [];
  await play("problems/one-turn-per-conversation", 1, {
    worker,
    conversationId: "c",
    response: "response",
    stream: async (response: unknown) => {
      await openQueue("turns").add("job", { conversationId: "c", message: "meanwhile" });
      streamed.push(response, history.length);
    },
  });
  await vi.waitUntil(() => history.length === 6, patient);
  expect(streamed).toEqual(["response", 5]);
});

it("zero-downtime deploys: running jobs end, and no job is left", async () => {
  const process = new Process();
  const redlock = openRedlock();
  const ended: string[] = [];
  const queue = openQueue("deploy");
  const started = new EventEmitter();
  let running = 0;
  const begin = (): void => {
    running += 1;
    if (running === 2) started.emit("both");
  };
  const both = new Promise((resolve) => started.once("both", resolve));
  const worker = new workers.ExclusiveWorker(
    "deploy",
    async () => {
      begin();
      await new Promise<void>((resolve) => worker.once("closing", () => resolve()));
      ended.push("job");
    },
    { connection: connectionOf(), key: "k" },
  );
  await queue.add("job", { k: 1 });
  const election = new leader.LeaderElection(redlock, { name: "deploy" });
  const leading = election.run(async (term) => {
    begin();
    await new Promise((resolve) => term.signal.addEventListener("abort", resolve));
    ended.push("task");
  });
  await both;
  const server = { close: () => ended.push("server") };
  await play("problems/zero-downtime-deploys", 0, { process, server, worker, election, redlock });
  process.emit("SIGTERM");
  await leading;
  await untilClosed(redlock);
  expect(ended[0]).toBe("server");
  expect([...ended].sort()).toEqual(["job", "server", "task"]);
});

/** The `redlock` of a page, whose clients are closed with the test. */
const client = (): ioredis.Redis => {
  const made = new ioredis.Redis(server.url, { maxRetriesPerRequest: null });
  onTestFinished(() => made.disconnect());
  return made;
};

it("payments and refunds of one account exclude each other, and so does plain code", async () => {
  const { work, ran, most } = recorder<{ accountId: string }>(({ accountId }) => accountId);
  const { worker } = await play<{ worker: workers.ExclusiveWorker }>("workers/exclusive-jobs", 0, { charge: work });
  await play("workers/exclusive-jobs", 1, { refund: async (job: bullmq.Job) => await work(job.data as never) });
  await openQueue("payments").addBulk(many(10, () => ({ accountId: "42" })));
  await openQueue("refunds").addBulk(many(10, () => ({ accountId: "42" })));
  await vi.waitUntil(() => ran.length === 20, patient);
  expect(most()).toBe(1);
  const locked: (readonly string[])[] = [];
  worker.redlock.on("acquired", ({ resources }) => locked.push(resources));
  await play("workers/exclusive-jobs", 2, { worker });
  expect(locked).toEqual([["account:42"]]);
  const printed: unknown[] = [];
  await play("workers/exclusive-jobs", 4, { worker, console: { log: (value: unknown) => printed.push(value) } });
  expect(printed).toEqual([expect.objectContaining({ active: 0, busyKeys: 0, parked: 0 }), []]);
});

it("two jobs charged one account: a balance is written with the fencing token", async () => {
  const redis = client();
  await redis.set("balance:7", 100);
  await play("workers/exclusive-jobs", 3, { redis });
  await openQueue("payments").addBulk(many(5, () => ({ accountId: "7", amount: 10 })));
  await expect.poll(() => redis.get("balance:7"), patient).toBe("50");
  expect(Number(await redis.get("{balance:7}:claim"))).toBeGreaterThan(0);
});

it("which Redis: a server that is new to the locks grants nothing", async () => {
  await client().flushall();
  const { redlock } = await play<{ redlock: core.Redlock }>("locks/which-redis", 0, {});
  await expect(redlock.tryAcquire("account:42")).rejects.toThrow(/quarantine/);
});

it("which nodes to deploy: two nodes that are one server are reported", async () => {
  const redlock = new core.Redlock([client(), client()], { nodeTimeout: 5_000 });
  onTestFinished(() => redlock.close());
  const printed: unknown[][] = [];
  await play("locks/choosing-nodes", 0, { redlock, console: { warn: (...line: unknown[]) => printed.push(line) } });
  expect(printed.map(([severity, code]) => [severity, code])).toContainEqual(["error", "SAME_SERVER"]);
});

it("losing a lock: loading stops, and nothing is charged", async () => {
  const redlock = openRedlock();
  const charged: unknown[] = [];
  const charge = async (...args: unknown[]): Promise<void> => void charged.push(args);
  await play("locks/losing-a-lock", 0, { redlock, load: async () => "account", charge });
  expect(charged).toEqual([["account", { fencingToken: expect.any(Number) }]]);
  const load = async (_id: number, { signal }: { signal: AbortSignal }): Promise<string> => {
    await redlock.forceRelease("account:42");
    signal.throwIfAborted();
    return "account";
  };
  await expect(play("locks/losing-a-lock", 0, { redlock, load, charge })).rejects.toThrow(core.LockLostError);
  expect(charged).toHaveLength(1);
});

it("debugging a stuck key: the job reports its reason to wait", async () => {
  const queue = openQueue("stuck");
  const worker = new workers.ExclusiveWorker(
    "stuck",
    async (job) => {
      if (job.id === "4702") await new Promise((resolve) => ended.once("end", resolve));
    },
    { connection: connectionOf(), key: "k", concurrency: 2 },
  );
  const ended = new EventEmitter();
  onTestFinished(() => worker.close());
  for (const id of [4702, 4711]) {
    await client().set("bull:stuck:id", id - 1);
    expect((await queue.add("job", { k: 42 })).id).toBe(String(id));
  }
  await vi.waitUntil(async () => (await queue.counts()).parked === 1, patient);
  const printed: unknown[] = [];
  await play("workers/stuck-key", 0, { queue, console: { log: (line: unknown) => printed.push(line) } });
  expect(printed).toEqual([expect.stringContaining("job 4702 has it")]);
  ended.emit("end");
});

it("a burst of edits of a busy key is one job, even while that job waits, and one more while it runs", async () => {
  const running: (() => void)[] = [];
  const syncDocument = async (): Promise<void> => await new Promise((resolve) => void running.push(resolve));
  const { edited } = await play<{
    edited: (documentId: string) => Promise<bullmq.Job>;
  }>("workers/busy-keys", 3, { syncDocument, Queue: tracked(bullmq.Queue) });
  const queue = openQueue("documents");
  const parked = async (): Promise<string | undefined> => (await queue.jobsOf("42")).parked.at(-1);
  await queue.pauseKey("42", "until its job waits for it");
  await edited("42");
  const first = await edited("42");
  await expect.poll(parked, patient).toBe(first.id);
  const second = await edited("42");
  expect(await queue.getJob(first.id ?? "")).toBeUndefined();
  await expect.poll(parked, patient).toBe(second.id);
  await queue.resumeKey("42");
  await vi.waitUntil(() => running.length === 1, patient);
  // Of the edits that arrive while the job runs, the newest is added when the job ends.
  for (let i = 0; i < 3; i++) await edited("42");
  expect(await queue.getJobCountByTypes("waiting", "delayed", "active")).toBe(1);
  running[0]?.();
  await vi.waitUntil(() => running.length === 2, patient);
  running[1]?.();
  await vi.waitUntil(async () => (await queue.getCompletedCount()) === 2, patient);
  expect(await queue.getJobCountByTypes("waiting", "delayed", "active")).toBe(0);
});

it("testing your own code: the test of the guide passes, and the faults occur", async () => {
  const tests: (() => Promise<void>)[] = [];
  modules["vitest"] = { test: (_name: string, run: () => Promise<void>) => tests.push(run) };
  await play("testing", 0, {});
  expect(tests).toHaveLength(1);
  for (const run of tests) await run();
  const clock = new testing.VirtualClock();
  let nodes: readonly testing.MemoryNode[] = [];
  const memoryNodes = (...args: Parameters<typeof testing.memoryNodes>): readonly testing.MemoryNode[] =>
    (nodes = testing.memoryNodes(...args));
  await play("testing", 1, { memoryNodes, clock });
  const ours = new core.Redlock(nodes, { clock });
  await expect(clock.until(ours.tryAcquire("account:42"))).rejects.toThrow(core.QuorumUnreachableError);
  await clock.advance(70_000);
  expect((await clock.until(ours.acquire("account:42"))).isHeld()).toBe(true);
  const { theirs } = await play<{ theirs: core.Redlock }>("testing", 2, {
    ...testing,
    clock,
    nodes,
    Redlock: core.Redlock,
  });
  let isSettled = false;
  const settle = (): void => void (isSettled = true);
  theirs.acquire("account:43").then(settle, settle);
  await clock.advance(100_000);
  // The process was killed.
  expect(isSettled).toBe(false);
  await clock.until(ours.close());
});

it("from node-redlock 5: its API, one import changed", async () => {
  const paid: unknown[] = [];
  await play("locks/from-node-redlock", 0, { client: client(), pay: async (to: unknown) => void paid.push(to) });
  expect(paid).toEqual([{ signal: expect.any(AbortSignal) }]);
});

it("from node-redlock 4: its API, one import changed", async () => {
  const found = await play<{ lock: { readonly expiration: number } }>("locks/from-node-redlock", 1, {
    client: client(),
  });
  // The lock was unlocked.
  expect(found.lock.expiration).toBe(0);
});

it("from redis-semaphore: its API and the API of this project admit three at a time", async () => {
  const redlock = openRedlock();
  const redis = client();
  for (const index of [0, 1]) {
    let running = 0;
    let most = 0;
    const report = async (): Promise<void> => {
      running += 1;
      most = Math.max(most, running);
      await new Promise((resolve) => setTimeout(resolve, 5));
      running -= 1;
    };
    const callers = Array.from({ length: 8 }, () =>
      play("problems/from-redis-semaphore", index, { redis, redlock, report }),
    );
    await Promise.all(callers);
    expect(most).toBeLessThanOrEqual(3);
  }
});

const isWithoutEffects = isWithoutPostgres();

it.skipIf(isWithoutEffects)("from a hand-made outbox: a job arrives by the old loop and by the relay", async () => {
  const postgres = await startPostgres();
  const pool = new pg.Pool({ connectionString: postgres.url });
  onTestFinished(async () => {
    await pool.end();
    await postgres.stop();
  });
  await pool.query("CREATE TABLE orders (id text); CREATE TABLE outbox (id serial, name text, payload json)");
  await pool.query(`INSERT INTO outbox (name, payload) VALUES ('old', '{ "orderId": "1" }')`);
  const queue = openQueue("orders");
  await play("problems/from-a-hand-made-outbox", 0, { pool, queue, lastId: 0 });
  expect((await queue.getWaiting()).map(({ id, data }) => [id, data])).toEqual([["outbox-1", { orderId: "1" }]]);
  const election = new leader.LeaderElection(openRedlock(), { name: "outbox" });
  onTestFinished(() => election.stop());
  await play("problems/from-a-hand-made-outbox", 1, { pool, election, orderId: "2" });
  await vi.waitUntil(async () => (await queue.getWaitingCount()) === 2, patient);
  expect((await queue.getWaiting()).map(({ name }) => name)).toContain("confirm");
});

it("from node-cron: a task with a name, and a distributed task", async () => {
  await play("leader/node-cron", 0, { sendReports: () => undefined });
  const [task] = [...cron.getTasks().values()];
  onTestFinished(() => task?.destroy());
  expect(task?.name).toBe("nightly-reports");
});

interface Claims {
  readonly claims: nodeCron.RunCoordinator;
}

it.each([
  ["cron", 2],
  ["croner", 3],
  ["node-schedule", 4],
])("from %s: each tick once in two replicas", async (library, index) => {
  const asked: string[] = [];
  const told: string[] = [];
  const sent: unknown[] = [];
  const errors: unknown[] = [];
  for (const _ of ["a replica", "another"]) {
    const { claims } = await play<Claims>("leader/node-cron", 1, { redlock: openRedlock() });
    const shouldRun = async (tick: string, ttlMs: number): Promise<boolean> => {
      const key = `${library} ${tick}`;
      asked.push(key);
      const isTold = await claims.shouldRun(key, ttlMs);
      if (isTold) told.push(key);
      return isTold;
    };
    await play("leader/node-cron", index, {
      claims: { shouldRun },
      log: { error: (error: unknown) => void errors.push(error) },
      sendReports: async () => void sent.push("reports"),
    });
  }
  await vi.waitUntil(() => told.length >= 2 && asked.length >= 4, patient);
  expect(new Set(told).size).toBe(told.length);
  await vi.waitUntil(() => sent.length >= 2, patient);
  expect(sent.length).toBeLessThanOrEqual(told.length);
  expect(errors).toEqual([]);
  // The replicas have the same name for a tick. With different names, each replica would be told to run the tick.
  expect(new Set(asked).size).toBeLessThan(asked.length);
});

it("from BullMQ's job schedulers: a tick is one job of its scheduler's key", async () => {
  const sent: { readonly fence: number }[] = [];
  const queue = openQueue("nightly");
  const sendReports = async (report: { readonly fence: number }): Promise<void> => void sent.push(report);
  for (const _ of ["a replica", "another"]) await play("leader/node-cron", 5, { queue, sendReports });
  const [job, ...others] = await queue.getDelayed();
  expect(others).toEqual([]);
  expect(job?.name).toBe("nightly-reports");
  await job?.promote();
  await vi.waitUntil(() => sent.length > 0, patient);
  expect(sent).toEqual([{ signal: expect.any(AbortSignal), fence: expect.any(Number) }]);
  expect(await openRedlock().inspect("schedule:nightly-reports")).toMatchObject({ fencingToken: sent[0]?.fence });
});

it("every snippet of these guides has been run", () => {
  const files = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".md"));
  const all = sidebarOf(
    files.map((file) => file.replace(/\.md$/, "")),
    String,
  )
    .slice(0, 2)
    .flatMap(({ items }) => items.map(({ link }) => link.slice(1)))
    .filter((page) => !page.startsWith("fencing") && !(isWithoutEffects && page === "problems/from-a-hand-made-outbox"))
    .flatMap((page) => snippetsOf(page).map((_, index) => `${page} ${index}`));
  expect([...run]).toEqual(expect.arrayContaining(all));
});
