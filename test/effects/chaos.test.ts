/**
 * Processes that do effects and relay them are killed and frozen at every await. Afterwards the tables and queues must
 * show that each effect happened once and in order, and that exactly the jobs of committed transactions were delivered.
 */
import { Effects } from "@x/effects";
import {
  type Child,
  isWithoutPostgres,
  type PostgresServer,
  type RedisServer,
  spawnChild,
  startPostgres,
  startRedis,
  until,
} from "@x/test-support";
import { Queue, Worker } from "bullmq";
import { Redis } from "ioredis";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { ChildSettings } from "./children/effects-process.ts";

const JOBS = Number(process.env["EFFECT_JOBS"] ?? 120);
/** With many jobs, faults must be rarer, so that the run ends in time. */
const RARER = JOBS > 1_000 ? 4 : 1;
/** A relay meets each kind of await about ten times a second, for any number of jobs. */
const RELAY_CHANCE = 0.012;
const ACCOUNTS = 12;
const LIMIT_MS = 90_000 + JOBS * 60;
/** Longer than the lease of a job, a leader and a transaction, so that another process takes over. */
const FROZEN_MS = { min: 300, max: 3_500 } as const;

interface Numbered {
  readonly account: number;
  readonly n: number;
}

type Fault = { readonly fault: "kill" | "freeze"; readonly place: string };

const isFault = (message: unknown): message is Fault =>
  typeof message === "object" && message !== null && "fault" in message;

/** Every statement of a worker and a relay, and the places between statements. */
const PLACES: Readonly<Record<ChildSettings["role"], readonly string[]>> = {
  worker: [
    "received",
    "connect",
    ...["BEGIN", "WITH", "UPDATE", "INSERT", "COMMIT"].flatMap((verb) => [`before ${verb}`, `after ${verb}`]),
    "committed",
  ],
  relay: ["connect", ...["WITH", "SELECT", "addBulk", "DELETE"].flatMap((verb) => [`before ${verb}`, `after ${verb}`])],
};
const FAULTS = Object.entries(PLACES).flatMap(([role, places]) =>
  places.flatMap((place) => [`${role} kill ${place}`, `${role} freeze ${place}`]),
);

/** Processes of one role. A process that dies is replaced. */
class Crew {
  readonly faults = new Set<string>();
  readonly #children = new Set<Child>();
  readonly #timers = new Set<NodeJS.Timeout>();
  #isEnding = false;

