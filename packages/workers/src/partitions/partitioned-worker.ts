/**
 * The workers' side of a queue that is divided into partitions: one concurrency, and one set of events, over an
 * `ExclusiveWorker` for each partition.
 *
 * Guaranteed: for each key what `ExclusiveWorker` guarantees. A partition that has jobs gets a slot as soon as one is
 * free and those that asked before have theirs. The others' backlogs may be as long as they like. A server that hangs
 * holds up its own partitions only.
 *
 * Not guaranteed: any order between partitions. For a moment more jobs than `concurrency` may run, when a server that
 * hung answers again.
 */
import { EventEmitter } from "node:events";
import { type Redlock, systemClock } from "@x/redlock-core";
import { integer, sleep } from "@x/redlock-core/kit";
import { queueRedisOf } from "../bullmq/bullmq.ts";
import { Worker } from "../bullmq/public.ts";
import { type WorkerFinding, withoutCommand } from "../errors.ts";
import type { ExclusiveWorkerListener } from "../events.ts";
import type { ExclusiveWorker } from "../exclusive-worker.ts";
import { LIST } from "../operators/key-operators.ts";
import type { KeyPolicy } from "../operators/rules/key-policy.ts";
import type { BusyKey, Explanation, JobCounts, KeyJobState, KeyJobs } from "../operators/rules/key-report.ts";
import { sumPrometheusTexts } from "../operators/rules/prometheus.ts";
import type { WorkerSetup } from "../operators/rules/worker-setup.ts";
import type { ExclusiveProcessorFunction } from "../runner/runner.ts";
import { PROCESSOR } from "../worker-parts.ts";
import { faultOf, LayoutRecord } from "./layout.ts";
import { type Division, divisionOf, LOOKUP, type PartitionedWorkerOptions, readDivided } from "./options.ts";
import { PartitionWorker } from "./partition-worker.ts";
import { partitionOf, sumsOf } from "./rules/partition.ts";
import { Slots } from "./slots.ts";

type Listener = (...args: readonly unknown[]) => void;

/** Events that are told once for all partitions, not by each. */
const OF_ALL: ReadonlySet<string> = new Set(["ready", "closing", "closed", "paused", "resumed", "drained"]);
const LOOK_EVERY_MS = 1_000;

const CONCURRENCY = integer({ min: 1, unit: "" }).default(1);

// oxlint-disable typescript/no-explicit-any -- BullMQ's own defaults, so that untyped code compiles as before
export class PartitionedWorker<Data = any, Result = any, Name extends string = string> {
  // oxlint-enable typescript/no-explicit-any
  /** Makes the error with which a processor says that the queue's rate limit was reached, as BullMQ's `Worker` does. */
  static RateLimitError(): Error {
    return Worker.RateLimitError();
  }

  readonly name: string;
  readonly partitions: number;
  /** The workers, by partition, for what this class has no method for. Do not close or pause one of them alone. */
  readonly workers: readonly ExclusiveWorker<Data, Result, Name>[];
  readonly #division: Division;
  readonly #record: LayoutRecord;
  readonly #events = new EventEmitter();
  readonly #isOver = new AbortController();
  readonly #drained = new Set<number>();
  #isStarting = false;
  /** Whether the division was found to be the one in force, and the partitions' workers run. */
  #isStarted = false;
  #isPaused = false;

