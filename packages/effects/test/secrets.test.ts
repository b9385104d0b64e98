/**
 * No password of a database or a Redis, and no data of a job, is in an error, event or warning of this package. Errors of
 * the caller's own function and statements are the caller's.
 */
import { channel } from "node:diagnostics_channel";
import { inspect } from "node:util";
import { Effects, OutboxRelay, type RelayTerm } from "@x/effects";
import {
  errorOf,
  isWithoutPostgres,
  type PostgresServer,
  placesOf,
  type RedisServer,
  startPostgres,
  startRedis,
} from "@x/test-support";
import { Redis } from "ioredis";
import pg from "pg";
import postgres from "postgres";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { EFFECTS_EVENTS, RELAY_EVENTS } from "../src/events.ts";

const password = "s3cr3t-pa55word";
const data = "4111-1111-1111-1111";
const job = { id: "1", timestamp: 1, queueQualifiedName: "bull:payments", data: { card: data } };
const lock = { fencingToken: 1, resources: ["account:1"] };

describe.skipIf(isWithoutPostgres())("a secret is in no error and no event", () => {
  let server: PostgresServer;
  beforeAll(async () => {
    server = await startPostgres();
    const admin = new pg.Client(server.url);
    await admin.connect();
    await admin.query("CREATE DATABASE broken");
    await admin.query(`CREATE ROLE app LOGIN SUPERUSER PASSWORD 'another'`);
    const { rows } = await admin.query<{ hba_file: string }>("SHOW hba_file");
    const rules = "'host all tester 127.0.0.1/32 trust'), ('host all app 127.0.0.1/32 scram-sha-256'";
    await admin.query(`COPY (VALUES (${rules})) TO '${String(rows[0]?.hba_file)}'`);
    await admin.query("SELECT pg_reload_conf()");
    await admin.end();
  });
  afterAll(async () => await server.stop());

  /** Records everything that this package publishes and warns of, until the test ends. */
  function overhear(): unknown[] {
    const heard: unknown[] = [];
    const hear = (message: unknown): void => void heard.push(message);
    const channels = [...Object.keys(EFFECTS_EVENTS), ...Object.keys(RELAY_EVENTS)].map((name) => `x.effects.${name}`);
    for (const name of channels) channel(name).subscribe(hear);
    process.on("warning", hear);
    onTestFinished(() => {
      for (const name of channels) channel(name).unsubscribe(hear);
      process.removeListener("warning", hear);
    });
    return heard;
  }

  const clients = {
    pg: (url: string) => {
      const pool = new pg.Pool({ connectionString: url, connectionTimeoutMillis: 5_000 });
      pool.on("error", () => undefined);
      onTestFinished(() => pool.end());
      return pool;
    },
    postgres: (url: string) => {
      const sql = postgres(url, { onnotice: () => undefined, connect_timeout: 5 });
      onTestFinished(() => sql.end());
      return sql;
    },
  };

  const urls = {
    "is refused": () => `postgres://app:${password}@127.0.0.1:${server.port}/postgres`,
    "is of a user that does not exist": () => `postgres://nobody:${password}@127.0.0.1:${server.port}/postgres`,
    "is of a database that does not exist": () => `postgres://tester:${password}@127.0.0.1:${server.port}/none`,
    "is of a database without the tables": () => `postgres://tester:${password}@127.0.0.1:${server.port}/broken`,
    "is of a server that is away": () => `postgres://app:${password}@127.0.0.1:1/postgres`,
  };

  it.each(Object.keys(clients).flatMap((client) => Object.keys(urls).map((what) => [client, what] as const)))(
    "of %s, whose password %s",
    async (client, what) => {
      const database = clients[client as keyof typeof clients](urls[what as keyof typeof urls]());
      const effects = new Effects(database, { retries: 1 });
      const heard = overhear();
      const asked = [
        effects.once({ job, lock }, (tx) => tx.enqueue("receipts", "send", { card: data })),
        effects.transaction((tx) => tx.enqueue("receipts", "send", { card: data })),
        ...(what.endsWith("tables") ? [] : [effects.migrate()]),
        effects.backlog(),
        effects.cleanup(),
        effects.replay({ queue: "receipts", since: new Date(0) }),
      ];
      const errors = await Promise.all(asked.map((each) => errorOf(each)));
      expect(errors.every((error) => error instanceof Error)).toBe(true);
      const relay = new OutboxRelay(effects, { election: sole, connection: {} });
      const failed = new Promise((resolve) => relay.on("error", resolve));
      relay.start();
      heard.push(await failed);
      await relay.stop();
      expect(await placesOf(password, [errors, heard])).toEqual([]);
      // A client may keep the parameters in places that neither a logger nor `inspect` reads.
      expect(await placesOf(data, [errors.map((error) => inspect(error, { depth: 10 })), heard])).toEqual([]);
    },
  );

  const sole = {
    name: "sole",
    run: (task: (term: RelayTerm) => Promise<void>, { signal }: { readonly signal: AbortSignal }) =>
      task({ election: "sole", signal, assertCurrent: () => undefined }),
  };

  async function startQueues(): Promise<RedisServer> {
    const redis = await startRedis();
    onTestFinished(() => redis.stop());
    await redis.call("ACL", "SETUSER", "app", "on", `>${password}`, "~*", "&*", "+@all");
    return redis;
  }

  const connections = {
    options: (port: number) => ({ host: "127.0.0.1", port, username: "app", password }),
    "a client": (port: number) => {
      const client = new Redis({ port, username: "app", password, maxRetriesPerRequest: null });
      client.on("error", () => undefined);
      onTestFinished(() => client.disconnect());
      return client;
    },
  };

  it.each(["options", "a client"] as const)(
    "of a relay whose Redis (%s) refuses it, or fails to add the job",
    async (kind) => {
      const pool = clients.pg(server.url);
      const prefix = kind === "options" ? "options_" : "client_";
      const effects = new Effects(pool, { prefix });
      await effects.migrate();
      const heard = overhear();
      const redis = await startQueues();
      await redis.call("SET", "bull:receipts:id", "not a number");
      const enqueue = () => effects.transaction((tx) => tx.enqueue("receipts", "send", { card: data }));
      await enqueue();
      const relay = new OutboxRelay(effects, { election: sole, connection: connections[kind](redis.port) });
      const failures: unknown[] = [];
      relay.on("relayFailed", (failure) => failures.push(failure));
      relay.on("error", (error) => failures.push(error));
      relay.start();
      for (const fault of [
        [],
        ["ACL", "SETUSER", "app", "-@all"],
        ["ACL", "SETUSER", "app", "resetpass", ">another"],
      ]) {
        if (fault.length > 0) await redis.call(...(fault as [string, ...string[]]));
        if (fault.includes("resetpass")) await redis.call("CLIENT", "KILL", "USER", "app");
        const before = failures.length;
        await expect.poll(() => failures.length, { timeout: 20_000 }).toBeGreaterThan(before);
      }
      await relay.stop();
      expect(await placesOf(password, [failures, heard])).toEqual([]);
      expect(await placesOf(data, [failures, heard])).toEqual([]);
    },
  );

  it("of a job that enqueue or once refuses", async () => {
    const effects = new Effects(clients.pg(server.url), { prefix: "refused_", maxResult: 10, retries: 0 });
    await effects.migrate();
    const heard = overhear();
    const circular: Record<string, unknown> = { card: data };
    circular["self"] = circular;
    const enqueue = (given: unknown, opts?: object) =>
      effects.transaction((tx) => tx.enqueue("receipts", "send", given, opts as never));
    const errors = await Promise.all(
      [
        enqueue(circular),
        enqueue({ card: data }, { sizeLimit: 3 }),
        enqueue({}, [data] as never),
        enqueue({}, { jobId: `a:${data}` }),
        effects.transaction((tx) => {
          tx.enqueue("receipts", "send", { card: data });
          tx.enqueue("receipts", "a\u0000", {});
        }),
        effects.transaction((tx) => {
          tx.enqueue("receipts", "send", { card: data });
          tx.enqueue("receipts", "a\ud800", {});
        }),
        effects.once({ job }, () => data),
        effects.once({ job: { ...job, id: 7 as never } }, () => 1),
        effects.once({ job, key: data }, () => 1),
        effects.once({ key: "a", lock: { ...lock, fencingToken: -1 } }, () => 1),
      ].map((each) => errorOf(each)),
    );
    expect(errors.every((error) => error instanceof Error)).toBe(true);
    expect(await placesOf(data, [errors, heard])).toEqual([]);
  });
});