  start(settings: ChildSettings): void {
    if (this.#isEnding) return;
    const child = spawnChild(new URL("./children/effects-process.ts", import.meta.url), {
      name: settings.role,
      args: [JSON.stringify(settings)],
      onMessage: (message) => {
        if (!isFault(message) || this.#isEnding) return;
        const { fault, place } = message;
        this.faults.add(`${settings.role} ${fault} ${place}`);
        if (fault === "kill") void child.kill();
        else this.#freeze(child);
      },
    });
    this.#children.add(child);
    void child.exited.then(() => {
      this.#children.delete(child);
      this.start(settings);
    });
  }

  /** Resumes all processes and lets them end their work. */
  async end(): Promise<void> {
    this.#isEnding = true;
    for (const timer of this.#timers) clearTimeout(timer);
    await Promise.all(
      [...this.#children].map(async (child) => {
        child.thaw();
        child.send("end");
        await child.exited;
      }),
    );
  }

  #freeze(child: Child): void {
    child.freeze();
    const timer = setTimeout(
      () => {
        this.#timers.delete(timer);
        child.thaw();
      },
      FROZEN_MS.min + Math.random() * (FROZEN_MS.max - FROZEN_MS.min),
    );
    this.#timers.add(timer);
  }
}

/** Counts the entries that come after a later entry of the same account. */
function disorderOf(entries: readonly Numbered[]): number {
  const last = new Map<number, number>();
  return entries.filter(({ account, n }) => {
    const before = last.get(account) ?? -1;
    last.set(account, Math.max(before, n));
    return n < before;
  }).length;
}

const numbersOf = (entries: readonly Numbered[]): number[] => entries.map(({ n }) => n).toSorted((a, b) => a - b);

describe.skipIf(isWithoutPostgres())("effects across processes", () => {
  let postgres: PostgresServer;
  let redis: RedisServer;
  beforeAll(async () => {
    [postgres, redis] = await Promise.all([startPostgres(), startRedis()]);
  });
  afterAll(async () => {
    await postgres.stop();
    await redis.stop();
  });

  async function run(
    prefix: string,
    jobs: number,
    faults: Pick<ChildSettings, "chance" | "freezes" | "maxStalledCount" | "onFailure">,
  ) {
    const { host, port, user, database } = postgres;
    const pool = new pg.Pool({ host, port, user, database });
    pool.on("error", () => undefined);
    const effects = new Effects(pool, { prefix });
    await effects.migrate();
    await pool.query(`CREATE TABLE ${prefix}account (id int PRIMARY KEY, balance int)`);
    await pool.query(`INSERT INTO ${prefix}account SELECT n, 0 FROM generate_series(0, ${ACCOUNTS - 1}) n`);
    await pool.query(`CREATE TABLE ${prefix}log (seq bigserial, account int, n int)`);
    await pool.query(`CREATE TABLE ${prefix}receipt (seq bigserial, account int, n int)`);
    const connection = new Redis({ host: redis.host, port: redis.port, maxRetriesPerRequest: null });
    const queue = new Queue<Numbered>(`${prefix}payments`, { connection });
    const added = Array.from({ length: jobs }, (_, n) => ({
      name: "charge",
      data: { account: n % ACCOUNTS, n },
      opts: { attempts: faults.onFailure === "skip" ? 1 : 1_000 },
    }));
    await queue.addBulk(added);
    const deliveries: Numbered[] = [];
    const receipts = new Worker<Numbered>(
      `${prefix}receipts`,
      async (job) => {
        deliveries.push(job.data);
        await effects.once({ job }, async (tx) => {
          const { account, n } = job.data;
          await tx.query(`INSERT INTO ${prefix}receipt (account, n) VALUES ($1::int, $2::int)`, [account, n]);
        });
      },
      { connection, maxStalledCount: 1_000 },
    );
    receipts.on("error", () => undefined);
    const [workers, relays] = [new Crew(), new Crew()];
    const settings = {
      prefix,
      postgres: { host, port, user, database },
      redis: redis.port,
      idleTimeout: 1_000,
      ...faults,
    };
    for (let index = 0; index < 3; index += 1) workers.start({ ...settings, role: "worker" });
    // If only the order of effects counts, the relay has no faults.
    const chances = faults.onFailure === "skip" ? [0] : [RELAY_CHANCE, RELAY_CHANCE];
    for (const chance of chances) relays.start({ ...settings, role: "relay", chance });
    try {
      await until(async () => {
        const { completed = 0, failed = 0 } = await queue.getJobCounts("completed", "failed");
        return completed + failed === jobs;
      }, LIMIT_MS);
      const finished = await queue.getJobCounts("completed", "failed");
      // Frozen workers resume here and may commit, so the relays end after them.
      await workers.end();
      await until(async () => (await effects.backlog()).rows === 0, LIMIT_MS);
      await relays.end();
      const last = new Queue(`${prefix}receipts`, { connection });
      await until(async () => (await last.getJobCountByTypes("wait", "active")) === 0);
      await last.close();
      const read = async (table: string): Promise<Numbered[]> =>
        (await pool.query(`SELECT account, n FROM ${prefix}${table} ORDER BY seq`)).rows as Numbered[];
      const [log, receipt] = [await read("log"), await read("receipt")];
      const { rows } = await pool.query(`SELECT -sum(balance)::int AS sum FROM ${prefix}account`);
      const left = await effects.backlog();
      return {
        ...{ finished, log, receipt, deliveries, charged: Number(rows[0]?.sum), left: left.rows },
        faults: [...workers.faults, ...relays.faults],
      };
    } finally {
      await Promise.all([workers.end(), relays.end()]);
      await receipts.close();
      await queue.close();
      await connection.quit();
      await pool.end();
    }
  }

  it("happen once and in order while processes die and freeze at every await", { timeout: LIMIT_MS * 2 }, async () => {
    const outcome = await run("chaos_", JOBS, {
      chance: 0.006 / RARER,
      freezes: 0.5,
      maxStalledCount: 1_000_000,
      onFailure: "block",
    });
    const all = Array.from({ length: JOBS }, (_, n) => n);
    expect(outcome.finished).toEqual({ completed: JOBS, failed: 0 });
    expect(numbersOf(outcome.log)).toEqual(all);
    expect(outcome.charged).toBe(JOBS);
    expect(disorderOf(outcome.log)).toBe(0);
    expect(outcome.left).toBe(0);
    // Each row took effect once, although it may have been delivered twice.
    expect(numbersOf(outcome.receipt)).toEqual(all);
    const seen = new Set<number>();
    const first = outcome.deliveries.filter(({ n }) => seen.size < seen.add(n).size);
    expect(numbersOf(first)).toEqual(all);
    expect(disorderOf(first)).toBe(0);
    expect(disorderOf(outcome.receipt)).toBe(0);
    for (const fault of ["kill", "freeze"]) expect(outcome.faults.join()).toContain(` ${fault} `);
    if (RARER > 1) expect(outcome.faults).toEqual(expect.arrayContaining(FAULTS));
  });

  it("are in order even if jobs fail while their worker is frozen", { timeout: LIMIT_MS * 2 }, async () => {
    const jobs = Math.ceil(JOBS / 4);
    const outcome = await run("frozen_", jobs, {
      chance: 0.02 / RARER,
      freezes: 1,
      maxStalledCount: 0,
      onFailure: "skip",
    });
    expect(disorderOf(outcome.log)).toBe(0);
    const effects = numbersOf(outcome.log);
    expect(new Set(effects).size).toBe(effects.length);
    expect(numbersOf(outcome.receipt)).toEqual(effects);
  });
});
