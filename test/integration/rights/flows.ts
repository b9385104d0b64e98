/**
 * The main functions of each package, called by the user of a URL. A flow prepares its scene through the server's
 * socket.
 */
import { createRequire } from "node:module";
import { setTimeout as delay } from "node:timers/promises";
import { runConsole } from "@x/console";
import { LeaderElection, type LeaderTerm } from "@x/leader";
import { LeaderScheduler } from "@x/leader/scheduler";
import { type NodeSource, Redlock, type RedlockOptions } from "@x/redlock-core";
import { glideNode } from "@x/redlock-core/glide";
import { CountDownLatch, ReadWriteLock, Semaphore } from "@x/semaphore";
import { type RedisServer, waitersOf } from "@x/test-support";
import { ExclusiveQueue, ExclusiveWorker, type ExclusiveWorkerOptions } from "@x/workers";
import { FlowProducer, QueueEvents } from "bullmq";
import { createClient } from "redis";
import { expect, onTestFinished } from "vitest";

export interface FlowPlace {
  readonly server: RedisServer;
  /** URL with the user under test. */
  readonly url: string;
  readonly keyPrefix: string;
}

const patient = { timeout: 8_000 };
const soon = { drainTimeout: 0 };

export function openRedlock(source: NodeSource, options: RedlockOptions): Redlock {
  const redlock = new Redlock(source, { quarantine: false, nodeTimeout: 5_000, timeout: 20_000, ...options });
  onTestFinished(() => redlock.close());
  return redlock;
}

/** Resolves when another caller waits for the resource. */
async function isAwaited({ server, keyPrefix }: FlowPlace, resource: string): Promise<void> {
  await expect.poll(() => waitersOf(server, keyPrefix + resource), patient).toBe(1);
}

function openQuarantined({ url, keyPrefix }: FlowPlace): Redlock {
  return openRedlock(url, { keyPrefix, quarantine: true, ttl: 1_000, maxTtl: 1_000 });
}

async function lockWith(source: () => NodeSource, place: FlowPlace): Promise<void> {
  const { keyPrefix } = place;
  const open = (): Redlock => openRedlock(source(), { keyPrefix, name: "billing" });
  const [a, b] = [open(), open()];
  const lock = await a.acquire("r", { autoExtend: true });
  expect(await b.tryAcquire("r")).toBeNull();
  const waiting = b.acquire("r", { autoExtend: true });
  await isAwaited(place, "r");
  await lock.extend();
  expect(await lock.release()).toBe(true);
  const next = await waiting;
  expect(await a.inspect("r")).toMatchObject({ verdict: "held", fencingToken: next.fencingToken });
  expect(await a.forceRelease("r")).toBe(true);
  expect(await next.release()).toBe(false);
  await (await a.acquire(["r", "s"])).release();
  await a.using("r", () => undefined);
  expect(await a.check()).toEqual([]);
}

async function locks(place: FlowPlace): Promise<void> {
  await lockWith(() => place.url, place);
  await lockWith(() => createClient({ url: place.url }), place);
  // A loaded machine may lose such a short lock. Each request is made all the same.
  await (await openQuarantined(place).acquire("r")).release();
}

/** Undefined if Valkey GLIDE is not installed. */
export function locksWithGlide(): ((place: FlowPlace) => Promise<void>) | undefined {
  let Client: Parameters<typeof glideNode>[0];
  try {
    const require = createRequire(new URL("../../../packages/redlock-core/package.json", import.meta.url));
    ({ GlideClient: Client } = require("@valkey/valkey-glide") as { readonly GlideClient: typeof Client });
  } catch {
    return undefined;
  }
  return async (place) => {
    const { hostname: host, port, username, password } = new URL(place.url);
    const settings = { addresses: [{ host, port: Number(port) }], credentials: { username, password } };
    await lockWith(() => glideNode(Client, settings), place);
  };
}

