/**
 * Measures the cost of `once` next to the same writes without it, the throughput of the relay, and whole jobs next to
 * pg-boss. All run on one PostgreSQL with fsync, in turn.
 */
import { createRequire } from "node:module";
import { Effects, OutboxRelay } from "@x/effects";
import { type PostgresServer, startPostgres, startRedis, until } from "@x/test-support";
import { ExclusiveWorker } from "@x/workers";
import { Queue } from "bullmq";
import { Redis } from "ioredis";
import pg from "pg";
import { fixed, table } from "./report/table.ts";
import { median } from "./support/statistics.ts";

const ACCOUNTS = 1_000;
const ROUNDS = 3;
/** Jobs of a round: one at a time, and several at a time. */
const SIDES = [
  { atOnce: 1, jobs: 300 },
  { atOnce: 16, jobs: 1_600 },
] as const;
const WHOLE_JOBS = 1_500;
const SLOTS = 10;
const OUTBOX_ROWS = 20_000;

const UPDATE = "UPDATE account SET balance = balance - 1 WHERE id = $1";

interface Boss {
  start(): Promise<unknown>;
  stop(): Promise<unknown>;
  on(event: "error", listener: () => void): unknown;
  createQueue(name: string): Promise<unknown>;
  insert(name: string, jobs: readonly object[]): Promise<unknown>;
  work(
    name: string,
    options: object,
    handler: (jobs: readonly BossJob[], tx?: BossTransaction) => Promise<void>,
  ): Promise<unknown>;
  offWork(name: string): Promise<unknown>;
}
interface BossJob {
  readonly data: { readonly account: number };
}
interface BossTransaction {
  executeSql(text: string, values: unknown[]): Promise<unknown>;
}

/** Yields each table when it is measured. */
export async function* reportEffects(): AsyncGenerator<string> {
  await using server = await startPostgres({ isDurable: true });
  const pool = new pg.Pool({
    host: server.host,
    port: server.port,
    user: server.user,
    database: server.database,
    max: 20,
  });
  pool.on("error", () => undefined);
  pool.on("connect", countStatements);
  await pool.query("CREATE TABLE account (id int PRIMARY KEY, balance int)");
  await pool.query(`INSERT INTO account SELECT n, 0 FROM generate_series(0, ${ACCOUNTS - 1}) n`);
  const effects = new Effects(pool);
  await effects.migrate();
  yield await measureOnce(pool, effects);
  await using redis = await startRedis();
  const connection = new Redis({ host: redis.host, port: redis.port, maxRetriesPerRequest: null });
  yield await measureRelay(effects, connection);
  yield await measureJobs({ pool, effects, connection, server });
  await connection.quit();
  await pool.end();
}

/** Number of statements that the pool's clients have sent. */
let statements = 0;

function countStatements(client: pg.PoolClient): void {
  const query = client.query.bind(client) as (...args: unknown[]) => unknown;
  Object.defineProperty(client, "query", {
    value: (...args: unknown[]) => {
      statements += 1;
      return query(...args);
    },
  });
}

async function measureOnce(pool: pg.Pool, effects: Effects): Promise<string> {
  let key = 0;
  const lockOf = (account: number) => ({ fencingToken: 1, resources: [`account:${account}`] });
  const kinds: Readonly<Record<string, (account: number) => Promise<unknown>>> = {
    "UPDATE alone": (account) => pool.query(UPDATE, [account]),
    "UPDATE in a transaction": (account) => inTransaction(pool, account),
    "`once` without a lock": (account) => effects.once({ key: `${key++}` }, (tx) => tx.query(UPDATE, [account])),
    "`once` with a lock": (account) =>
      effects.once({ key: `${key++}`, lock: lockOf(account) }, (tx) => tx.query(UPDATE, [account])),
    "`once` with a lock and an outbox row": (account) =>
      effects.once({ key: `${key++}`, lock: lockOf(account) }, async (tx) => {
        await tx.query(UPDATE, [account]);
        tx.enqueue("receipts", "send", { account });
      }),
    "`once` again": () => effects.once({ key: "again", lock: lockOf(0) }, () => 1),
  };
  const measured = new Map(Object.keys(kinds).map((name) => [name, SIDES.map(() => ({ ms: [0], count: [0] }))]));
  for (const samples of measured.values()) for (const sample of samples) sample.ms.length = sample.count.length = 0;
  for (const [side, { atOnce, jobs }] of SIDES.entries()) {
    // The first round warms up.
    for (let round = 0; round <= ROUNDS; round += 1) {
      for (const [name, work] of Object.entries(kinds)) {
        const before = statements;
        const ms = await timeOf(jobs, atOnce, work);
        const sample = measured.get(name)?.[side];
        if (round === 0 || sample === undefined) continue;
        sample.ms.push(ms);
        sample.count.push((statements - before) / jobs);
      }
    }
  }
  const rows = [...measured].map(([name, [alone, side]]) => [
    name,
    fixed(median(alone?.count ?? []), 0),
    fixed(median(alone?.ms ?? []) / SIDES[0].jobs, 2),
    fixed((SIDES[1].jobs * 1_000) / median(side?.ms ?? []), 0),
  ]);
  return table(["one UPDATE per job", "statements", "ms, one at a time", `jobs/s, ${SIDES[1].atOnce} at a time`], rows);
}

async function timeOf(jobs: number, atOnce: number, work: (account: number) => Promise<unknown>): Promise<number> {
  let next = 0;
  const startMs = performance.now();
  const line = async (): Promise<void> => {
    while (next < jobs) await work(next++ % ACCOUNTS);
  };
  await Promise.all(Array.from({ length: atOnce }, line));
  return performance.now() - startMs;
}

