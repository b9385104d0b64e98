/**
 * The workers' side of a divided queue: an `ExclusiveWorker` for each partition, with a common concurrency and common
 * events.
 *
 * Guaranteed: all guarantees of `ExclusiveWorker` for each key. A partition with jobs receives a free slot as soon as
 * the partitions that asked earlier have theirs, regardless of their backlogs. A server that hangs delays only its own
 * partitions.
 *
 * Not guaranteed: any order between partitions. More jobs than `concurrency` may run for a moment after a server that
 * hung replies again.
 */
import { EventEmitter } from "node:events";
import { type Redlock, systemClock } from "@x/redlock-core";
import { integer, sleep } from "@x/redlock-core/kit";
import { withoutCommand } from "@x/redlock-core/protocol";
import { queueRedisOf } from "../bullmq/bullmq.ts";
import { Worker } from "../bullmq/public.ts";
import type { ExclusiveWorkerListener } from "../events.ts";
import type { ExclusiveWorker } from "../exclusive-worker.ts";
import type { ExclusiveProcessorFunction } from "../runner/runner.ts";
import { PROCESSOR } from "../worker-parts.ts";
import { LayoutRecord } from "./layout.ts";
import { divisionOf, type PartitionedWorkerOptions, readDivisionOptions } from "./options.ts";
import { PartitionWorker } from "./partition-worker.ts";
import { partitionOf } from "./rules/partition.ts";
import { Slots } from "./slots.ts";

/** Events that are emitted once for all partitions, not for each partition. */
const COMMON_EVENTS: ReadonlySet<string> = new Set(["ready", "closing", "closed", "paused", "resumed", "drained"]);
const LOOK_EVERY_MS = 1_000;

const CONCURRENCY = integer({ min: 1, unit: "" }).default(1);

// oxlint-disable typescript/no-explicit-any -- BullMQ's own defaults, so that untyped code compiles as before
export class PartitionedWorker<Data = any, Result = any, Name extends string = string> {
  // oxlint-enable typescript/no-explicit-any
  /** Creates the error with which a processor reports that the queue's rate limit was reached, as `Worker` does. */
  static RateLimitError(): Error {
    return Worker.RateLimitError();
  }

  readonly name: string;
  readonly partitions: number;
  /** The workers by partition, for calls that this class does not have. Do not close or pause a single worker. */
  readonly workers: readonly ExclusiveWorker<Data, Result, Name>[];
  readonly #record: LayoutRecord;
  readonly #events = new EventEmitter();
  readonly #isStopped = new AbortController();
  readonly #drained = new Set<number>();
  #isStarting = false;
  /** Whether the queue has this division and the partitions' workers were started. */
  #isStarted = false;
  #isPaused = false;