async function semaphores(place: FlowPlace): Promise<void> {
  await (await new Semaphore(openQuarantined(place), "new", { permits: 1 }).acquire()).release();
  const open = (): Redlock => openRedlock(place.url, { keyPrefix: place.keyPrefix });
  const [a, b] = [open(), open()];
  const [ours, theirs] = [a, b].map((redlock) => new Semaphore(redlock, "gpu", { permits: 2, autoExtend: true }));
  const both = await ours?.acquire({ permits: 2 });
  const waiting = theirs?.acquire();
  await expect.poll(async () => (await ours?.inspect())?.waiting, patient).toBe(1);
  await both?.extend();
  await both?.release();
  await (await waiting)?.release();
  const [first, second] = [a, b].map((redlock) => new ReadWriteLock(redlock, "report", { autoExtend: true }));
  const reading = await first?.read.acquire();
  const writing = second?.write.acquire();
  await expect.poll(async () => (await first?.inspect())?.waiting, patient).toBe(1);
  await reading?.release();
  await (await writing)?.release();
  const [set, wait] = [a, b].map((redlock) => new CountDownLatch(redlock, "round"));
  for (const round of [1, 2]) {
    expect(await set?.set(1)).toBe(true);
    const opens = wait?.wait();
    expect(await set?.countDown(`part ${round}`)).toBe(0);
    await opens;
  }
}

function candidate({ url, keyPrefix }: FlowPlace, id: string): LeaderElection {
  const election = new LeaderElection(openRedlock(url, { keyPrefix }), { name: "boss", id, cooldown: { initial: 10 } });
  onTestFinished(() => election.stop(soon));
  return election;
}

async function elections(place: FlowPlace): Promise<void> {
  const [a, b] = [candidate(place, "a"), candidate(place, "b")];
  const untilAsked = ({ signal }: LeaderTerm): Promise<void> =>
    new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
  const running = a.run(untilAsked).catch(() => undefined);
  await expect.poll(() => a.isLeader(), patient).toBe(true);
  const campaign = b.campaign();
  await isAwaited(place, "leader:boss");
  expect(await b.leader()).toMatchObject({ id: "a" });
  expect(await b.requestResign()).toBe(true);
  const term = await campaign;
  expect(await a.leader()).toMatchObject({ id: "b" });
  await term.resign();
  for (const each of [a, b]) await each.stop(soon);
  await running;
}

async function schedules(place: FlowPlace): Promise<void> {
  const ticks: string[] = [];
  const [here, there] = ["a", "b"].map((id) => {
    const election = candidate(place, id);
    const scheduler = new LeaderScheduler({ election });
    scheduler.every("fast", 100, () => void ticks.push(id));
    scheduler.handle("mail", () => undefined);
    onTestFinished(() => scheduler.stop(soon));
    return { scheduler, election };
  }) as [Scheduled, Scheduled];
  here.scheduler.start();
  await expect.poll(() => ticks.length, patient).toBeGreaterThan(1);
  there.scheduler.start();
  await isAwaited(place, "leader:boss");
  const report = { kind: "mail", cron: "0 3 * * *" };
  await there.scheduler.reconcile([{ name: "report", ...report }]);
  await there.scheduler.upsert("other", report);
  expect(await there.scheduler.preview("report", 2)).toHaveLength(2);
  for (const act of ["trigger", "pause", "resume"] as const) await there.scheduler[act]("fast");
  expect(await there.scheduler.remove("report")).toBe(true);
  await there.scheduler.list();
  expect(await there.election.requestResign()).toBe(true);
  await expect.poll(() => ticks.at(-1), patient).toBe("b");
  await expect.poll(async () => (await here.scheduler.history("fast")).length, patient).toBeGreaterThan(0);
  for (const { scheduler } of [here, there]) await scheduler.stop(soon);
}

interface Scheduled {
  readonly scheduler: LeaderScheduler;
  readonly election: LeaderElection;
}

interface Data {
  readonly k: string;
  readonly fails?: boolean;
}

/** BullMQ's options for the server of a URL. */
function connectionOf(url: string): { readonly url: string; readonly maxRetriesPerRequest: null } {
  return { url, maxRetriesPerRequest: null };
}

/** Queues by name, with the options of their workers. Each option sends scripts of its own. */
const QUEUES: Readonly<Record<string, Partial<ExclusiveWorkerOptions<Data>>>> = {
  plain: { onFailure: "block", perKey: { rate: { max: 1_000, duration: 1_000 }, maxWaiting: { max: 100 } } },
  merge: { whenBusy: "merge" },
  interrupt: { whenBusy: "interrupt" },
  rotate: { between: "rotate", perKey: { concurrency: 2 } },
};

async function workers(place: FlowPlace): Promise<void> {
  for (const [name, options] of Object.entries(QUEUES)) await workOn(place, name, options);
  await flowOn(place);
}

function queueAt({ url }: FlowPlace, name: string): ExclusiveQueue<Data> {
  const queue = new ExclusiveQueue<Data>(name, { connection: connectionOf(url) });
  onTestFinished(() => queue.close());
  return queue;
}

