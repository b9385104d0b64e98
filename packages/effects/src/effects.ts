/**
 * Effects of jobs in Postgres that happen once, with an outbox in the same transaction.
 *
 * Guaranteed:
 * - Of all calls of `once` with one inbox ID, at most one call commits the effect. All other calls return the result,
 *   until the inbox row is cleaned up. Calls at the same time are included, and so is a connection that is lost during
 *   COMMIT.
 * - After a transaction has committed under a fencing token, no transaction with a smaller token of the same resource
 *   commits.
 * - A job is in the outbox if and only if its transaction was committed.
 * - If a transaction has seen the changes of another transaction, its outbox rows come later.
 *
 * Not guaranteed: what the function does outside of its transaction, and anything after Postgres has lost a commit.
 */
import { FencedOffError, systemClock } from "@x/redlock-core";
import { backOffMs, Emitter, sleep, systemRandom } from "@x/redlock-core/kit";
import {
  type Database,
  type DatabaseTransaction,
  databaseOf,
  type PgPool,
  type PostgresClient,
  rowsOf,
} from "./database.ts";
import { OutcomeUnknownError, TransactionEndedError } from "./errors.ts";
import {
  EFFECTS_EVENTS,
  type EffectsEvents,
  effectsChannels,
  type OutboxBacklog,
  type StopListening,
} from "./events.ts";
import {
  type CleanupOptions,
  type Effect,
  type EffectsOptions,
  FN,
  type OnceOptions,
  type ReplayOptions,
  type ResolvedEffectsOptions,
  resolveCleanup,
  resolveEffects,
  resolveOnce,
  resolveReplay,
} from "./options.ts";
import { isConflict, isConnectionLost, plainClientError } from "./rules/failures.ts";
import { jsonOf, type OutboxJobOptions, type OutboxRow, rowOf } from "./rules/outbox-row.ts";
import { type Statements, statementsOf } from "./rules/sql.ts";
import { SqlStore, stores } from "./sql-store.ts";
import { UsedSteps } from "./used-steps.ts";
import { warnOfWorker } from "./worker-warnings.ts";

/** The transaction that a function is called with. The transaction ends with the function. */
export interface Transaction<Client = unknown> {
  /** Sends a statement inside the transaction, and returns its rows. */
  query<Row = Record<string, unknown>>(
    text: string,
    values?: readonly (string | number | boolean | null | Date)[],
  ): Promise<readonly Row[]>;
  /** The transaction as your client or ORM has it. */
  readonly client: Client;
  /**
   * Adds a job by way of the outbox. The job's row is written at the end of the transaction, and the relay adds the job
   * to its queue after the commit.
   *
   * `opts` are the options of BullMQ. Throws `TypeError` or `RangeError` for a job that BullMQ would refuse, and for
   * the options `parent`, `repeat` and `timestamp`. Throws `TransactionEndedError` if the function has already ended.
   */
  enqueue(queue: string, name: string, data: unknown, opts?: OutboxJobOptions): void;
}

/** A function that does its effect inside a transaction. */
export type EffectFunction<Result, Client> = (tx: Transaction<Client>) => Result | PromiseLike<Result>;

/** Pauses between repetitions, in ms, and the share of each that is random. */
const PAUSE = { delayMs: 20, maxDelayMs: 2_000 } as const;
/** The pause between two questions for the outcome of a transaction. */
const ASK_AGAIN_MS = 50;
/** The lock of all migrations: two migrations at the same time would create one table twice. */
const MIGRATION_LOCK = 7_244_165_313;

/** How far one attempt of `once` has come. */
type Progress =
  | { readonly name: "begun" }
  /** Every earlier attempt has ended, because this attempt got the place in the inbox. */
  | { readonly name: "claimed" }
  /** The function has thrown an error of its own. */
  | { readonly name: "thrown" }
  /** COMMIT is the next statement. */
  | { readonly name: "complete"; readonly rows: number }
  /** An earlier call has committed the effect. */
  | { readonly name: "stored"; readonly result: string | null };

export class Effects<Client = unknown> {
  readonly #store: SqlStore;
  readonly #database: Database<Client>;
  readonly #statements: Statements;
  readonly #options: ResolvedEffectsOptions;
  readonly #events = new Emitter<EffectsEvents>(EFFECTS_EVENTS, effectsChannels);
  readonly #steps = new UsedSteps();

