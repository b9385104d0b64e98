/**
 * The recipes of docs/fencing.md and docs/fencing-stores.md, run from their text: each store with the schedule that
 * loses an update without fencing, and with random schedules.
 */
import { readFileSync } from "node:fs";
import { FencedOffError, fence } from "@x/redlock-core";
import { isWithoutPostgres, type RedisServer, startPostgres, startRedis } from "@x/test-support";
import { AwsClient } from "aws4fetch";
import fc from "fast-check";
import { Redis } from "ioredis";
import { find, updateOne } from "mingo";
import type { ResultSetHeader } from "mysql2/promise";
import pg from "pg";
import initSqlJs from "sql.js";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startConditionalStore } from "./conditional-store.ts";
import { type Claim, type FencedStore, faultsOf, overlap, schedules } from "./holders.ts";
import { isWithoutMariadb, startMariadb } from "./mariadb.ts";

const page = ["fencing", "fencing-stores"]
  .map((name) => readFileSync(new URL(`../../docs/${name}.md`, import.meta.url), "utf8"))
  .join("\n");

function snippetsOf(title: string, language: string): string[] {
  const section = page.split(/^## /m).find((text) => text.startsWith(`${title}\n`)) ?? "";
  return [...section.matchAll(new RegExp(`^\`\`\`${language}\\n([^]*?)^\`\`\``, "gm"))].map((match) => match[1] ?? "");
}

type Body = (...args: unknown[]) => Promise<unknown>;
/** Runs a snippet with the names of its surrounding text: `new AsyncFunction(…)`. */
const AsyncFunction = (async () => undefined).constructor as new (...source: string[]) => Body;

let server: RedisServer;
let redis: Redis;
beforeAll(async () => {
  server = await startRedis();
  redis = new Redis({ path: server.path });
});
afterAll(async () => {
  redis.disconnect();
  await server.stop();
});

/** Resolves with undefined if the promise rejects with a `FencedOffError`. */
async function unlessRefused<Value>(promise: Promise<Value>): Promise<Value | undefined> {
  try {
    return await promise;
  } catch (error) {
    if (error instanceof FencedOffError) return undefined;
    throw error;
  }
}

async function redisValues(): Promise<ReadonlyMap<string, number>> {
  const keys = (await redis.keys("*")).filter((key) => !key.includes(":"));
  return new Map(
    await Promise.all(keys.map(async (key): Promise<[string, number]> => [key, Number(await redis.get(key))])),
  );
}

async function resetRedis(values: ReadonlyMap<string, number>): Promise<void> {
  await redis.flushall();
  for (const [key, value] of values) await redis.set(key, value);
}

const inRedis: FencedStore = {
  reset: resetRedis,
  values: redisValues,
  async forget(key) {
    await redis.del(`{${key}}:claim`);
  },
  async claim(token, keys) {
    const fenced = await unlessRefused(fence(redis, keys, token));
    if (fenced === undefined) return undefined;
    return {
      read: async () => await unlessRefused(Promise.all(keys.map(async (key) => Number(await fenced.get(key))))),
      async write(values) {
        const script = "for i, key in ipairs(KEYS) do redis.call('SET', key, ARGV[i]) end return 1";
        return (await unlessRefused(fenced.eval(script, keys, values))) === 1;
      },
    };
  },
};

/** The recipe of most articles, in which the store does not know a holder before the holder writes. */
const checkedOnWrite: FencedStore = {
  ...inRedis,
  async claim(token, keys) {
    return await Promise.resolve({
      read: async () => (await redis.mget([...keys])).map(Number),
      async write(values) {
        const fences = await redis.mget(keys.map((key) => `${key}:fence`));
        if (fences.some((stored) => Number(stored) > token)) return false;
        for (const [index, key] of keys.entries()) await redis.mset(key, values[index] ?? 0, `${key}:fence`, token);
        return true;
      },
    });
  },
};

type Query = (sql: string, values: readonly (string | number)[]) => Promise<{ rows: readonly object[]; count: number }>;

function inSql(query: Query): FencedStore {
  const [, claim = "", write = ""] = snippetsOf("PostgreSQL, SQLite", "sql");
  return {
    async reset(values) {
      await query("DELETE FROM stock", []);
      for (const [sku, quantity] of values)
        await query("INSERT INTO stock (sku, quantity) VALUES ($1, $2)", [sku, quantity]);
    },
    async values() {
      const { rows } = await query("SELECT sku, quantity FROM stock", []);
      return new Map((rows as { sku: string; quantity: number }[]).map(({ sku, quantity }) => [sku, quantity]));
    },
    async forget(key) {
      await query("UPDATE stock SET fence = 0 WHERE sku = $1", [key]);
    },
    async claim(token, [key = ""]) {
      const [row] = (await query(claim, [key, token])).rows as { quantity: number }[];
      if (row === undefined) return undefined;
      return {
        read: async () => await Promise.resolve([row.quantity]),
        write: async ([quantity = 0]) => (await query(write, [key, token, quantity])).count === 1,
      };
    },
  };
}

interface Opened {
  readonly store: FencedStore;
  readonly close: () => Promise<void>;
}

const createTable = "CREATE TABLE stock (sku TEXT PRIMARY KEY, quantity INTEGER NOT NULL)";

async function openPostgres(): Promise<Opened> {
  const postgres = await startPostgres();
  const client = new pg.Client(postgres.url);
  await client.connect();
  const [addFence = ""] = snippetsOf("PostgreSQL, SQLite", "sql");
  await client.query(`${createTable}; ${addFence}`);
  const store = inSql(async (sql, values) => {
    const { rows, rowCount } = await client.query<object>(sql, [...values]);
    return { rows, count: rowCount ?? 0 };
  });
  const close = async (): Promise<void> => {
    await client.end();
    await postgres.stop();
  };
  return { store, close };
}

async function openSqlite(): Promise<Opened> {
  const database = new (await initSqlJs()).Database();
  const [addFence = ""] = snippetsOf("PostgreSQL, SQLite", "sql");
  database.run(`${createTable}; ${addFence}`);
  const store = inSql(async (sql, values) => {
    const statement = database.prepare(sql, Object.fromEntries(values.map((value, index) => [`$${index + 1}`, value])));
    const rows: object[] = [];
    while (statement.step()) rows.push(statement.getAsObject());
    statement.free();
    return await Promise.resolve({ rows, count: database.getRowsModified() });
  });
  return { store, close: async () => await Promise.resolve(database.close()) };
}

async function openMysql(): Promise<Opened> {
  const { connection, stop } = await startMariadb();
  const [claims = "", write = ""] = snippetsOf("MySQL, MariaDB", "sql");
  const [claim = "", read = ""] = claims.trim().split("\n");
  const [addFence = ""] = snippetsOf("PostgreSQL, SQLite", "sql");
  const query = async <Row extends object>(sql: string, values: readonly (string | number)[] = []): Promise<Row[]> =>
    (await connection.query(sql, [...values]))[0] as Row[];
  await query("CREATE DATABASE shop");
  await query("USE shop");
  await query("CREATE TABLE stock (sku VARCHAR(64) PRIMARY KEY, quantity INTEGER NOT NULL)");
  await query(addFence);
  const store: FencedStore = {
    async reset(values) {
      await query("DELETE FROM stock");
      for (const [sku, quantity] of values)
        await query("INSERT INTO stock (sku, quantity) VALUES (?, ?)", [sku, quantity]);
    },
    async values() {
      const rows = await query<{ sku: string; quantity: number }>("SELECT sku, quantity FROM stock");
      return new Map(rows.map(({ sku, quantity }) => [sku, quantity]));
    },
    async forget(key) {
      await query("UPDATE stock SET fence = 0 WHERE sku = ?", [key]);
    },
    async claim(token, [sku = ""]) {
      await query(claim, [token, sku, token]);
      const [row] = await query<{ quantity: number }>(read, [sku, token]);
      if (row === undefined) return undefined;
      return {
        read: async () => await Promise.resolve([row.quantity]),
        async write([quantity = 0]) {
          const [{ affectedRows }] = await connection.query<ResultSetHeader>(write, [quantity, sku, token]);
          return affectedRows === 1;
        },
      };
    },
  };
  return { store, close: stop };
}

interface ObjectClaim {
  readonly item: { quantity: number; fence: number };
  readonly etag: string;
}

/** The page's two functions, as a module without imports. */
type ObjectRecipe = {
  readonly claim: (s3: AwsClient, url: string, token: number) => Promise<ObjectClaim | undefined>;
  readonly write: (s3: AwsClient, url: string, item: object, etag: string) => Promise<string | undefined>;
};

async function objectRecipe(): Promise<ObjectRecipe> {
  const [code = ""] = snippetsOf("S3, and other stores that compare", "js");
  const functions = code.replaceAll(/^export /gm, "");
  return (await new AsyncFunction(`${functions} return { claim, write };`)()) as ObjectRecipe;
}

async function openS3(): Promise<Opened> {
  const { url, objects, stop } = await startConditionalStore();
  const { claim, write } = await objectRecipe();
  const s3 = new AwsClient({ accessKeyId: "id", secretAccessKey: "key", service: "s3", region: "x", retries: 0 });
  const itemOf = (body: Buffer): ObjectClaim["item"] => JSON.parse(body.toString()) as ObjectClaim["item"];
  const put = (key: string, item: object): void =>
    void objects.set(`/bucket/${key}`, Buffer.from(JSON.stringify(item)));
  const store: FencedStore = {
    async reset(values) {
      objects.clear();
      for (const [key, quantity] of values) put(key, { quantity, fence: 0 });
      await Promise.resolve();
    },
    values: async () =>
      await Promise.resolve(
        new Map([...objects].map(([name, body]) => [name.replace("/bucket/", ""), itemOf(body).quantity])),
      ),
    async forget(key) {
      const body = objects.get(`/bucket/${key}`);
      if (body !== undefined) put(key, { ...itemOf(body), fence: 0 });
      await Promise.resolve();
    },
    async claim(token, [key = ""]) {
      const claimed = await claim(s3, `${url}/bucket/${key}`, token);
      if (claimed === undefined) return undefined;
      const { item, etag } = claimed;
      return {
        read: async () => await Promise.resolve([item.quantity]),
        write: async ([quantity = 0]) =>
          (await write(s3, `${url}/bucket/${key}`, { ...item, quantity }, etag)) !== undefined,
      };
    },
  };
  return { store, close: stop };
}

type Item = { readonly _id: string; readonly quantity: number; readonly fence?: number };

/** A collection with two methods of MongoDB's driver, each an atomic step, on mingo's query and update language. */
class Collection {
  items: Item[] = [];

  findOneAndUpdate(
    filter: object,
    change: object,
    options: { readonly returnDocument: "after" },
  ): Promise<Item | null> {
    if (options.returnDocument !== "after") throw new Error("returns the document before");
    const [found] = find<Item>(this.items, filter).all();
    if (found === undefined) return Promise.resolve(null);
    const id = found._id;
    updateOne(this.items, { _id: id }, change as never);
    return Promise.resolve(structuredClone(this.items.find((item) => item._id === id) ?? null));
  }

  updateOne(filter: object, change: object): Promise<{ matchedCount: number }> {
    const { matchedCount } = updateOne(this.items, filter as never, change as never);
    return Promise.resolve({ matchedCount: matchedCount ?? 0 });
  }
}

function inMongo(): FencedStore {
  const stock = new Collection();
  const [claim = "", write = ""] = snippetsOf("MongoDB", "js");
  const claimItem = new AsyncFunction("stock", "sku", "token", `${claim} return item;`);
  const writeItem = new AsyncFunction("stock", "sku", "token", "quantity", `${write} return matchedCount;`);
  return {
    async reset(values) {
      stock.items = [...values].map(([_id, quantity]) => ({ _id, quantity }));
      await Promise.resolve();
    },
    values: async () => await Promise.resolve(new Map(stock.items.map(({ _id, quantity }) => [_id, quantity]))),
    async forget(key) {
      await stock.updateOne({ _id: key }, { $unset: { fence: "" } });
    },
    async claim(token, [sku = ""]) {
      const item = (await claimItem(stock, sku, token)) as Item | null;
      if (item === null) return undefined;
      const claimed: Claim = {
        read: async () => await Promise.resolve([item.quantity]),
        write: async ([quantity = 0]) => (await writeItem(stock, sku, token, quantity)) === 1,
      };
      return claimed;
    },
  };
}

const one = [["a"], ["b"]];
const several = [["a"], ["b"], ["a", "b"]];
/** The nightly run sets a greater number. */
const RUNS = Number(process.env["RECIPE_RUNS"] ?? 50);
/** A request to a server costs more than a call in this process. */
const FEW_RUNS = Math.min(RUNS, 30);

type Case = [store: string, locks: readonly (readonly string[])[], open: () => Promise<Opened>, numRuns?: number];
const stores: readonly Case[] = [
  ["Redis", several, async () => await Promise.resolve({ store: inRedis, close: () => Promise.resolve() })],
  ...(isWithoutPostgres() ? [] : [["PostgreSQL", one, openPostgres, FEW_RUNS] satisfies Case]),
  ["SQLite", one, openSqlite],
  ["MongoDB's language", one, async () => await Promise.resolve({ store: inMongo(), close: () => Promise.resolve() })],
  ["S3's conditions", one, openS3, FEW_RUNS],
  ...(isWithoutMariadb() ? [] : [["MySQL", one, openMysql, FEW_RUNS] satisfies Case]),
];

describe.each(stores)("the recipe for %s", (_name, locks, open, numRuns = RUNS) => {
  let opened: Opened;
  beforeAll(async () => {
    opened = await open();
  });
  afterAll(() => opened.close());

  it("refuses the older holder even if it writes before the newer one", async () => {
    expect(await faultsOf(opened.store, overlap)).toEqual([]);
  });

  it("loses no update and refuses no other holder, in any order", async () => {
    const property = fc.asyncProperty(schedules(locks), async (schedule) => {
      expect(await faultsOf(opened.store, schedule)).toEqual([]);
    });
    await fc.assert(property, { numRuns });
  }, 120_000);
});

/** The page's code for one holder, who freezes before it writes. */
class PageHolder {
  readonly sold: Promise<unknown>;
  /** Whether the holder has read. */
  isFrozen = false;
  wake = (): void => undefined;

  constructor(fencingToken: number, count: number) {
    const [snippet = ""] = snippetsOf("Redis", "ts");
    const sell = new AsyncFunction("redlock", "redis", "fence", "count", snippet.replaceAll(/^import .*$/gm, ""));
    const redlock = {
      using: async (_name: string, routine: (lock: object) => Promise<void>) => await routine({ fencingToken }),
    };
    const freezing = {
      evalsha: () => undefined,
      eval: async (script: string, ...args: [number, ...string[]]) => {
        if (script.includes("'SET', KEYS[1], ARGV[1]")) await this.#freeze();
        return await redis.eval(script, ...args);
      },
    };
    this.sold = sell(redlock, freezing, fence, count);
  }

  async #freeze(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.wake = resolve;
      this.isFrozen = true;
    });
  }
}