  /**
   * Creates the workers of all partitions. `concurrency` limits all workers together. The other options apply to each
   * worker.
   *
   * Pass `autorun: false` to start the workers with `run()`.
   * @throws TypeError, RangeError for invalid options, before anything is sent.
   */
  constructor(
    name: string,
    processor: string | URL | null | undefined | ExclusiveProcessorFunction<Data, Result, Name>,
    given: PartitionedWorkerOptions<Data, Name>,
  ) {
    const options = readDivisionOptions(given);
    PROCESSOR.of("processor", processor);
    const division = divisionOf(name, options);
    const { partitions, places, prefix } = division;
    const { partitions: _partitions, connection: _connection, autorun = true, ...others } = options;
    const concurrency = CONCURRENCY.of("concurrency", options.concurrency);
    const slots = new Slots(concurrency, systemClock);
    this.name = name;
    this.partitions = partitions;
    const workers: PartitionWorker<Data, Result, Name>[] = [];
    try {
      for (const [partition, { queue, connection }] of places.entries()) {
        const onEvent = (event: string, args: readonly unknown[]): boolean => this.#onEvent(partition, event, args);
        const facts = { partition, partitions, slots, clock: systemClock, onEvent };
        workers.push(new PartitionWorker(queue, processor, { ...others, connection, prefix, concurrency }, facts));
      }
    } catch (error) {
      for (const worker of workers) worker.close(true).catch(() => {});
      throw error;
    }
    this.workers = workers;
    this.#record = new LayoutRecord(division, queueRedisOf(this.#workerOf(0)));
    if (autorun && (processor ?? null) !== null) this.run().catch((error: unknown) => this.#reportError(error));
  }

  /**
   * Runs until the worker is closed.
   *
   * If the queue is divided in another way, no job is run, and an `error` event reports a `DivisionMismatchError`.
   * While the queue is being moved to this division, the worker waits for the end of the move. Rejects if the worker is
   * already running, like BullMQ's.
   */
  async run(): Promise<void> {
    if (this.#isStarting || this.#hasLoops) throw new Error("Worker is already running.");
    this.#isStarting = true;
    try {
      await this.#waitForDivision();
      if (this.#isStopped.signal.aborted) return;
      this.#isStarted = true;
      this.#emit("ready");
      const runs = this.#onAll(async (worker) => await worker.run());
      this.#isStarting = false;
      await runs;
    } finally {
      this.#isStarting = false;
    }
  }

  /** Adds a listener for an event of `ExclusiveWorker`. `drained` is emitted when no partition has a job to fetch. */
  on<Event extends keyof ExclusiveWorkerListener<Data, Result, Name>>(
    event: Event,
    listener: ExclusiveWorkerListener<Data, Result, Name>[Event],
  ): this {
    this.#events.on(event, listener as () => void);
    return this;
  }

  /** Adds a listener for the next event only. */
  once<Event extends keyof ExclusiveWorkerListener<Data, Result, Name>>(
    event: Event,
    listener: ExclusiveWorkerListener<Data, Result, Name>[Event],
  ): this {
    this.#events.once(event, listener as () => void);
    return this;
  }

  off<Event extends keyof ExclusiveWorkerListener<Data, Result, Name>>(
    event: Event,
    listener: ExclusiveWorkerListener<Data, Result, Name>[Event],
  ): this {
    this.#events.off(event, listener as () => void);
    return this;
  }

  /** Returns the worker of a key's partition, for calls about one key. */
  workerOf(key: string): ExclusiveWorker<Data, Result, Name> {
    return this.#workerOf(partitionOf(key, this.partitions));
  }

  /** Returns the `Redlock` that stores a key's lock, for plain code that works on the same entity. */
  redlockOf(key: string): Redlock {
    return this.workerOf(key).redlock;
  }

  /**
   * Stops taking jobs until `resume()`. Resolves when the running jobs have ended, or immediately with
   * `doNotWaitActive`.
   */
  async pause(doNotWaitActive?: boolean): Promise<void> {
    this.#isPaused = true;
    if (this.#isStarted) await this.#onAll(async (worker) => await worker.pause(doNotWaitActive));
    this.#emit("paused");
  }

  /**
   * Continues after `pause()`. A worker that was not started with `run()`, or that waits for its division, is not
   * started.
   */
  async resume(): Promise<void> {
    this.#isPaused = false;
    if (this.#isStarted) await this.#onAll(async (worker) => await worker.resume());
    this.#emit("resumed");
  }

  /**
   * Reports whether the workers of all partitions are running and can write to their Redis, see
   * `ExclusiveWorker.isRunning`. False while the queue has another division.
   */
  isRunning(): boolean {
    return this.workers.every((worker) => worker.isRunning());
  }

  /** Whether workers of partitions have been started, even if their Redis cannot be reached. */
  get #hasLoops(): boolean {
    return this.workers.some((worker) => Worker.prototype.isRunning.call(worker));
  }

  /** Reports whether the worker is paused. */
  isPaused(): boolean {
    return this.#isPaused;
  }

  /** Resolves when all partitions are connected. */
  async waitUntilReady(): Promise<void> {
    await this.#onAll(async (worker) => await worker.waitUntilReady());
  }

  /** Closes all workers. See `ExclusiveWorker.close`. */
  async close(force = false): Promise<void> {
    const isFirst = !this.#isStopped.signal.aborted;
    if (isFirst) this.#emit("closing", "closing queue");
    this.#isStopped.abort();
    await this.#onAll(async (worker) => await worker.close(force));
    if (isFirst) this.#emit("closed");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Resolves when the queue has this division and the worker is not paused, or when the worker is closed. */
  async #waitForDivision(): Promise<void> {
    let reported = "";
    while (!this.#isStopped.signal.aborted) {
      try {
        const { fault, isInForce } = await this.#record.compare("register");
        if (fault !== undefined && fault.message !== reported) this.#reportError(fault);
        reported = fault?.message ?? "";
        if (isInForce && !this.#isPaused) break;
      } catch (error) {
        if (!this.#isStopped.signal.aborted) this.#reportError(error);
      }
      await sleep(systemClock, LOOK_EVERY_MS, this.#isStopped.signal).catch(() => {});
    }
  }

  #onEvent(partition: number, event: string, args: readonly unknown[]): boolean {
    if (event === "error") return this.#reportError(args[0]);
    if (event === "drained") {
      this.#drained.add(partition);
      if (this.#drained.size === this.partitions) this.#emit("drained");
      return false;
    }
    if (event === "active") this.#drained.delete(partition);
    if (!COMMON_EVENTS.has(event)) this.#emit(event, ...args);
    return false;
  }

  /** Returns whether the error has a listener. An error without a listener does not end the process. */
  #reportError(error: unknown): boolean {
    return this.#events.listenerCount("error") > 0 && this.#emit("error", withoutCommand(error));
  }

  /**
   * Emits an event like BullMQ's worker: an error that a listener throws is emitted as an `error` event and breaks
   * nothing.
   */
  #emit(event: string, ...args: readonly unknown[]): boolean {
    try {
      return this.#events.emit(event, ...args);
    } catch (fault) {
      try {
        // Throws if there is no listener.
        return this.#events.emit("error", fault);
      } catch (unheard) {
        // oxlint-disable-next-line eslint/no-console -- as BullMQ does, where nobody can be told
        console.error(unheard);
        return true;
      }
    }
  }

  #workerOf(partition: number): ExclusiveWorker<Data, Result, Name> {
    return this.workers[partition] as ExclusiveWorker<Data, Result, Name>;
  }

  async #onAll<Value>(ask: (worker: ExclusiveWorker<Data, Result, Name>) => Promise<Value>): Promise<Value[]> {
    return await Promise.all(this.workers.map(ask));
  }
}
