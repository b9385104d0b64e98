/**
 * The relay adds the rows of an outbox to their BullMQ queues.
 *
 * Guaranteed:
 * - Every row is added at least once while Redis keeps its data. A row leaves the outbox after Redis has confirmed its
 *   job.
 * - First deliveries to a queue are in the order of the outbox, with any number of relays at the same time.
 * - A queue that fails holds up its own rows only.
 *
 * Not guaranteed: that a row is added once. A relay that dies or freezes after Redis has the job leaves the row to the
 * next relay. BullMQ ignores the second job as long as the first one exists. The election keeps such duplicates rare.
 */
import { systemClock } from "@x/redlock-core";
import { Emitter, inTime, linkSignals, shaped, sleep } from "@x/redlock-core/kit";
import { Queue } from "bullmq";
import type { Effects } from "./effects.ts";
import { RELAY_EVENTS, type RelayEvents, relayChannels, type StopListening } from "./events.ts";
import { type OutboxRelayOptions, type RelayTerm, resolveRelay, TERM } from "./options.ts";
import { plainClientError } from "./rules/failures.ts";
import { type SqlStore, type StoredRow, stores } from "./sql-store.ts";

/** Rows in one `addBulk`. More brought no more throughput. */
const BATCH = 500;
/** The pause after an outbox that had less than a batch. A poll costs 0.5 ms. */
const POLL_MS = 100;
/** A queue that failed is left alone for this long. */
const RETRY_MS = 500;
/** Largest number of queues that are relayed at the same time. Each uses one connection of the pool. */
const QUEUES_AT_ONCE = 4;
const BACKLOG_MS = 5_000;
const FORGET_MS = 1_000;
/** Redis confirms a batch within this time, or the batch is tried again. */
const ADD_TIMEOUT_MS = 5_000;
const CLOSE_TIMEOUT_MS = 5_000;

const EFFECTS = shaped<Effects>("an Effects (of @x/effects)", (given) => stores.has(given));

export class OutboxRelay implements AsyncDisposable {
  readonly #store: SqlStore;
  readonly #options: ReturnType<typeof resolveRelay>;
  readonly #events = new Emitter<RelayEvents>(RELAY_EVENTS, relayChannels);
  readonly #stop = new AbortController();
  /** Queues that had a row, by name. */
  readonly #queues = new Map<string, Queue>();
  /** Until when a queue that failed is left alone, in monotonic ms. */
  readonly #blocked = new Map<string, number>();
  readonly #leading = new Set<Promise<void>>();
  #running: Promise<void> | undefined;
  #stopped: Promise<void> | undefined;
  #backlogAtMs = 0;
  #forgetAtMs = 0;

  /**
   * Creates a relay. The relay does nothing before `start` or `lead`.
   * @throws TypeError or RangeError for invalid arguments
   */
  constructor(effects: Effects, options: OutboxRelayOptions) {
    this.#store = stores.get(EFFECTS.of("effects", effects)) as SqlStore;
    this.#options = resolveRelay(options);
  }

  /** Calls `listener` with each event `name`. Returns a function that removes the listener. */
  on<Name extends keyof RelayEvents>(name: Name, listener: (payload: RelayEvents[Name]) => unknown): StopListening {
    return this.#events.on(name, listener);
  }

