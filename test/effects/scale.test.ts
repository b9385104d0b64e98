/**
 * A large inbox costs a call of `once` no more than a small one, because each statement finds its rows by an index. A
 * cleanup reads a bounded number of pages in each statement. The nightly run has 300,000 rows.
 */
import { type Database, type DatabaseTransaction, Effects } from "@x/effects";
import { errorOf, inTransaction, isWithoutPostgres, type PostgresServer, startPostgres } from "@x/test-support";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

const ROWS = Number(process.env["INBOX_ROWS"] ?? 20_000);
const PORTION = 1_000;
/** Pages of 8 KiB that a cleanup of 1,000 rows reads: up to 5,637 were measured with 300,000 rows. */
const MOST_PAGES = 10_000;

interface Plan {
  readonly "Node Type": string;
  readonly "Relation Name"?: string;
  readonly "Shared Hit Blocks"?: number;
  readonly "Shared Read Blocks"?: number;
  readonly Plans?: readonly Plan[];
}

/** Returns the tables that a plan reads from their first row to the last. */
function scannedBy(plan: Plan): readonly string[] {
  const own = plan["Node Type"] === "Seq Scan" ? [plan["Relation Name"] ?? ""] : [];
  return [...own, ...(plan.Plans ?? []).flatMap(scannedBy)];
}

type Send = DatabaseTransaction<unknown>["query"];

describe.skipIf(isWithoutPostgres())(`effects with ${ROWS} inbox rows`, () => {
  let server: PostgresServer;
  let pool: pg.Pool;
  beforeAll(async () => {
    server = await startPostgres();
    pool = new pg.Pool({ connectionString: server.url });
    await new Effects(pool).migrate();
    const numbers = `generate_series(1, ${ROWS}) n`;
    await pool.query(`INSERT INTO effects_inbox (id, result, created_at)
      SELECT '["job","bull:payments","' || n || '",1]', '{"charged":true}', now() - n * interval '60 days' / ${ROWS}
      FROM ${numbers}`);
    await pool.query(`INSERT INTO effects_fence SELECT 'account:' || n, 5 FROM ${numbers}`);
    await pool.query("ANALYZE effects_inbox, effects_fence");
  });
  afterAll(async () => {
    await pool.end();
    await server.stop();
  });

  async function explain(client: pg.Pool | pg.PoolClient, options: string, text: string, values: unknown[]) {
    const { rows } = await client.query<{ "QUERY PLAN": [{ Plan: Plan }] }>(`EXPLAIN (${options}) ${text}`, values);
    return (rows[0] as (typeof rows)[number])["QUERY PLAN"][0].Plan;
  }

  it("find every row of once by an index", async () => {
    const scanned = new Set<string>();
    const verbs: string[] = [];
    const database: Database = {
      query: async (text, values) => await pool.query<object>(text, values),
      async transaction(run) {
        return await inTransaction(pool, async (client: pg.PoolClient) => {
          const query: Send = async (text, values) => {
            verbs.push(text.trim().split(" ", 1)[0] ?? "");
            for (const table of scannedBy(await explain(client, "FORMAT JSON", text, values))) scanned.add(table);
            return await client.query<object>(text, values);
          };
          return await run({ query });
        });
      },
    };
    const effects = new Effects(database);
    const holder = (fencingToken: number, ...resources: string[]) => ({ fencingToken, resources });
    const job = (id: string) => ({ id, timestamp: 1, queueQualifiedName: "bull:payments" });
    expect(await effects.once({ job: job("7"), lock: holder(6, "account:7") }, () => "new")).toEqual({ charged: true });
    expect(await effects.once({ job: job("a"), lock: holder(6, "account:7") }, () => "new")).toBe("new");
    expect(await effects.once({ job: job("b"), lock: holder(6, "account:8", "account:9") }, () => "new")).toBe("new");
    expect(await effects.once({ job: job("c") }, () => "new")).toBe("new");
    const old = { job: job("d"), lock: holder(4, "account:8", "account:9") };
    expect(await errorOf(effects.once(old, () => "new"))).toMatchObject({ code: "FENCED_OFF" });
    expect(new Set(verbs)).toEqual(new Set(["WITH", "INSERT", "SELECT", "UPDATE"]));
    expect([...scanned]).toEqual([]);
  });

  it("are removed by statements of a limited size, even next to an old snapshot", async () => {
    const reader = await pool.connect();
    await reader.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
    await reader.query("SELECT 1 FROM effects_inbox LIMIT 1");
    const deleted: number[] = [];
    const pages: number[] = [];
    const database: Database = {
      async query(text, values) {
        const client = await pool.connect();
        await client.query("BEGIN");
        const plan = await explain(client, "ANALYZE, BUFFERS, FORMAT JSON", text, values);
        await client.query("ROLLBACK");
        client.release();
        expect(scannedBy(plan)).toEqual([]);
        pages.push((plan["Shared Hit Blocks"] ?? 0) + (plan["Shared Read Blocks"] ?? 0));
        const { rows } = await pool.query<object>(text, values);
        deleted.push(rows.length);
        return rows;
      },
      transaction: () => Promise.reject(new Error("a cleanup needs no transaction")),
    };
    const { rows } = await pool.query<{ n: string }>(
      "SELECT count(*) AS n FROM effects_inbox WHERE created_at < now() - interval '30 days'",
    );
    const old = Number(rows[0]?.n);
    expect(await new Effects(database).cleanup()).toBe(old);
    await reader.query("ROLLBACK");
    reader.release();
    expect(Math.max(...deleted)).toBe(PORTION);
    expect(deleted).toHaveLength(Math.floor(old / PORTION) + 1);
    expect(Math.max(...pages)).toBeLessThan(MOST_PAGES);
    expect(await new Effects(pool).cleanup()).toBe(0);
  });
});
