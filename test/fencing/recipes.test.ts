/** The recipes of docs/fencing.md, run from their text: each store with the schedule that loses an update elsewhere, and with random ones. */
import { readFileSync } from "node:fs";
import { PGlite } from "@electric-sql/pglite";
import { FencedOffError, fence } from "@x/redlock-core";
import { type RedisServer, startRedis } from "@x/test-support";
import fc from "fast-check";
import { Redis } from "ioredis";
import { find, updateOne } from "mingo";
import initSqlJs from "sql.js";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Claim, type FencedStore, faultsOf, overlap, schedules } from "./holders.ts";

const page = readFileSync(new URL("../../docs/fencing.md", import.meta.url), "utf8");

function snippetsOf(title: string, language: string): string[] {
  const section = page.split(/^## /m).find((text) => text.startsWith(`${title}\n`)) ?? "";
  return [...section.matchAll(new RegExp(`^\`\`\`${language}\\n([^]*?)^\`\`\``, "gm"))].map((match) => match[1] ?? "");
}

type Body = (...args: unknown[]) => Promise<unknown>;
/** `new AsyncFunction(…)`: a snippet with what the text around it names. */
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

/** Undefined where the promise rejects with a `FencedOffError`. */
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

/** The recipe that is found everywhere: nobody knows of a holder before it writes. */
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
  const database = await PGlite.create();
  const [addFence = ""] = snippetsOf("PostgreSQL, SQLite", "sql");
  await database.exec(`${createTable}; ${addFence}`);
  const store = inSql(async (sql, values) => {
    const { rows, affectedRows } = await database.query<object>(sql, [...values]);
    return { rows, count: affectedRows ?? 0 };
  });
  return { store, close: () => database.close() };
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

type Item = { readonly _id: string; readonly quantity: number; readonly fence?: number };

/** A collection with the two methods of MongoDB's driver, each one atomic step, on mingo's query and update language. */
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
const stores: readonly [string, readonly (readonly string[])[], () => Promise<Opened>][] = [
  ["Redis", several, async () => await Promise.resolve({ store: inRedis, close: () => Promise.resolve() })],
  ["PostgreSQL", one, openPostgres],
  ["SQLite", one, openSqlite],
  ["MongoDB's language", one, async () => await Promise.resolve({ store: inMongo(), close: () => Promise.resolve() })],
];

describe.each(stores)("the recipe for %s", (_name, locks, open) => {
  let opened: Opened;
  beforeAll(async () => {
    opened = await open();
  }, 60_000);
  afterAll(() => opened.close());

  it("refuses the older holder that writes before the newer one does", async () => {
    expect(await faultsOf(opened.store, overlap)).toEqual([]);
  });

  it("loses no update and refuses nobody else, in any order", async () => {
    const property = fc.asyncProperty(schedules(locks), async (schedule) => {
      expect(await faultsOf(opened.store, schedule)).toEqual([]);
    });
    await fc.assert(property, { numRuns: 100 });
  }, 120_000);
});

/** The page's lines for one holder, who freezes before it writes. */
class PageHolder {
  readonly sold: Promise<unknown>;
  /** True once it has read. */
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

it("ends as the page's table should, with the page's own lines for Redis", async () => {
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

it("shows in other documents what is tested here", () => {
  for (const file of ["packages/redlock-core/README.md", "packages/leader/README.md", "packages/workers/README.md"]) {
    const text = readFileSync(new URL(`../../${file}`, import.meta.url), "utf8");
    for (const [statement] of text.matchAll(/\bUPDATE \w+ SET [^`\n]*/g)) expect(page).toContain(statement);
  }
});

describe("a check on the write alone", () => {
  it("loses the update of the page's table", async () => {
    expect(await faultsOf(checkedOnWrite, overlap)).toContain("lost update");
  });

  it("is found out by random orders, too", async () => {
    const property = fc.asyncProperty(schedules(one), async (schedule) => {
      expect(await faultsOf(checkedOnWrite, schedule)).not.toContain("lost update");
    });
    expect((await fc.check(property, { numRuns: 100 })).failed).toBe(true);
  }, 120_000);
});