  /**
   * Takes part in the election from now on, with `election.run()`. Use `lead` instead if the election runs a task of
   * yours. A rejection of `run()` is emitted as an `error` event. Does nothing while the relay runs, and after `stop`.
   */
  start(): void {
    if (this.#stop.signal.aborted || this.#running !== undefined) return;
    this.#running = this.#options.election
      .run((term) => this.lead(term), { signal: this.#stop.signal })
      .catch((error: unknown) => this.#report(error))
      .finally(() => {
        this.#running = undefined;
      });
  }

  /**
   * Relays for as long as `term` lasts: `election.run((term) => relay.lead(term))`. Resolves when the last batch has
   * ended. The process stays alive until then.
   */
  async lead(term: RelayTerm): Promise<void> {
    const run = this.#relayUntilEnd(TERM.of("term", term));
    this.#leading.add(run);
    await run.finally(() => this.#leading.delete(run));
  }

  /** Ends the relay after the batches under way, resigns, and closes the queues. Never rejects. */
  stop(): Promise<void> {
    this.#stopped ??= this.#stopAll();
    return this.#stopped;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  async #stopAll(): Promise<void> {
    this.#stop.abort(new Error("the relay is stopped"));
    await Promise.all(this.#leading);
    await this.#running;
    const closing = Promise.all([...this.#queues.values()].map((queue) => queue.close()));
    await inTime(systemClock, closing, {
      timeoutMs: CLOSE_TIMEOUT_MS,
      otherwise: `the queues were not closed within ${CLOSE_TIMEOUT_MS} ms`,
      keepAlive: true,
    }).catch((error: unknown) => this.#report(error));
  }

  async #relayUntilEnd(term: RelayTerm): Promise<void> {
    const end = linkSignals(term.signal, this.#stop.signal);
    try {
      while (!end.signal.aborted) {
        const isBusy = await this.#pass(term, end.signal).catch((error: unknown) => {
          this.#report(error);
          return false;
        });
        if (!isBusy) await sleep(systemClock, POLL_MS, end.signal, { keepAlive: true }).catch(() => undefined);
      }
    } finally {
      end.unlink();
    }
  }

  /** Relays a batch of each queue. Resolves with whether a queue had a full batch, and so may have more. */
  async #pass(term: RelayTerm, end: AbortSignal): Promise<boolean> {
    const nowMs = systemClock.monotonicMs();
    await this.#lookAround(nowMs);
    const open = await this.#store.openQueues();
    const queues = open.filter((name) => (this.#blocked.get(name) ?? 0) <= nowMs).values();
    let isBusy = false;
    const work = async (): Promise<void> => {
      for (const name of queues) {
        if (end.aborted) return;
        if ((await this.#relay(name, term)) === BATCH) isBusy = true;
      }
    };
    await Promise.all(Array.from({ length: QUEUES_AT_ONCE }, work));
    return isBusy;
  }

  /** Reports the backlog and deletes rows that were kept long enough, at different intervals. */
  async #lookAround(nowMs: number): Promise<void> {
    if (nowMs >= this.#backlogAtMs && this.#events.isHeard("backlogMeasured")) {
      this.#backlogAtMs = nowMs + BACKLOG_MS;
      this.#events.emit("backlogMeasured", await this.#store.backlog());
    }
    const { keepFor } = this.#options;
    if (keepFor === 0 || nowMs < this.#forgetAtMs) return;
    this.#forgetAtMs = nowMs + FORGET_MS;
    await this.#store.forget(keepFor);
  }

  /** Relays the oldest rows of a queue, and returns the number of rows; 0 if that failed. */
  async #relay(name: string, term: RelayTerm): Promise<number> {
    try {
      const rows = await this.#store.head(name, BATCH);
      if (rows.length === 0) return 0;
      const queue = this.#queueOf(name);
      term.assertCurrent();
      await this.#add(queue, rows);
      await this.#store.settle(rows, this.#options.keepFor > 0);
      const oldestMs = Math.max(0, systemClock.wallMs() - Number(rows[0]?.ms));
      this.#events.tell("relayed", () => ({ queue: name, rows: rows.length, oldestMs }));
      return rows.length;
    } catch (error) {
      if (term.signal.aborted) return 0;
      this.#blocked.set(name, systemClock.monotonicMs() + RETRY_MS);
      this.#events.tell("relayFailed", () => ({ queue: name, error: plainClientError(error) }));
      return 0;
    }
  }

  async #add(queue: Queue, rows: readonly StoredRow[]): Promise<void> {
    const jobs = rows.map(({ id, name, data, opts, ms }) => ({
      name,
      data: JSON.parse(data) as unknown,
      // With the row's time, a second delivery is the same job for the consumer's inbox.
      opts: { jobId: id, ...(JSON.parse(opts) as object), timestamp: Number(ms) },
    }));
    await inTime(systemClock, queue.addBulk(jobs), {
      timeoutMs: ADD_TIMEOUT_MS,
      otherwise: `Redis has not confirmed ${rows.length} jobs within ${ADD_TIMEOUT_MS} ms`,
      keepAlive: true,
    });
  }

  /** Emits an error without the failed command or statement, which may contain a password or the data of jobs. */
  #report(error: unknown): void {
    this.#events.emit("error", plainClientError(error));
  }

  #queueOf(name: string): Queue {
    const known = this.#queues.get(name);
    if (known !== undefined) return known;
    const { connection, prefix } = this.#options;
    // The producers' own queues decide about the settings that are left alone here.
    const queue = new Queue(name, { connection, prefix, skipMetasUpdate: true });
    queue.on("error", (error) => this.#report(error));
    this.#queues.set(name, queue);
    return queue;
  }
}