it("the guide's lines for Redis end as its table says", async () => {
  await resetRedis(new Map([["stock:42", 100]]));
  const first = new PageHolder(33, 1);
  await expect.poll(() => first.isFrozen).toBe(true);
  const second = new PageHolder(34, 2);
  await expect.poll(() => second.isFrozen).toBe(true);
  first.wake();
  await expect(first.sold).rejects.toThrow(FencedOffError);
  second.wake();
  await second.sold;
  expect(await redis.get("stock:42")).toBe("98");
});

it("the recipe for an object store claims an object even if another process writes between its read and its write", async () => {
  const { claim } = await objectRecipe();
  const { url, objects, stop } = await startConditionalStore();
  const item = (quantity: number): Buffer => Buffer.from(JSON.stringify({ quantity, fence: 0 }));
  objects.set("/stock", item(100));
  const quick = {
    fetch: async (address: string, request?: RequestInit) => {
      const response = await fetch(address, request);
      // Right after the first read.
      if (request === undefined && objects.get("/stock")?.equals(item(100)) === true) objects.set("/stock", item(99));
      return response;
    },
  };
  try {
    const claimed = await claim(quick as unknown as AwsClient, `${url}/stock`, 7);
    expect(claimed?.item).toEqual({ quantity: 99, fence: 7 });
  } finally {
    await stop();
  }
});

it("other documents show the tested recipes", () => {
  for (const file of ["packages/redlock-core/README.md", "packages/leader/README.md", "packages/workers/README.md"]) {
    const text = readFileSync(new URL(`../../${file}`, import.meta.url), "utf8");
    for (const [statement] of text.matchAll(/\bUPDATE \w+ SET [^`\n]*/g)) expect(page).toContain(statement);
  }
});

describe("a check on the write only", () => {
  it("loses the update of the guide's table", async () => {
    expect(await faultsOf(checkedOnWrite, overlap)).toContain("lost update");
  });

  it("loses updates in random orders as well", async () => {
    const property = fc.asyncProperty(schedules(one), async (schedule) => {
      expect(await faultsOf(checkedOnWrite, schedule)).not.toContain("lost update");
    });
    expect((await fc.check(property, { numRuns: 100 })).failed).toBe(true);
  }, 120_000);
});
