/** A database with the tables of `@x/effects` and one account, on a server of the test file. */

import { type Database, Effects, type EffectsOptions, type PgPool, type Transaction } from "@x/effects";
import type { PostgresServer } from "@x/test-support";
import pg from "pg";

let labs = 0;
let jobs = 0;

export interface Job {
  readonly id: string;
  readonly timestamp: number;
  readonly queueQualifiedName: string;
}

/** Makes a job as BullMQ has it. A second object with the same values is a later execution of the job. */
export function job(id = `job-${jobs++}`, timestamp = 1): Job {
  return { id, timestamp, queueQualifiedName: "bull:payments" };
}

export function lock(fencingToken: number, ...resources: readonly string[]) {
  return { fencingToken, resources: resources.length === 0 ? ["account:1"] : resources };
}

export class Lab implements AsyncDisposable {
  readonly pool: pg.Pool;
  readonly prefix: string;
  readonly effects: Effects<pg.PoolClient>;

  private constructor(pool: pg.Pool, prefix: string) {
    this.pool = pool;
    this.prefix = prefix;
    this.effects = this.effectsWith();
  }

  static async open({ host, port, user, database }: PostgresServer, max = 20): Promise<Lab> {
    const pool = new pg.Pool({ host, port, user, database, max });
    pool.on("error", () => undefined);
    const lab = new Lab(pool, `lab${labs++}_`);
    await lab.effects.migrate();
    await lab.rows(`CREATE TABLE ${lab.prefix}account (id int PRIMARY KEY, balance int NOT NULL)`);
    await lab.rows(`INSERT INTO ${lab.prefix}account VALUES (1, 100)`);
    return lab;
  }

  /** Another `Effects` on the same tables. */
  effectsWith(options: EffectsOptions = {}, database: Database | PgPool = this.pool): Effects<pg.PoolClient> {
    return new Effects<pg.PoolClient>(database as PgPool, { prefix: this.prefix, ...options });
  }

  async rows<Row = Record<string, unknown>>(text: string, values: unknown[] = []): Promise<Row[]> {
    return (await this.pool.query(text, values)).rows as Row[];
  }

  /** The effect: charges the account by 1. */
  readonly charge = async (tx: Transaction): Promise<{ charged: true }> => {
    await tx.query(`UPDATE ${this.prefix}account SET balance = balance - 1 WHERE id = $1`, [1]);
    return { charged: true };
  };

  /** The number of charges. */
  async charges(): Promise<number> {
    const [row] = await this.rows<{ balance: number }>(`SELECT balance FROM ${this.prefix}account`);
    return 100 - Number(row?.balance);
  }

  /** The names of the open outbox rows, in the order of their relay. */
  async outbox(): Promise<string[]> {
    const open = `SELECT name FROM ${this.prefix}outbox o WHERE relayed_at IS NULL ORDER BY o.seq`;
    return (await this.rows<{ name: string }>(open)).map(({ name }) => name);
  }

  /** Resolves once this number of sessions waits for a lock of another one. */
  async untilWaiting(count = 1): Promise<void> {
    const waiting = "SELECT count(*)::int AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    for (;;) {
      const [row] = await this.rows<{ n: number }>(waiting);
      if (Number(row?.n) >= count) return;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.pool.end();
  }
}

/** A gate that a transaction waits at until the test opens it. */
export function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open: () => void = () => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}