  /**
   * Makes the workers of all partitions. `concurrency` is that of all of them together; other options hold for each.
   *
   * Give `autorun: false` to start them by `run()`, and `null` as the processor for workers that only ask.
   * @throws TypeError, RangeError for bad options, before anything is sent.
   */
  constructor(
    name: string,
    processor: string | URL | null | undefined | ExclusiveProcessorFunction<Data, Result, Name>,
    given: PartitionedWorkerOptions<Data, Name>,
  ) {
    const options = readDivided(given);
    PROCESSOR.of("processor", processor);
    this.#division = divisionOf(name, options);
    const { partitions, places, prefix } = this.#division;
    const { partitions: _partitions, connection: _connection, autorun = true, ...others } = options;
    const concurrency = CONCURRENCY.of("concurrency", options.concurrency);
    const slots = new Slots(concurrency, systemClock);
    this.name = name;
    this.partitions = partitions;
    const made: PartitionWorker<Data, Result, Name>[] = [];
    try {
      for (const [partition, { queue, connection }] of places.entries()) {
        const tell = (event: string, args: readonly unknown[]): boolean => this.#told(partition, event, args);
        const facts = { partition, partitions, slots, clock: systemClock, tell };
        made.push(new PartitionWorker(queue, processor, { ...others, connection, prefix, concurrency }, facts));
      }
    } catch (error) {
      for (const worker of made) worker.close(true).catch(() => {});
      throw error;
    }
    this.workers = made;
    this.#record = new LayoutRecord(this.#division, queueRedisOf(this.#workerOf(0)));
    if (autorun && (processor ?? null) !== null) this.run().catch((error: unknown) => this.#tellError(error));
  }

  /**
   * Runs until the worker is closed.
   *
   * If the queue is divided in another way, nothing is run, and an `error` event has a `DivisionMismatchError`. While
   * the queue is moved to this division, it waits for that. Rejects if the worker runs already, as BullMQ's does.
   */
  async run(): Promise<void> {
    if (this.#isStarting || this.isRunning()) throw new Error("Worker is already running.");
    this.#isStarting = true;
    try {
      await this.#untilOurs();
      if (this.#isOver.signal.aborted) return;
      this.#isStarted = true;
      this.#emit("ready");
      const runs = this.#all(async (worker) => await worker.run());
      this.#isStarting = false;
      await runs;
    } finally {
      this.#isStarting = false;
    }
  }

  /** Adds a listener. Events are those of `ExclusiveWorker`; `drained` comes when no partition has a job to take. */
  on<Event extends keyof ExclusiveWorkerListener<Data, Result, Name>>(
    event: Event,
    listener: ExclusiveWorkerListener<Data, Result, Name>[Event],
  ): this {
    this.#events.on(event, listener as Listener);
    return this;
  }

  /** Adds a listener for the next time. */
  once<Event extends keyof ExclusiveWorkerListener<Data, Result, Name>>(
    event: Event,
    listener: ExclusiveWorkerListener<Data, Result, Name>[Event],
  ): this {
    this.#events.once(event, listener as Listener);
    return this;
  }

  off<Event extends keyof ExclusiveWorkerListener<Data, Result, Name>>(
    event: Event,
    listener: ExclusiveWorkerListener<Data, Result, Name>[Event],
  ): this {
    this.#events.off(event, listener as Listener);
    return this;
  }

  /** Returns the worker of a key, for what concerns one key. */
  workerOf(key: string): ExclusiveWorker<Data, Result, Name> {
    return this.#workerOf(partitionOf(key, this.partitions));
  }

  /** Returns where the lock of a key lives, for plain code that works on the same entity. */
  redlockOf(key: string): Redlock {
    return this.workerOf(key).redlock;
  }

  /** Lists the keys that are busy, paused, or waited for, as `ExclusiveWorker.listKeys` does, over all partitions. */
  async listKeys(options: { readonly limit?: number | undefined } = {}): Promise<BusyKey[]> {
    const { limit } = LIST.resolve(options);
    return (await this.#all(async (worker) => await worker.listKeys({ limit }))).flat().slice(0, limit);
  }

  /** Returns who has a key, and who waits for it, as `ExclusiveWorker.jobsOf` does. */
  async jobsOf(
    key: string,
    options: { readonly limit?: number | undefined; readonly state?: KeyJobState | "all" | undefined } = {},
  ): Promise<KeyJobs> {
    return await this.workerOf(key).jobsOf(key, options);
  }

  /** Removes the jobs of a key that do not run, as `ExclusiveWorker.removeJobs` does. */
  async removeJobs(key: string, options: { readonly state?: KeyJobState | "all" | undefined } = {}): Promise<number> {
    return await this.workerOf(key).removeJobs(key, options);
  }

  /**
   * Explains why a job waits. Without its `key` all partitions are asked. Resolves undefined if there is no such job.
   * @throws RangeError if several partitions have a job of that id: then give the `key`.
   */
  async explain(jobId: string, options: { readonly key?: string | undefined } = {}): Promise<Explanation | undefined> {
    const { key } = LOOKUP.resolve(options);
    if (key !== undefined) return await this.workerOf(key).explain(jobId);
    const found = (await this.#all(async (worker) => await worker.explain(jobId))).filter((each) => each !== undefined);
    if (found.length > 1) throw new RangeError(`${found.length} partitions have a job ${jobId}: give its key`);
    return found[0];
  }

  /** Pauses a key, as `ExclusiveWorker.pauseKey` does. */
  async pauseKey(key: string, reason?: string, options: { readonly for?: number | undefined } = {}): Promise<boolean> {
    return await this.workerOf(key).pauseKey(key, reason, options);
  }

  /** Ends a pause of a key, as `ExclusiveWorker.resumeKey` does. */
  async resumeKey(key: string): Promise<boolean> {
    return await this.workerOf(key).resumeKey(key);
  }

  /** Says what holds for a key, as `ExclusiveWorker.setKeyPolicy` does. */
  async setKeyPolicy(key: string, policy: KeyPolicy): Promise<void> {
    await this.workerOf(key).setKeyPolicy(key, policy);
  }

  /** Returns what was said of a key, as `ExclusiveWorker.getKeyPolicy` does. */
  async getKeyPolicy(key: string): Promise<KeyPolicy | undefined> {
    return await this.workerOf(key).getKeyPolicy(key);
  }

  /** Lets the workers' `perKey` hold for a key again, as `ExclusiveWorker.removeKeyPolicy` does. */
  async removeKeyPolicy(key: string): Promise<boolean> {
    return await this.workerOf(key).removeKeyPolicy(key);
  }

  /** Returns what was said, by the key, as `ExclusiveWorker.listKeyPolicies` does, over all partitions. */
  async listKeyPolicies(options: { readonly limit?: number | undefined } = {}): Promise<Map<string, KeyPolicy>> {
    const { limit } = LIST.resolve(options);
    const found = await this.#all(async (worker) => await worker.listKeyPolicies({ limit }));
    return new Map(found.flatMap((each) => [...each]).slice(0, limit));
  }

  /** Counts jobs over all partitions, as `ExclusiveWorker.counts` does. */
  async counts(): Promise<JobCounts> {
    return sumsOf(await this.#all(async (worker) => await worker.counts()));
  }

  /** Resolves with the gauges of all partitions together, as `ExclusiveWorker.exportPrometheusMetrics` has them. */
  async exportPrometheusMetrics(labels: Readonly<Record<string, string>> = {}): Promise<string> {
    return sumPrometheusTexts(
      this.name,
      await this.#all(async (worker) => await worker.exportPrometheusMetrics(labels)),
    );
  }

  /**
   * Returns how the workers of this queue that run are set up, as `ExclusiveWorker.setups` does. A process is there
   * once, unless its workers differ.
   */
  async setups(): Promise<readonly WorkerSetup[]> {
    const found = (await this.#all(async (worker) => await worker.setups())).flat();
    return [...new Map(found.map((setup) => [JSON.stringify(setup), setup])).values()];
  }

  /** Looks now for what weakens a promise, in every partition, and whether the queue is divided as here. */
  async check(): Promise<readonly WorkerFinding[]> {
    const findings = (await this.#all(async (worker) => await worker.check())).flat();
    const fault = faultOf(this.#division, await this.#record.ask("look"));
    return fault === undefined ? findings : [fault.finding, ...findings];
  }

  /** Takes no further job until `resume()`, and resolves when those that run have ended, unless `doNotWaitActive`. */
  async pause(doNotWaitActive?: boolean): Promise<void> {
    this.#isPaused = true;
    if (this.#isStarted) await this.#all(async (worker) => await worker.pause(doNotWaitActive));
    this.#emit("paused");
  }

  /** Goes on after `pause()`. What waits for its division, or was not started by `run()`, still does. */
  async resume(): Promise<void> {
    this.#isPaused = false;
    if (this.#isStarted) await this.#all(async (worker) => await worker.resume());
    this.#emit("resumed");
  }

  /** Reports whether jobs are taken or run. It is false while the queue has another division. */
  isRunning(): boolean {
    return this.workers.some((worker) => worker.isRunning());
  }

  /** Reports whether the worker is paused. */
  isPaused(): boolean {
    return this.#isPaused;
  }

  /** Resolves when the connections of all partitions are there. */
  async waitUntilReady(): Promise<void> {
    await this.#all(async (worker) => await worker.waitUntilReady());
  }

  /** Closes all workers as `ExclusiveWorker.close` does. */
  async close(force = false): Promise<void> {
    const isFirst = !this.#isOver.signal.aborted;
    if (isFirst) this.#emit("closing", "closing queue");
    this.#isOver.abort();
    await this.#all(async (worker) => await worker.close(force));
    if (isFirst) this.#emit("closed");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Resolves when the queue has this division and the worker is not paused, or when the worker is closed. */
  async #untilOurs(): Promise<void> {
    let told = "";
    while (!this.#isOver.signal.aborted) {
      try {
        const layout = await this.#record.ask("look");
        const fault = faultOf(this.#division, layout);
        if (fault !== undefined && fault.message !== told) this.#tellError(fault);
        told = fault?.message ?? "";
        if (fault === undefined && layout.partitions === this.partitions && !this.#isPaused) break;
      } catch (error) {
        if (!this.#isOver.signal.aborted) this.#tellError(error);
      }
      await sleep(systemClock, LOOK_EVERY_MS, this.#isOver.signal).catch(() => {});
    }
  }

  #told(partition: number, event: string, args: readonly unknown[]): boolean {
    if (event === "error") return this.#tellError(args[0]);
    if (event === "drained") {
      this.#drained.add(partition);
      if (this.#drained.size === this.partitions) this.#emit("drained");
      return false;
    }
    if (event === "active") this.#drained.delete(partition);
    if (!OF_ALL.has(event)) this.#emit(event, ...args);
    return false;
  }

  /** Returns whether somebody listens. No process ends by an error that nobody listens to. */
  #tellError(error: unknown): boolean {
    return this.#events.listenerCount("error") > 0 && this.#emit("error", withoutCommand(error));
  }

  /** Tells listeners as BullMQ's worker does: what one of them throws is told as an error, and breaks nothing. */
  #emit(event: string, ...args: readonly unknown[]): boolean {
    try {
      return this.#events.emit(event, ...args);
    } catch (fault) {
      try {
        // It throws if nobody listens.
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

  async #all<Value>(ask: (worker: ExclusiveWorker<Data, Result, Name>) => Promise<Value>): Promise<Value[]> {
    return await Promise.all(this.workers.map(ask));
  }
}
