/** The outbox and its relay, on a real PostgreSQL and a real Redis. */
import { OutboxRelay, type OutboxRelayOptions, type RelayElection, type RelayEvents, type RelayTerm } from "@x/effects";
import { LeaderElection } from "@x/leader";
import { Redlock } from "@x/redlock-core";
import {
  errorOf,
  isWithoutPostgres,
  type PostgresServer,
  type RedisServer,
  startPostgres,
  startRedis,
} from "@x/test-support";
import { Queue } from "bullmq";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { gate, Lab } from "./support/lab.ts";

/** Patience for a loaded machine, and an end for a test that hangs. */
const patient = { timeout: 60_000 } as const;

/** An election that this process wins immediately, and holds until its signal aborts. */
const soleElection: RelayElection = {
  name: "sole",
  run: async (task, { signal }) => await task({ election: "sole", signal, assertCurrent: () => undefined }),
};

describe.skipIf(isWithoutPostgres())("the relay", () => {
  let server: PostgresServer;
  let redis: RedisServer;
  beforeAll(async () => {
    [server, redis] = await Promise.all([startPostgres(), startRedis()]);
  });
  afterAll(async () => {
    await server.stop();
    await redis.stop();
  });

  /** A relay of the lab that has not started, and the queue that it adds to. */
  function relayOf(lab: Lab, options: Partial<OutboxRelayOptions> = {}) {
    const connection = new Redis({ host: redis.host, port: redis.port, maxRetriesPerRequest: null });
    const name = `${lab.prefix}receipts`;
    const queue = new Queue(name, { connection });
    const relay = new OutboxRelay(lab.effects, { election: soleElection, connection, ...options });
    return {
      name,
      queue,
      relay,
      client: connection,
      /** Names of the jobs that wait, in order. */
      names: async () =>
        (await queue.getJobs(["waiting", "delayed", "prioritized"], 0, -1, true)).map((job) => job.name),
      async [Symbol.asyncDispose]() {
        await relay.stop();
        await queue.close();
        connection.disconnect();
      },
    };
  }

  async function enqueue(lab: Lab, queue: string, ...names: readonly string[]): Promise<void> {
    await lab.effects.transaction((tx) => {
      for (const name of names) tx.enqueue(queue, name, { name });
    });
  }

  it("adds the jobs of committed transactions in order, and no others", async () => {
    await using lab = await Lab.open(server);
    await using setting = relayOf(lab);
    await enqueue(lab, setting.name, "a", "b");
    const rolledBack = lab.effects.transaction((tx) => {
      tx.enqueue(setting.name, "never", {});
      throw new Error("no");
    });
    expect(await errorOf(rolledBack)).toMatchObject({ message: "no" });
    await lab.effects.once({ key: "c" }, (tx) => tx.enqueue(setting.name, "c", undefined, { attempts: 3 }));
    setting.relay.start();
    await expect.poll(setting.names, patient).toEqual(["a", "b", "c"]);
    const [first, , last] = await setting.queue.getJobs(["waiting"], 0, -1, true);
    expect(first?.data).toEqual({ name: "a" });
    expect(last?.data).toEqual({});
    expect(last?.opts.attempts).toBe(3);
    await expect.poll(() => lab.outbox(), patient).toEqual([]);
  });

  it("gives a job the row's ID and time, and keeps its options", async () => {
    await using lab = await Lab.open(server);
    await using setting = relayOf(lab);
    await lab.effects.transaction((tx) => tx.enqueue(setting.name, "later", {}, { delay: 3_600_000, priority: 7 }));
    await lab.effects.transaction((tx) => tx.enqueue(setting.name, "own", {}, { jobId: "receipt-1" }));
    const [row] = await lab.rows<{ id: string; ms: string }>(
      `SELECT id::text, (extract(epoch FROM created_at) * 1000)::bigint::text AS ms FROM ${lab.prefix}outbox ORDER BY seq`,
    );
    setting.relay.start();
    await expect.poll(setting.names, patient).toHaveLength(2);
    const later = await setting.queue.getJob(String(row?.id));
    expect(later).toMatchObject({ timestamp: Number(row?.ms), delay: 3_600_000, priority: 7 });
    expect(await setting.queue.getJob("receipt-1")).toMatchObject({ name: "own" });
  });

  it("relays more rows than one batch, and reports it", async () => {
    await using lab = await Lab.open(server);
    await using setting = relayOf(lab);
    const names = Array.from({ length: 1_203 }, (_, index) => `${index}`);
    await enqueue(lab, setting.name, ...names);
    const relayed: RelayEvents["relayed"][] = [];
    const backlogs: RelayEvents["backlogMeasured"][] = [];
    setting.relay.on("relayed", (message) => relayed.push(message));
    setting.relay.on("backlogMeasured", (message) => backlogs.push(message));
    expect(await lab.effects.backlog()).toMatchObject({ rows: 1_203 });
    setting.relay.start();
    await expect.poll(() => relayed.reduce((sum, { rows }) => sum + rows, 0), patient).toBe(1_203);
    expect(await setting.names()).toEqual(names);
    expect(relayed.map(({ rows }) => rows)).toEqual([500, 500, 203]);
    expect(backlogs[0]).toMatchObject({ rows: 1_203, oldestMs: expect.any(Number) });
    expect(await lab.effects.backlog()).toEqual({ rows: 0, oldestMs: 0 });
  });

  it("delays only the rows of a queue that fails", async () => {
    await using lab = await Lab.open(server);
    await using setting = relayOf(lab);
    const failed: RelayEvents["relayFailed"][] = [];
    setting.relay.on("relayFailed", (message) => failed.push(message));
    // The key in which BullMQ counts the queue's jobs contains another value.
    const broken = `${lab.prefix}broken`;
    const { client } = setting;
    await client.set(`bull:${broken}:id`, "not a number");
    await enqueue(lab, broken, "held up");
    await enqueue(lab, setting.name, "passes");
    setting.relay.start();
    await expect.poll(setting.names, patient).toEqual(["passes"]);
    await expect.poll(() => failed.length, patient).toBeGreaterThan(1);
    expect(new Set(failed.map(({ queue }) => queue))).toEqual(new Set([broken]));
    expect(await lab.outbox()).toEqual(["held up"]);
    await client.del(`bull:${broken}:id`);
    await expect.poll(() => lab.outbox(), patient).toEqual([]);
  });

  it("keeps relayed rows for replay, which adds jobs again that Redis has lost", async () => {
    await using lab = await Lab.open(server);
    await using setting = relayOf(lab, { keepFor: 3_600_000 });
    await enqueue(lab, setting.name, "a", "b", "c");
    setting.relay.start();
    await expect.poll(() => lab.outbox(), patient).toEqual([]);
    const [lost] = await setting.queue.getJobs(["waiting"], 0, 0, true);
    await lost?.remove();
    expect(await lab.effects.replay({ queue: "another", since: new Date(0) })).toBe(0);
    expect(await lab.effects.replay({ queue: setting.name, since: new Date(Date.now() + 3_600_000) })).toBe(0);
    expect(await lab.effects.replay({ queue: setting.name, since: new Date(Date.now() - 3_600_000) })).toBe(3);
    // The existing jobs are not added again, so the lost job is now the last.
    await expect.poll(setting.names, patient).toEqual(["b", "c", "a"]);
  });

  it("deletes rows after their retention time", async () => {
    await using lab = await Lab.open(server);
    await using setting = relayOf(lab, { keepFor: 60_000 });
    await enqueue(lab, setting.name, "old", "young");
    const relayedAt = (name: string, ago: string): Promise<unknown> =>
      lab.rows(`UPDATE ${lab.prefix}outbox SET relayed_at = now() - interval '${ago}' WHERE name = '${name}'`);
    await relayedAt("old", "61 seconds");
    await relayedAt("young", "5 seconds");
    setting.relay.start();
    const left = async () =>
      (await lab.rows<{ name: string }>(`SELECT name FROM ${lab.prefix}outbox`)).map((row) => row.name);
    await expect.poll(left, patient).toEqual(["young"]);
  });

  it("stops with its term, and the next leader continues", async () => {
    await using lab = await Lab.open(server);
    await using first = relayOf(lab);
    await using redlock = new Redlock(redis.url);
    const elections = ["a", "b"].map(
      (id) => new LeaderElection(redlock, { name: lab.prefix, id, cooldown: { initial: 60_000, max: 60_000 } }),
    );
    const [one, two] = elections as [LeaderElection, LeaderElection];
    const relayed: string[] = [];
    const relays = elections.map((election) => {
      const relay = new OutboxRelay(lab.effects, { election, connection: { port: redis.port } });
      relay.on("relayed", () => relayed.push(election.id));
      relay.start();
      return relay;
    });
    await enqueue(lab, first.name, "a");
    await expect.poll(first.names, patient).toEqual(["a"]);
    const leader = one.isLeader() ? one : two;
    await expect.poll(() => relayed, patient).toEqual([leader.id]);
    await leader.current?.resign();
    const next = leader === one ? two : one;
    await expect.poll(() => next.isLeader(), patient).toBe(true);
    await enqueue(lab, first.name, "b");
    await expect.poll(first.names, patient).toEqual(["a", "b"]);
    await expect.poll(() => relayed, patient).toEqual([leader.id, next.id]);
    await Promise.all(relays.map((relay) => relay.stop()));
    await Promise.all(elections.map((election) => election.stop()));
  });

  it("adds nothing once its term is over, even if it has read rows before", async () => {
    await using lab = await Lab.open(server);
    await using setting = relayOf(lab);
    await enqueue(lab, setting.name, "a");
    const asked = gate();
    const term: RelayTerm = {
      election: "over",
      signal: new AbortController().signal,
      assertCurrent: () => {
        asked.open();
        throw new Error("the term is over");
      },
    };
    const failed = new Promise((resolve) => setting.relay.on("relayFailed", resolve));
    const led = setting.relay.lead(term);
    await asked.opened;
    await failed;
    await setting.relay.stop();
    await led;
    expect(await setting.names()).toEqual([]);
    expect(await lab.outbox()).toEqual(["a"]);
  });

  it("stops immediately, keeps its rows and never rejects while Redis is unreachable", async () => {
    await using lab = await Lab.open(server);
    await using away = await startRedis();
    const errors: unknown[] = [];
    const connection = { host: away.host, port: away.port };
    const relay = new OutboxRelay(lab.effects, { election: soleElection, connection });
    relay.on("error", (error) => errors.push(error));
    await away.kill();
    await enqueue(lab, "receipts", "a");
    relay.start();
    await expect.poll(() => errors.length, patient).toBeGreaterThan(0);
    await Promise.all([relay.stop(), relay.stop()]);
    expect(await lab.outbox()).toEqual(["a"]);
  });

  it("survives an outage of Postgres", async () => {
    await using own = await startPostgres();
    await using lab = await Lab.open(own);
    await using setting = relayOf(lab);
    const errors: unknown[] = [];
    setting.relay.on("error", (error) => errors.push(error));
    setting.relay.start();
    await own.shutDown();
    await expect.poll(() => errors.length, patient).toBeGreaterThan(0);
    await own.start();
    await enqueue(lab, setting.name, "a");
    await expect.poll(setting.names, patient).toEqual(["a"]);
  });

  it("reports an error of election.run(), and takes part once", async () => {
    await using lab = await Lab.open(server);
    const run = vi.fn<RelayElection["run"]>(() => Promise.reject(new Error("no election")));
    await using setting = relayOf(lab, { election: { name: "none", run } });
    const reported = new Promise((resolve) => setting.relay.on("error", resolve));
    setting.relay.start();
    setting.relay.start();
    expect(await reported).toMatchObject({ message: "no election" });
    expect(run).toHaveBeenCalledTimes(1);
  });
});
