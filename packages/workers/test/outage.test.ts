/** Workers while the queue's Redis is read-only or silent, although their connections to it stay open. */
import { type Clock, systemClock } from "@x/redlock-core";
import { errorOf, ManualClock, type RedisServer, startProxy, startRedis, until } from "@x/test-support";
import { type ExclusiveWorker, QueueUnreachableError } from "@x/workers";
import { Redis } from "ioredis";
import { describe, expect, it } from "vitest";
import type { BullTarget } from "../src/bullmq/bullmq.ts";
import { reconnectOnReadOnly } from "../src/bullmq/connections.ts";
import type { BullScripts } from "../src/bullmq/rules/compose.ts";
import { OperatorLane } from "../src/operators/operator-lane.ts";
import { readRegistry } from "../src/operators/worker-registry.ts";
import { type Data, finished, gate, Lab, redlockOn } from "./support/lab.ts";

const retryStrategy = (): number => 50;

/** BullMQ waits 5 s after a stalled check that failed, even if the worker is closed in the meantime. */
const tuned = { drainDelay: 1, skipStalledCheck: true };

/** A server with a successor, and a connection whose address leads to the server until `failOver`. */
async function startPair(lab: Lab): Promise<{
  readonly connection: { readonly host: string; readonly port: number; readonly retryStrategy: () => number };
  readonly promoted: RedisServer;
  readonly failOver: () => Promise<void>;
}> {
  const promoted = await startRedis();
  lab.defer(async () => await promoted.stop());
  const proxy = await startProxy({ path: lab.server.path });
  lab.defer(async () => await proxy.stop());
  return {
    connection: { host: proxy.host, port: proxy.port, retryStrategy },
    promoted,
    failOver: async () => {
      await lab.server.call("REPLICAOF", "127.0.0.1", promoted.port);
      proxy.redirect({ path: promoted.path });
    },
  };
}

describe("a primary that became a read-only replica and kept its connections", () => {
  it("is left by an idle worker and by a queue", async () => {
    await using lab = await Lab.start();
    const { connection, failOver } = await startPair(lab);
    lab.worker(undefined, { ...tuned, connection });
    const queue = lab.queue("q", { connection });
    await queue.add("job", { k: "a", i: 0 });
    await lab.ended(1);
    await failOver();
    const isAdded = async (): Promise<boolean> =>
      await queue.add("job", { k: "a", i: 1 }).then(
        () => true,
        () => false,
      );
    await until(isAdded);
    await lab.ended(2);
    expect(lab.errors.map(String)).toContainEqual(expect.stringContaining("READONLY"));
  });

  it("is left by a worker whose job ends on it", async () => {
    await using lab = await Lab.start();
    const { connection, promoted, failOver } = await startPair(lab);
    const ended = gate();
    lab.worker(async () => await ended.passed, { ...tuned, connection });
    await lab.queue().add("job", { k: "a", i: 0 });
    await until(() => lab.ran.length === 1);
    await failOver();
    ended.open();
    await lab.queue("q", { connection: { path: promoted.path } }).add("job", { k: "b", i: 1 });
    await lab.ended(2);
  });

  it("is not left by a client that the user has passed, unless its own settings say so", async () => {
    await using lab = await Lab.start();
    const client = new Redis({ path: lab.server.path, maxRetriesPerRequest: null });
    lab.defer(async () => await client.quit());
    const worker = lab.worker(undefined, { ...tuned, connection: client });
    await Promise.all([worker.waitUntilReady(), lab.queue("q", { connection: client }).waitUntilReady()]);
    expect(client.options.reconnectOnError).toBeNull();
  });
});

describe.concurrent("connections that go silent", () => {
  it("are replaced, so that the worker fetches jobs again", async () => {
    await using lab = await Lab.start();
    const proxy = await startProxy({ path: lab.server.path });
    lab.defer(async () => await proxy.stop());
    const connection = { host: proxy.host, port: proxy.port, retryStrategy };
    // The job's lock lasts for longer than the silence, which precedes the reply with the job.
    lab.worker(undefined, { ...tuned, connection, lockDuration: 60_000 });
    const queue = lab.queue();
    await queue.add("job", { k: "a", i: 0 });
    await finished(queue, 1);
    for (const each of proxy.connections) each.isSilent = true;
    await queue.add("job", { k: "a", i: 1 });
    await lab.ended(2);
    expect(lab.errors.map(String)).toContainEqual(expect.stringContaining("Socket timeout"));
  });

  it.each(["options", "a client"])("do not include a connection that waits for jobs, with %s", async (kind) => {
    await using lab = await Lab.start();
    const options = { path: lab.server.path, maxRetriesPerRequest: null, commandTimeout: 500, socketTimeout: 700 };
    const client = kind === "options" ? undefined : new Redis(options);
    lab.defer(async () => await client?.quit());
    lab.worker(undefined, { ...tuned, connection: client ?? options });
    await until(async () => (await lab.server.calls("bzpopmin")) >= 3);
    expect(lab.errors).toEqual([]);
  });
});

/** Half a minute passes in one and a half seconds. */
const fast: Clock = {
  ...systemClock,
  monotonicMs: () => 20 * systemClock.monotonicMs(),
  schedule: (afterMs, run, options) => systemClock.schedule(afterMs / 20, run, options),
};

