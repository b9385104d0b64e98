/** The outbox for the relay and for operators. Every statement runs alone, outside of a transaction. */
import { type Database, rowsOf } from "./database.ts";
import type { OutboxBacklog } from "./events.ts";
import type { Statements } from "./rules/sql.ts";

/** A row of the outbox for the relay. */
export interface StoredRow {
  readonly seq: string;
  readonly id: string;
  readonly name: string;
  readonly data: string;
  readonly opts: string;
  /** The time of the row, in ms since the epoch. */
  readonly ms: string;
}

/** The store of each `Effects`, for the relays. */
export const stores: WeakMap<object, SqlStore> = new WeakMap();

const LARGEST_COUNT = 100_000;
/** Largest number of rows that one statement deletes: 7 ms, measured. */
const PORTION = 1_000;

export class SqlStore {
  readonly database: Database;
  readonly statements: Statements;

  constructor(database: Database, statements: Statements) {
    this.database = database;
    this.statements = statements;
  }

  async openQueues(): Promise<readonly string[]> {
    const rows = await this.#query<{ queue: string }>(this.statements.openQueues, []);
    return rows.map(({ queue }) => queue);
  }

  head(queue: string, limit: number): Promise<readonly StoredRow[]> {
    return this.#query<StoredRow>(this.statements.head, [queue, limit]);
  }

  /** Removes rows from the outbox, or keeps them as relayed. */
  async settle(rows: readonly StoredRow[], isKept: boolean): Promise<void> {
    const { deleteRows, markRows } = this.statements;
    await this.#query(isKept ? markRows : deleteRows, [rows.map(({ seq }) => seq).join()]);
  }

  /** Deletes some of the rows that were kept for longer than `ageMs`. */
  async forget(ageMs: number): Promise<void> {
    await this.#query(this.statements.forgetRows, [ageMs, PORTION]);
  }

  async backlog(): Promise<OutboxBacklog> {
    const [row] = await this.#query<{ rows: string; ms: string }>(this.statements.backlog, [LARGEST_COUNT]);
    return { rows: Number(row?.rows), oldestMs: Math.max(0, Number(row?.ms)) };
  }

  async replay(queue: string, sinceMs: number): Promise<number> {
    return (await this.#query(this.statements.replay, [queue, sinceMs])).length;
  }

  async cleanup(ageMs: number): Promise<number> {
    for (let deleted = 0; ; ) {
      const { length } = await this.#query(this.statements.cleanup, [ageMs, PORTION]);
      deleted += length;
      if (length < PORTION) return deleted;
    }
  }

  async #query<Row>(text: string, values: (string | number)[]): Promise<readonly Row[]> {
    return rowsOf<Row>(await this.database.query(text, values));
  }
}