  /**
   * Creates the effects of one database. Sends nothing. `database` is a pool of `pg`, a client of `postgres`, a PGlite,
   * or your own adapter.
   * @throws TypeError or RangeError for an invalid database or option
   */
  constructor(database: Database<Client> | PgPool | PostgresClient, options: EffectsOptions = {}) {
    this.#database = databaseOf<Client>(database);
    this.#options = resolveEffects(options);
    this.#statements = statementsOf(this.#options);
    this.#store = new SqlStore(this.#database, this.#statements);
    stores.set(this, this.#store);
  }

  /** Returns the statements that create the tables, for a migration tool of yours. */
  sql(): string {
    return this.#statements.create.map((statement) => `${statement};\n`).join("");
  }

  /** Creates the tables unless they exist. Any number of processes may call `migrate` at the same time. */
  async migrate(): Promise<void> {
    await this.#database.transaction(async ({ query }) => {
      await query("SELECT 1 AS ok FROM pg_advisory_xact_lock($1::text::bigint)", [String(MIGRATION_LOCK)]);
      for (const statement of this.#statements.create) await query(statement, []);
    });
  }

  /**
   * Calls `fn` in a transaction and commits its effect, unless an earlier call with the same `job` or `key` has done
   * so. Resolves with the result of the call that has committed, as JSON keeps it.
   *
   * If the connection is lost, or another transaction conflicts, everything is repeated up to `retries` times,
   * including `fn`. After a rejection nothing was committed, unless the error is an `OutcomeUnknownError` or a
   * `TransactionEndedError`.
   * @throws FencedOffError if a newer holder has claimed a resource of `lock`
   * @throws OutcomeUnknownError if the connection was lost during COMMIT and the server does not answer again
   * @throws TransactionEndedError if `fn` has ended the transaction
   * @throws RangeError for a result over `maxResult`, and for a second effect of one run of a job with the same `step`
   */
  async once<Result>(options: OnceOptions, fn: EffectFunction<Result, Client>): Promise<Result> {
    const effect = resolveOnce(options);
    FN.of("fn", fn);
    if (effect.job !== undefined) warnOfWorker(effect.job, this.#database.size);
    const release = this.#steps.reserve(effect);
    try {
      const text = await this.#repeat(effect, fn);
      return (text === null ? undefined : JSON.parse(text)) as Result;
    } catch (error) {
      release();
      throw error;
    }
  }

  /**
   * Calls `fn` in a transaction with an outbox, and without an inbox, for code such as an HTTP handler. Resolves with
   * the value that `fn` returned.
   *
   * Nothing is repeated. If the connection is lost during COMMIT, the server is asked for the outcome.
   * @throws OutcomeUnknownError if the server does not know the outcome, or does not answer again
   * @throws TransactionEndedError if `fn` has ended the transaction
   */
  async transaction<Result>(fn: EffectFunction<Result, Client>): Promise<Result> {
    FN.of("fn", fn);
    let sent: { readonly xid: string; readonly result: Result } | undefined;
    try {
      return await this.#database.transaction(async (handle) => {
        const { beginPlain, finishPlain } = this.#statements;
        const [begun] = await send<{ xid: string }>(handle, beginPlain, [String(this.#options.idleTimeout)]);
        const xid = String(begun?.xid);
        const { value, rows } = await callWith(handle, fn);
        const [isOpen] = await send(handle, finishPlain, [xid]);
        if (isOpen === undefined) throw new TransactionEndedError();
        await this.#insert(handle, rows);
        sent = { xid, result: value };
        return value;
      });
    } catch (error) {
      if (sent === undefined || !isConnectionLost(error)) throw error;
      if (await this.#isCommitted(sent.xid, error)) return sent.result;
      throw error;
    }
  }

  /** Counts the outbox rows that wait for the relay. */
  async backlog(): Promise<OutboxBacklog> {
    return await this.#store.backlog();
  }

  /**
   * Returns relayed rows to the outbox, so that the relay adds their jobs again after Redis has lost its data. Needs
   * rows that the relay has kept (`keepFor`). Resolves with the number of rows.
   *
   * Wait a few seconds after the loss: the relay records rows just after it has added their jobs, and rows that are not
   * recorded yet are left out.
   *
   * Jobs that still exist in Redis are not added twice. A consumer without `once` repeats the effects of all other
   * jobs.
   */
  async replay(options: ReplayOptions): Promise<number> {
    const { queue, sinceMs } = resolveReplay(options);
    return await this.#store.replay(queue, sinceMs);
  }

  /**
   * Deletes old inbox rows, at most 1,000 per statement. Resolves with the number of deleted rows. If a job or key is
   * repeated after its row was deleted, the effect happens again.
   */
  async cleanup(options: CleanupOptions = {}): Promise<number> {
    return await this.#store.cleanup(resolveCleanup(options).olderThan);
  }

  /** Calls `listener` with each event `name`. Returns a function that removes the listener. */
  on<Name extends keyof EffectsEvents>(name: Name, listener: (payload: EffectsEvents[Name]) => unknown): StopListening {
    return this.#events.on(name, listener);
  }

  /** Attempts the effect until its outcome is known. Returns the stored result. */
  async #repeat(effect: Effect, fn: EffectFunction<unknown, Client>): Promise<string | null> {
    const { id, resources, fencingToken } = effect;
    const about = { effectId: id, resources, fencingToken };
    const startedMs = systemClock.monotonicMs();
    let isUnknown = false;
    for (let attempt = 1; ; attempt += 1) {
      let progress: Progress = { name: "begun" };
      // A function, because the compiler would narrow the variable to its first value.
      const current = (): Progress => progress;
      try {
        const result = await this.#attempt(effect, fn, (next) => {
          progress = next;
        });
        const done = current();
        const rows = done.name === "complete" ? done.rows : 0;
        this.#events.tell("committed", () => ({ ...about, tookMs: systemClock.monotonicMs() - startedMs, rows }));
        return result;
      } catch (error) {
        const reached = current();
        if (reached.name === "stored") {
          this.#events.tell("repeated", () => about);
          return reached.result;
        }
        if (error instanceof FencedOffError && reached.name === "begun") {
          this.#events.tell("fencedOff", () => about);
          throw error;
        }
        if (reached.name !== "begun") isUnknown = reached.name === "complete" && isConnectionLost(error);
        const canRepeat = reached.name !== "thrown" && (isConnectionLost(error) || isConflict(error));
        if (!canRepeat || attempt > this.#options.retries) {
          throw isUnknown ? new OutcomeUnknownError({ id, attempts: attempt, cause: error }) : error;
        }
        this.#events.tell("retried", () => ({ effectId: id, attempt, error: plainClientError(error) }));
        const pauseMs = backOffMs({ failures: attempt, ...PAUSE });
        await sleep(systemClock, pauseMs * (0.5 + systemRandom.fraction()), undefined, { keepAlive: true });
      }
    }
  }