function workerAt(
  { url, keyPrefix }: FlowPlace,
  name: string,
  options: Partial<ExclusiveWorkerOptions<Data>> = {},
): ExclusiveWorker<Data> {
  const worker = new ExclusiveWorker<Data>(
    name,
    async ({ data, attemptsMade }) => {
      if (data.fails === true && attemptsMade === 0) throw new Error("the first attempt fails");
      // Long enough for an extension of the lock.
      await delay(data.fails === true ? 1_200 : 2);
    },
    {
      connection: connectionOf(url),
      lockDuration: 2_000,
      key: "k",
      resource: keyPrefix,
      concurrency: 5,
      timeout: 50,
      ...options,
    },
  );
  worker.on("error", (error) => expect.soft(error).toBeUndefined());
  onTestFinished(() => worker.close());
  return worker;
}

async function workOn(place: FlowPlace, name: string, options: Partial<ExclusiveWorkerOptions<Data>>): Promise<void> {
  const queue = queueAt(place, name);
  const worker = workerAt(place, name, options);
  // Plain code of another service.
  const plain = openRedlock({ path: place.server.path }, { keyPrefix: place.keyPrefix });
  const held = await plain.acquire("b");
  const { id: waiting = "" } = await queue.add("job", { k: "b" });
  const jobs = Array.from({ length: 10 }, (_, i) => ({
    name: "job",
    data: { k: "a", fails: i === 2 },
    opts: { attempts: 2, priority: i % 3 },
  }));
  await queue.addBulk(jobs);
  // Outside a slot, the job waits for the turn of its lock, and then inspects the lock.
  await expect.poll(async () => (await queue.explain(waiting))?.verdict, patient).toBe("waits-for-lock");
  await isAwaited(place, "b");
  await held.release();
  await expect.poll(() => queue.getJobCountByTypes("completed", "failed"), patient).toBe(11);
  expect(await queue.pauseKey("a")).toBe(true);
  await queue.add("job", { k: "a" });
  await queue.setKeyPolicy("a", { rate: { max: 20, duration: 1_000 } });
  await queue.listKeyPolicies();
  await queue.getKeyPolicy("a");
  await queue.removeKeyPolicy("a");
  await queue.setExclusion("watch", { force: true });
  await queue.exclusion();
  await queue.setExclusion("on", { force: true });
  for (const read of ["listKeys", "overview", "counts", "check", "setups"] as const) await queue[read]();
  await queue.readKey("a");
  await queue.jobsOf("a", { state: "all" });
  await queue.explain("1");
  await queue.exportPrometheusMetrics();
  await queue.resumeKey("a");
  await worker.close();
  await queue.cancel("12");
  await queue.cancelKey("a");
  await queue.removeJobs("a");
  await queue.add("job", { k: "b" }, { delay: 1_000 });
  await queue.upsertJobScheduler("s", { every: 100_000 }, { name: "job", data: { k: "b" } });
  await queue.getJobSchedulers();
  await queue.removeJobScheduler("s");
  await queue.pause();
  await queue.resume();
  await queue.getJobs(["waiting", "delayed"]);
  await queue.getJobCounts();
  await queue.clean(0, 10, "completed");
  await queue.drain(true);
  await queue.obliterate({ force: true });
  await queue.close();
}

/** A job with a child, and a caller that waits for the job's end. */
async function flowOn(place: FlowPlace): Promise<void> {
  const connection = connectionOf(place.url);
  const events = new QueueEvents("plain", { connection });
  const producer = new FlowProducer({ connection });
  onTestFinished(() => events.close());
  onTestFinished(() => producer.close());
  const worker = workerAt(place, "plain");
  await events.waitUntilReady();
  const part = { name: "job", queueName: "plain" };
  const { job } = await producer.add({ ...part, data: { k: "a" }, children: [{ ...part, data: { k: "b" } }] });
  await job.waitUntilFinished(events, 20_000);
  await worker.close();
}

/** Commands of the console. */
const COMMANDS: readonly string[] = [
  "check",
  "locks inspect r",
  "leader status boss",
  "leader watch boss",
  "schedules list boss",
  "schedules trigger boss fast",
  "schedules history boss fast",
  "schedules pause boss fast",
  "schedules resume boss fast",
  "schedules preview boss report",
  "schedules remove boss report",
  "keys top plain",
  "keys jobs plain a",
  "keys explain plain 2",
  "keys retry plain 1",
  "keys pause plain a",
  "keys policy plain a --max-waiting 5",
  "keys policies plain",
  "keys exclusion plain",
  "keys policy plain a --remove",
  "problems",
  "serve --actions",
  "keys drop plain a",
  "keys cancel plain 2",
  "keys cancel plain --key a",
  "keys resume plain a",
  "locks release r",
  "leader resign boss",
];

