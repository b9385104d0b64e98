/** Every client that the guide names behaves the same, directly or through the adapter in the guide. */
import { readFileSync } from "node:fs";
import { inspect } from "node:util";
import { PGlite } from "@electric-sql/pglite";
import { type Database, Effects } from "@x/effects";
import { errorOf, inTransaction, isWithoutPostgres, type PostgresServer, startPostgres } from "@x/test-support";
import * as drizzleOrm from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import { transform } from "esbuild";
import knex from "knex";
import * as kysely from "kysely";
import pg from "pg";
import postgres from "postgres";
import { DataSource } from "typeorm";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

const guide = readFileSync(new URL("../../../docs/effects/clients.md", import.meta.url), "utf8");
const modules: Readonly<Record<string, object>> = { kysely, "drizzle-orm": drizzleOrm };

/** The adapter of a section of the guide. */
async function adapterOf(title: string): Promise<(client: unknown) => Database> {
  const section = guide.split(/^## /m).find((text) => text.startsWith(`${title}\n`)) ?? "";
  const [, source = ""] = /^```ts\n([^]*?)^```/m.exec(section) ?? [];
  const [body = ""] = /^export function [^]*?^}/m.exec(source) ?? [];
  expect(body.split("\n").length).toBeLessThanOrEqual(10);
  const { code } = await transform(source, { loader: "ts", format: "cjs", target: "node20" });
  const module = { exports: {} as Record<string, (client: unknown) => Database> };
  // oxlint-disable-next-line typescript/no-implied-eval -- the guide's own text
  new Function("module", "exports", "require", code)(module, module.exports, (name: string) => modules[name]);
  const [adapter] = Object.values(module.exports);
  if (adapter === undefined) throw new Error(`no adapter in the section ${title}`);
  return adapter;
}

/** As much of a Prisma client as the adapter uses. */
function prismaOn(pool: pg.Pool) {
  const rawOf = (client: pg.Pool | pg.PoolClient) => ({
    $queryRawUnsafe: async (text: string, ...values: unknown[]) => (await client.query(text, values)).rows as object[],
  });
  return {
    ...rawOf(pool),
    async $transaction<Result>(run: (tx: ReturnType<typeof rawOf>) => Promise<Result>): Promise<Result> {
      return await inTransaction(pool, async (client: pg.PoolClient) => await run(rawOf(client)));
    },
  };
}

interface Opened {
  readonly database: ConstructorParameters<typeof Effects>[0];
  readonly close: () => Promise<unknown>;
}

const CLIENTS: Readonly<Record<string, (url: string) => Promise<Opened>>> = {
  pg: async (url) => {
    const pool = new pg.Pool({ connectionString: url });
    return await Promise.resolve({ database: pool, close: () => pool.end() });
  },
  postgres: async (url) => {
    const sql = postgres(url, { onnotice: () => undefined });
    return await Promise.resolve({ database: sql, close: () => sql.end() });
  },
  PGlite: async () => {
    const database = await PGlite.create();
    return { database, close: () => database.close() };
  },
  Kysely: async (url) => {
    const pool = new pg.Pool({ connectionString: url });
    const db = new kysely.Kysely({ dialect: new kysely.PostgresDialect({ pool }) });
    return { database: (await adapterOf("Kysely"))(db), close: () => db.destroy() };
  },
  Drizzle: async (url) => {
    const pool = new pg.Pool({ connectionString: url });
    return { database: (await adapterOf("Drizzle"))(drizzle(pool)), close: () => pool.end() };
  },
  Knex: async (url) => {
    const db = knex({ client: "pg", connection: url, compileSqlOnError: false });
    return { database: (await adapterOf("Knex"))(db), close: () => db.destroy() };
  },
  TypeORM: async (url) => {
    const db = await new DataSource({ type: "postgres", url }).initialize();
    return { database: (await adapterOf("TypeORM"))(db), close: () => db.destroy() };
  },
  "Prisma, a stand-in": async (url) => {
    const pool = new pg.Pool({ connectionString: url });
    return { database: (await adapterOf("Prisma"))(prismaOn(pool)), close: () => pool.end() };
  },
};

describe.skipIf(isWithoutPostgres())("effects by", () => {
  let server: PostgresServer;
  beforeAll(async () => {
    server = await startPostgres();
  });
  afterAll(async () => await server.stop());

  it.each(Object.entries(CLIENTS))("%s happen once, are fenced, and have an outbox", async (name, open) => {
    const { database, close } = await open(server.url);
    const prefix = `${name.toLowerCase().replaceAll(/\W/g, "_")}_`;
    const effects = new Effects(database, { prefix });
    await effects.migrate();
    const create = `CREATE TABLE ${prefix}account (balance int NOT NULL)`;
    await effects.transaction((tx) => tx.query(create));
    await effects.transaction((tx) => tx.query(`INSERT INTO ${prefix}account VALUES ($1::int)`, [100]));
    const charge: Parameters<typeof effects.once>[1] = async (tx) => {
      expect(tx.client).toBeDefined();
      const rows = await tx.query(`UPDATE ${prefix}account SET balance = balance - 1 RETURNING balance`);
      expect(rows).toHaveLength(1);
      tx.enqueue("receipts", "a$1?b", { text: "a$1?b:c" });
      return { at: "a$1?b:c" };
    };
    // A token as large as real ones are.
    const lock = (fencingToken: number, ...resources: string[]) => ({ fencingToken, resources });
    const call = { key: "one?", lock: lock(1_795_700_000_000, "a:$1") };
    expect(await effects.once(call, charge)).toEqual({ at: "a$1?b:c" });
    expect(await effects.once(call, charge)).toEqual({ at: "a$1?b:c" });
    await effects.once({ key: "two", lock: lock(1_795_700_000_001, "b", "a:$1") }, charge);
    expect(await errorOf(effects.once({ ...call, key: "three" }, charge))).toMatchObject({
      code: "FENCED_OFF",
      claimedBy: 1_795_700_000_001,
    });
    await effects.once({ key: "four" }, charge);
    const failed = effects.once({ key: "five" }, async (tx) => {
      await charge(tx);
      throw new Error("no");
    });
    expect(await errorOf(failed)).toMatchObject({ message: "no" });
    const hidden = effects.once({ key: "six" }, async (tx) => {
      await charge(tx);
      await tx.query("SELECT 1/0").catch(() => undefined);
    });
    expect(await errorOf(hidden)).toBeInstanceOf(Error);
    expect(await effects.transaction((tx) => tx.query(`SELECT balance FROM ${prefix}account`))).toEqual([
      { balance: 97 },
    ]);
    expect(await effects.backlog()).toMatchObject({ rows: 3 });
    expect(await effects.cleanup()).toBe(0);
    expect(await effects.replay({ queue: "receipts", since: new Date(0) })).toBe(0);
    await effects.transaction((tx) => tx.query(`DROP TABLE ${prefix}outbox`));
    const failing = effects.once({ key: "seven" }, (tx) => tx.enqueue("receipts", "send", { card: "4111-1111" }));
    const error = await errorOf(failing);
    expect(error).toMatchObject({ code: "42P01" });
    expect(inspect(error, { depth: 10 })).not.toContain("4111-1111");
    await close();
  });
});