async function inTransaction(pool: pg.Pool, account: number): Promise<void> {
  const client = await pool.connect();
  await client.query("BEGIN");
  await client.query(UPDATE, [account]);
  await client.query("COMMIT");
  client.release();
}

async function measureRelay(effects: Effects, connection: Redis): Promise<string> {
  // Rows of the previous part are not counted.
  const queue = new Queue("relayed", { connection });
  const election = {
    name: "bench",
    run: (task: (term: Parameters<OutboxRelay["lead"]>[0]) => Promise<void>, { signal }: { signal: AbortSignal }) =>
      task({ election: "bench", signal, assertCurrent: () => undefined }),
  };
  const drained = async (): Promise<boolean> => (await effects.backlog()).rows === 0;
  const before = new OutboxRelay(effects, { election, connection });
  before.start();
  await until(drained);
  await before.stop();
  for (let rows = 0; rows < OUTBOX_ROWS; rows += 1_000) {
    await effects.transaction((tx) => {
      for (let n = 0; n < 1_000; n += 1) tx.enqueue(queue.name, "send", { n });
    });
  }
  const relay = new OutboxRelay(effects, { election, connection });
  const startMs = performance.now();
  relay.start();
  await until(drained);
  const tookMs = performance.now() - startMs;
  const delays: number[] = [];
  for (let n = 0; n < 100; n += 1) {
    const relayed = new Promise<void>((resolve) => {
      const off = relay.on("relayed", () => {
        off();
        resolve();
      });
    });
    await effects.transaction((tx) => tx.enqueue(queue.name, "late", { n }));
    const committedMs = performance.now();
    await relayed;
    delays.push(performance.now() - committedMs);
  }
  await relay.stop();
  await queue.close();
  return table(
    ["relay", ""],
    [
      [`rows/s, of ${OUTBOX_ROWS} in batches of 500`, fixed((OUTBOX_ROWS * 1_000) / tookMs, 0)],
      ["ms from the commit to the queue, median of 100", fixed(median(delays), 0)],
    ],
  );
}

interface Setting {
  readonly pool: pg.Pool;
  readonly effects: Effects;
  readonly connection: Redis;
  readonly server: PostgresServer;
}

async function measureJobs({ pool, effects, connection, server }: Setting): Promise<string> {
  let queues = 0;
  type Processor = ConstructorParameters<typeof ExclusiveWorker<BossJob["data"]>>[1];
  const exclusive = (processor: Processor) => async (): Promise<number> => {
    const queue = new Queue(`jobs${queues++}`, { connection });
    await queue.addBulk(
      Array.from({ length: WHOLE_JOBS }, (_, n) => ({ name: "charge", data: { account: n % ACCOUNTS } })),
    );
    const startMs = performance.now();
    const worker = new ExclusiveWorker<BossJob["data"]>(queue.name, processor, {
      connection,
      concurrency: SLOTS,
      key: "account",
      resource: `${queue.name}:`,
      maxStalledCount: 1_000,
    });
    let left = WHOLE_JOBS;
    await new Promise<void>((resolve) => {
      worker.on("completed", () => {
        left -= 1;
        if (left === 0) resolve();
      });
    });
    const tookMs = performance.now() - startMs;
    await worker.close();
    await queue.close();
    return tookMs;
  };
  const kinds: Record<string, () => Promise<number>> = {
    "ExclusiveWorker, UPDATE in a transaction": exclusive(async (job) => await inTransaction(pool, job.data.account)),
    "ExclusiveWorker, `once`": exclusive(async (job, _token, _signal, lock) =>
      effects.once({ job, lock }, (tx) => tx.query(UPDATE, [job.data.account])),
    ),
  };
  const boss = await openBoss(server);
  const batches = { batchSize: 10, localConcurrency: SLOTS, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 };
  const run = (options: object, charge: (job: BossJob, tx?: BossTransaction) => Promise<unknown>) => async () => {
    const name = `jobs${queues++}`;
    await boss.createQueue(name);
    await boss.insert(
      name,
      Array.from({ length: WHOLE_JOBS }, (_, n) => ({ data: { account: n % ACCOUNTS } })),
    );
    let left = WHOLE_JOBS;
    const startMs = performance.now();
    await new Promise<void>((resolve) => {
      void boss.work(name, { ...batches, ...options }, async (jobs, tx) => {
        for (const job of jobs) await charge(job, tx);
        left -= jobs.length;
        if (left <= 0) resolve();
      });
    });
    const tookMs = performance.now() - startMs;
    await boss.offWork(name);
    return tookMs;
  };
  kinds["pg-boss, UPDATE alone, batches of 10"] = run({}, ({ data }) => pool.query(UPDATE, [data.account]));
  kinds["pg-boss, transactional, batches of 10"] = run({ transactional: true }, async ({ data }, tx) =>
    tx?.executeSql(UPDATE, [data.account]),
  );
  const samples = new Map<string, number[]>(Object.keys(kinds).map((name) => [name, []]));
  for (let round = 0; round < ROUNDS; round += 1)
    for (const [name, work] of Object.entries(kinds)) samples.get(name)?.push(await work());
  await boss.stop();
  const rows = [...samples].map(([name, ms]) => [name, fixed((WHOLE_JOBS * 1_000) / median(ms), 0)]);
  return table([`${WHOLE_JOBS} jobs, ${SLOTS} at a time`, "jobs/s"], rows);
}

async function openBoss({ url }: PostgresServer): Promise<Boss> {
  // The declarations of pg-boss need Node.js 22, so the few types that are used here are declared above.
  const { PgBoss } = createRequire(import.meta.url)("pg-boss") as { readonly PgBoss: new (options: object) => Boss };
  const boss = new PgBoss({ connectionString: url, max: 20 });
  boss.on("error", () => undefined);
  await boss.start();
  return boss;
}
