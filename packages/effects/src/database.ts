/**
 * The database in the form that this package uses, and the adapters for `pg` and `postgres`. A PGlite needs no adapter.
 * Adapters of a few lines for other clients are in docs/effects/clients.md.
 */
import { shaped } from "@x/redlock-core/kit";
import { isConnectionLost, isIdleEnd } from "./rules/failures.ts";

/** The rows of a statement, or an object with the rows. */
export type Rows = readonly object[] | { readonly rows: readonly object[] };

/** Sends one statement with its parameters `$1`, `$2`, … */
export type Query = (text: string, values: (string | number | null)[]) => PromiseLike<Rows>;

export interface DatabaseTransaction<Client> {
  /** Sends a statement inside the transaction. */
  query: Query;
  /** The client's own object for this transaction, which becomes `tx.client`. Default: this object. */
  readonly client?: Client | undefined;
}

/** A database that this package can use: an adapter of yours, or a PGlite. */
export interface Database<Client = unknown> {
  /** Sends a statement outside of any transaction. */
  query: Query;
  /**
   * Begins a READ COMMITTED transaction and calls `run` with the transaction. The transaction is committed if `run`
   * resolves, and rolled back if `run` rejects. The call settles as `run` does, or rejects if the commit failed.
   */
  transaction<Result>(run: (tx: DatabaseTransaction<Client>) => Promise<Result>): Promise<Result>;
  /** The largest number of connections, if known. */
  readonly size?: number | undefined;
}

/** A pool of `pg`. */
export interface PgPool {
  connect(): Promise<unknown>;
  query(text: string, values: unknown[]): unknown;
  readonly totalCount: number;
}

/** A client of `postgres`. */
export interface PostgresClient {
  unsafe(...args: never[]): PromiseLike<readonly object[]>;
  begin(...args: never[]): Promise<unknown>;
}

interface PgClient {
  query(text: string, values?: unknown[]): Promise<{ readonly rows: readonly object[] }>;
  on(event: "error", listener: (error: unknown) => void): void;
  removeListener(event: "error", listener: (error: unknown) => void): void;
  release(error?: unknown): void;
}

type Members = Readonly<Record<string, unknown>>;

const isFunction = (value: unknown): boolean => typeof value === "function";
const isPgPool = (given: Members): boolean =>
  isFunction(given["connect"]) && isFunction(given["query"]) && typeof given["totalCount"] === "number";
const isPostgres = (given: Members): boolean => isFunction(given["unsafe"]) && isFunction(given["begin"]);
const isDatabase = (given: Members): boolean => isFunction(given["query"]) && isFunction(given["transaction"]);

const DATABASE = shaped<object>(
  "a pool of pg, a client of postgres, or an object with the functions query and transaction",
  (given) => isPgPool(given) || isPostgres(given) || isDatabase(given),
);

/** Returns the adapter for a client. Throws `TypeError` for any other value. */
export function databaseOf<Client>(given: object): Database<Client> {
  const database = DATABASE.of("database", given) as unknown as Members;
  if (isDatabase(database)) return given as Database<Client>;
  return isPgPool(database) ? ofPg(given as never) : ofPostgres(given as never);
}

/** Returns the rows of a statement. */
// oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- the caller knows the columns of its statement
export function rowsOf<Row>(rows: Rows): readonly Row[] {
  return (Array.isArray(rows) ? rows : (rows as { readonly rows: readonly object[] }).rows) as readonly Row[];
}

interface FullPgPool extends Omit<PgPool, "connect"> {
  connect(): Promise<PgClient>;
  readonly options?: { readonly max?: number };
}

function ofPg<Client>(pool: FullPgPool): Database<Client> {
  return {
    query: (text, values) => pool.query(text, values) as Promise<Rows>,
    size: pool.options?.max,
    async transaction(run) {
      const client = await pool.connect();
      let broken: unknown;
      // The pool has no listener on a lent client, and an error without a listener ends the process.
      const onError = (error: unknown): void => {
        broken ??= error;
      };
      client.on("error", onError);
      try {
        await client.query("BEGIN ISOLATION LEVEL READ COMMITTED");
        const result = await run({ query: (text, values) => client.query(text, values), client: client as Client });
        await client.query("COMMIT");
        return result;
      } catch (error) {
        if (isConnectionLost(error)) broken ??= error;
        else await client.query("ROLLBACK").catch(onError);
        // The pause of this process has caused the loss of the connection.
        throw isIdleEnd(broken) ? broken : error;
      } finally {
        client.removeListener("error", onError);
        client.release(broken);
      }
    },
  };
}

interface FullPostgresClient {
  unsafe(text: string, values: unknown[]): PromiseLike<readonly object[]>;
  begin<Result>(options: string, run: (sql: FullPostgresClient) => Promise<Result>): Promise<Result>;
  readonly options?: { readonly max?: number };
}

function ofPostgres<Client>(sql: FullPostgresClient): Database<Client> {
  const queryBy =
    (each: FullPostgresClient): Query =>
    async (text, values) =>
      await each.unsafe(text, values);
  return {
    query: queryBy(sql),
    size: sql.options?.max,
    transaction: (run) =>
      sql.begin("isolation level read committed", (each) => run({ query: queryBy(each), client: each as Client })),
  };
}