  /**
   * Makes one transaction of an effect. A rejection rolls the transaction back, even if the effect is already stored.
   */
  async #attempt(
    effect: Effect,
    fn: EffectFunction<unknown, Client>,
    reach: (progress: Progress) => void,
  ): Promise<string | null> {
    return await this.#database.transaction(async (handle) => {
      if (!(await this.#begin(handle, effect))) {
        reach({ name: "stored", result: await this.#stored(handle, effect) });
        throw new Error("the effect is already stored");
      }
      reach({ name: "claimed" });
      const { value, rows } = await callWith(handle, fn).catch(async (error: unknown) => {
        // If this connection answers, the function has passed on an error of another connection.
        if (isConnectionLost(error) && (await answers(handle))) reach({ name: "thrown" });
        throw error;
      });
      const result = this.#resultOf(value);
      const [isOpen] = await send(handle, this.#statements.finish, [result, effect.id]);
      if (isOpen === undefined) throw new TransactionEndedError();
      // The last statement: every conflict with another transaction was waited for before the rows get numbers.
      await this.#insert(handle, rows);
      reach({ name: "complete", rows: rows.length });
      return result;
    });
  }

  /** Claims the resources and inserts the inbox row. Returns false if the row exists, or a newer holder has claimed. */
  async #begin(handle: DatabaseTransaction<Client>, { id, resources, fencingToken }: Effect): Promise<boolean> {
    const { beginWithoutClaim, beginWithClaim, beginWithClaims } = this.#statements;
    const idle = String(this.#options.idleTimeout);
    const [first] = resources;
    if (first === undefined) return (await send(handle, beginWithoutClaim, [id, idle])).length > 0;
    const isOne = resources.length === 1;
    const names = isOne ? first : JSON.stringify(resources);
    const statement = isOne ? beginWithClaim : beginWithClaims;
    return (await send(handle, statement, [names, fencingToken, idle, id])).length > 0;
  }

  /**
   * Reads the stored result. A new statement sees an effect that was committed while the statement before it waited.
   * @throws FencedOffError if no result is stored
   */
  async #stored(handle: DatabaseTransaction<Client>, { id, resources, fencingToken }: Effect): Promise<string | null> {
    const [stored] = await send<{ result: string | null }>(handle, this.#statements.result, [id]);
    if (stored !== undefined) return stored.result;
    const values = [fencingToken, JSON.stringify(resources)];
    const [claim] = await send<{ resource: string; token: string }>(handle, this.#statements.newerClaim, values);
    // A cleanup has just deleted the row: the next attempt finds its place free.
    if (claim === undefined) throw Object.assign(new Error("the inbox row has gone"), { code: "40001" });
    throw new FencedOffError({ key: claim.resource, fencingToken, claimedBy: claim.token });
  }

  #resultOf(value: unknown): string | null {
    const result = jsonOf("result", value);
    if (result === undefined) return null;
    const { maxResult } = this.#options;
    const bytes = Buffer.byteLength(result);
    if (bytes > maxResult) throw new RangeError(`result must be at most maxResult (${maxResult} bytes), got ${bytes}`);
    return result;
  }

  async #insert(handle: DatabaseTransaction<Client>, rows: readonly OutboxRow[]): Promise<void> {
    if (rows.length > 0) await send(handle, this.#statements.insertRows, [JSON.stringify(rows)]);
  }

  /** Asks whether a transaction was committed, until the server knows. */
  async #isCommitted(xid: string, cause: unknown): Promise<boolean> {
    const { idleTimeout, retries } = this.#options;
    const deadlineMs = systemClock.monotonicMs() + idleTimeout + PAUSE.maxDelayMs;
    let failures = 0;
    for (let attempts = 1; ; attempts += 1) {
      let status: string | null | undefined;
      try {
        const { outcome } = this.#statements;
        status = rowsOf<{ status: string | null }>(await this.#database.query(outcome, [xid]))[0]?.status;
      } catch {
        failures += 1;
      }
      if (status === "committed" || status === "aborted") return status === "committed";
      const isOver = status === null || failures > retries || systemClock.monotonicMs() > deadlineMs;
      if (isOver) throw new OutcomeUnknownError({ id: undefined, attempts, cause });
      const pauseMs = failures === 0 ? ASK_AGAIN_MS : backOffMs({ failures, ...PAUSE });
      await sleep(systemClock, pauseMs, undefined, { keepAlive: true });
    }
  }
}

/** Sends a statement of this package. An error does not contain the parameters, such as the data of jobs. */
async function send<Row>(
  { query }: Pick<DatabaseTransaction<unknown>, "query">,
  text: string,
  values: (string | number | null)[],
): Promise<readonly Row[]> {
  try {
    return rowsOf<Row>(await query(text, values));
  } catch (error) {
    throw plainClientError(error);
  }
}

/** Calls the caller's function. The function cannot use the transaction after its end. */
async function callWith<Result, Client>(
  handle: DatabaseTransaction<Client>,
  fn: EffectFunction<Result, Client>,
): Promise<{ readonly value: Result; readonly rows: readonly OutboxRow[] }> {
  const rows: OutboxRow[] = [];
  let isOver = false;
  const assertOpen = (): void => {
    if (isOver) throw new TransactionEndedError();
  };
  const tx: Transaction<Client> = {
    async query(text, values = []) {
      assertOpen();
      return rowsOf(await handle.query(text, values as (string | number | null)[]));
    },
    client: handle.client ?? (handle as unknown as Client),
    enqueue(...job) {
      assertOpen();
      rows.push(rowOf(...job));
    },
  };
  try {
    return { value: await fn(tx), rows };
  } finally {
    isOver = true;
  }
}

/** Reports whether the server answers on the transaction's connection, even with an error. */
async function answers<Client>({ query }: DatabaseTransaction<Client>): Promise<boolean> {
  try {
    await query("SELECT 1 AS ok", []);
    return true;
  } catch (error) {
    return !isConnectionLost(error);
  }
}