describe("close()", () => {
  it.each(["a user's client", "options"])("resolves while the queue's Redis is frozen, with %s", async (kind) => {
    await using lab = await Lab.start();
    await using locks = await startRedis();
    const redlock = redlockOn(lab, locks.path, { clock: fast });
    const options = { path: lab.server.path, maxRetriesPerRequest: null, retryStrategy };
    const client = kind === "options" ? undefined : new Redis(options);
    client?.on("error", () => {});
    lab.defer(async () => client?.disconnect());
    const ended = gate();
    const of = (name: string): ExclusiveWorker<Data> =>
      lab.worker(async () => await ended.passed, { ...tuned, connection: client ?? options, redlock }, name);
    const [busy, idle] = [of("busy"), of("idle")];
    await lab.queue("busy").add("job", { k: "a", i: 0 });
    await until(() => lab.ran.length === 1);
    await idle.waitUntilReady();
    lab.server.freeze();
    ended.open();
    await lab.ended(1);
    await Promise.all([busy.close(), idle.close()]);
    lab.server.thaw();
    expect(lab.errors).toContainEqual(expect.any(QueueUnreachableError));
  });

  it("waits for a job as long as Redis answers, even if Redis is read-only", async () => {
    await using lab = await Lab.start();
    await using locks = await startRedis();
    const redlock = redlockOn(lab, locks.path, { clock: fast });
    const ended = gate();
    const worker = lab.worker(async () => await ended.passed, { ...tuned, redlock });
    await lab.queue().add("job", { k: "a", i: 0 });
    await until(() => lab.ran.length === 1);
    await lab.server.call("REPLICAOF", "127.0.0.1", 1);
    const closed = worker.close();
    const pings = async (): Promise<number> => await lab.server.calls("evalsha");
    const before = await pings();
    await until(async () => (await pings()) > before + 60);
    await lab.server.call("REPLICAOF", "NO", "ONE");
    ended.open();
    await closed;
    expect(lab.errors.filter((error) => error instanceof QueueUnreachableError)).toEqual([]);
    expect(await lab.queue().getCompletedCount()).toBe(1);
  });
});

it("check() of a queue rejects if Redis does not answer for 30 s", async () => {
  const clock = new ManualClock();
  const silent = {
    defineCommand: () => {},
    runCommand: () => new Promise(() => {}),
    "x:read-rules": () => new Promise(() => {}),
  };
  const target = { queue: { client: Promise.resolve(silent), toKey: (type: string) => type } } as unknown as BullTarget;
  const lane = new OperatorLane({ queue: "q", target, scripts: {} as BullScripts, clock, key: undefined });
  const asked = errorOf(readRegistry(lane));
  await clock.advance(29_000);
  await clock.advance(2_000);
  expect(await asked).toMatchObject({
    code: "QUEUE_UNREACHABLE",
    message: "queue q: its Redis has not answered for 30 s, so the effect of the call is not known",
  });
});

describe("isRunning", () => {
  it("is false while the queue's Redis does not answer or is read-only", async () => {
    await using lab = await Lab.start();
    const proxy = await startProxy({ path: lab.server.path });
    lab.defer(async () => await proxy.stop());
    const redlock = redlockOn(lab, lab.server.path, { clock: fast });
    const connection = { host: proxy.host, port: proxy.port, retryStrategy };
    const worker = lab.worker(undefined, { ...tuned, connection, redlock });
    await until(async () => (await lab.redis.hlen("bull:q:lane:workers")) === 1);
    expect(worker.isRunning()).toBe(true);
    proxy.blackhole();
    await until(() => !worker.isRunning());
    proxy.heal();
    proxy.drop();
    await until(() => worker.isRunning());
    await lab.server.call("REPLICAOF", "127.0.0.1", 1);
    await until(() => !worker.isRunning());
    await lab.server.call("REPLICAOF", "NO", "ONE");
    await until(() => worker.isRunning());
    await worker.close();
    expect(worker.isRunning()).toBe(false);
  });
});

describe("reconnectOnError", () => {
  const readOnly = new Error("READONLY You can't write against a read only replica. script: 1, on @user_script:1.");
  const inScript = new Error("ERR Error running script (call to f_1): @user_script:1: -READONLY You can't write");

  it.each([
    ["at the next refusal after some seconds", [0, 60_000], [false, true]],
    ["not at refusals that follow each other", [0, 1_000, 1_000], [false, false, false]],
    ["at refusals in close succession", [0, 1_000, 1_000, 1_000], [false, false, false, true]],
    ["only by refusals of the new connection afterwards", [0, 60_000, 0, 1_000], [false, true, false, false]],
  ])("replaces the connection %s", async (_, pausesMs, expected) => {
    const clock = new ManualClock();
    const reconnects = reconnectOnReadOnly(null, clock);
    const answers: unknown[] = [];
    for (const [index, pauseMs] of pausesMs.entries()) {
      await clock.advance(pauseMs);
      answers.push(reconnects(index % 2 === 0 ? readOnly : inScript));
    }
    expect(answers).toEqual(expected);
  });

  it("calls the user's function first, and keeps its answer", async () => {
    const clock = new ManualClock();
    const asked: Error[] = [];
    let answer: boolean | 1 | 2 = 2;
    const reconnects = reconnectOnReadOnly((error) => {
      asked.push(error);
      return answer;
    }, clock);
    const other = new Error("ERR other");
    expect([reconnects(readOnly), reconnects(other)]).toEqual([2, 2]);
    answer = false;
    await clock.advance(60_000);
    // The connection is new since the user's function has replaced it.
    expect([reconnects(readOnly), reconnects(other)]).toEqual([false, false]);
    await clock.advance(60_000);
    expect([reconnects(other), reconnects(readOnly)]).toEqual([false, true]);
    expect(asked).toEqual([readOnly, other, readOnly, other, other, readOnly]);
  });
});