async function consoleAt({ url, keyPrefix }: FlowPlace, command: string): Promise<void> {
  const prefix = keyPrefix === "" ? [] : ["--key-prefix", keyPrefix];
  const ending = new AbortController();
  let text = "";
  const write = (written: string): void => void (text += written);
  const running = runConsole([...prefix, "--no-quarantine", "--yes", ...command.split(" ")], {
    isInteractive: false,
    env: { REDIS_URL: url },
    signal: ending.signal,
    write,
    writeError: write,
    confirm: () => Promise.resolve(true),
  });
  if (command.startsWith("serve")) {
    const address = (): string => /http:\S+/.exec(text)?.[0] ?? "";
    await expect.poll(address, patient).not.toBe("");
    const page = async (): Promise<string> => await (await fetch(`${address()}state`)).text();
    // The page has found the lock, the semaphore, the election, the schedule and the queue.
    for (const found of ['"resource":"r"', '"gpu"', '"boss"', '"fast"', '"plain"'])
      await expect.poll(page, patient).toContain(found);
    ending.abort();
  } else if (command.includes("watch")) {
    await expect.poll(() => text, patient).toContain("boss: x leads");
    ending.abort();
  }
  const code = await running;
  expect({ command, text, code }).toMatchObject({ code: 0 });
}

async function consoles(place: FlowPlace): Promise<void> {
  const { keyPrefix, server } = place;
  const redlock = openRedlock({ path: server.path }, { keyPrefix, name: "billing" });
  await redlock.acquire("r", { ttl: 60_000, maxHold: 60_000 });
  const election = new LeaderElection(redlock, { name: "boss", id: "x" });
  const scheduler = new LeaderScheduler({ election });
  onTestFinished(() => scheduler.stop(soon));
  scheduler.every("fast", 100_000, () => undefined);
  scheduler.handle("mail", () => undefined);
  scheduler.start();
  await expect.poll(async () => (await scheduler.list()).length, patient).toBe(1);
  await scheduler.upsert("report", { kind: "mail", cron: "0 3 * * *" });
  const permits = { permits: 2, ttl: 60_000 };
  await new Semaphore(redlock, "gpu", permits).acquire();
  // A lock and a semaphore of another service, which the user may not read.
  const other = openRedlock({ path: server.path }, { keyPrefix: "other:" });
  await other.acquire("r", { ttl: 60_000 });
  await new Semaphore(other, "others-gpu", permits).acquire();
  await workForConsole(place);
  const waiting = openRedlock({ path: server.path }, { keyPrefix }).acquire("r");
  await isAwaited(place, "r");
  for (const command of COMMANDS) await consoleAt(place, command);
  await (await waiting).release();
}

/** Creates a failed job, a running job, and a job that waits for the running job. */
async function workForConsole({ server, keyPrefix }: FlowPlace): Promise<void> {
  const connection = { path: server.path, maxRetriesPerRequest: null };
  const queue = new ExclusiveQueue<Data>("plain", { connection });
  onTestFinished(() => queue.close());
  let end = (): void => undefined;
  const ended = new Promise<void>((resolve) => (end = resolve));
  const worker = new ExclusiveWorker<Data>(
    "plain",
    async ({ data }) => {
      if (data.fails === true) throw new Error("the job fails");
      await ended;
    },
    { connection, key: "k", resource: keyPrefix, concurrency: 3 },
  );
  worker.on("error", () => undefined);
  onTestFinished(async () => {
    end();
    await worker.close();
  });
  await queue.addBulk([
    { name: "job", data: { k: "f", fails: true } },
    ...["a", "a"].map((k) => ({ name: "job", data: { k } })),
  ]);
  await expect.poll(async () => (await queue.jobsOf("a")).parked.length, patient).toBe(1);
  await expect.poll(() => queue.getFailedCount(), patient).toBe(1);
}

/** The main functions of each package, by the name of the package's user in the guide of rights. */
export const flows: Readonly<Record<string, (place: FlowPlace) => Promise<void>>> = {
  locks,
  semaphores,
  elections,
  schedules,
  workers,
  console: consoles,
};
