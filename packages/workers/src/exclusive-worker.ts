/**
 * An `ExclusiveWorker` is BullMQ's `Worker`, with at most one job per key at a time.
 *
 * It guarantees the following, while clocks advance at nearly the same rate and the lock's nodes keep their data (see
 * `@x/redlock-core`):
 * - Jobs of a key run one after the other, across workers and processes. Through the key's lock, they do so across
 *   queues and plain code. With `perKey.concurrency`, at most so many run at once, each with a lock of its own.
 * - Jobs of a key start in the order in which BullMQ would have given them out.
 * - A job that was taken and not finished keeps its key, and is run again before the key's other jobs.
 * - Other keys do not wait for a busy one while there is a free slot.
 *
 * It does not guarantee the following:
 * - That a paused process stops by itself: give `lock.fencingToken` to what the job writes to.
 * - That a job runs only once: BullMQ runs it at least once.
 * - The order of jobs that were retried with `onFailure: "skip"`, and of priorities against a job that was already
 *   chosen.
 * - Any order after the lane's keys were deleted by hand.
 */
import type { Lock, Redlock } from "@x/redlock-core";
import { integer, Schema, shaped } from "@x/redlock-core/protocol";
import { isFetchAgainReply } from "./bullmq/bullmq.ts";
import { decodeJob } from "./bullmq/job.ts";
import { acceptSignal, isWrapper } from "./bullmq/processor.ts";
import { Job, Worker } from "./bullmq/public.ts";
import { type WorkerFinding, withoutCommand } from "./errors.ts";
import type { ExclusiveWorkerListener } from "./events.ts";
import type { KeyPolicy } from "./operators/rules/key-policy.ts";
import type { BusyKey, Explanation, JobCounts, KeyJobState, KeyJobs } from "./operators/rules/key-report.ts";
import { LABELS, prometheusText } from "./operators/rules/prometheus.ts";
import type { WorkerSetup } from "./operators/rules/worker-setup.ts";
import { bullOptions, type ExclusiveWorkerOptions, type ResolvedExclusiveOptions } from "./options.ts";
import { rejectingPlainly } from "./plainly.ts";
import type { ExclusiveProcessorFunction } from "./runner/runner.ts";
import { abandon, planOf, type WorkerParts, warn, wire } from "./wire.ts";

/** The name of an event without arguments. BullMQ's own types are told of ours by it. */
type BullEvent = "ready";

const JOB = shaped<Job>(
  "a job that this worker fetched",
  ({ id, moveToCompleted }) => typeof id === "string" && typeof moveToCompleted === "function",
);
const LOCK_JOB = new Schema({ timeout: integer({ min: 0, orInfinity: true }).optional() });

// oxlint-disable typescript/no-explicit-any -- BullMQ's own defaults, so that untyped code compiles as before
export class ExclusiveWorker<Data = any, Result = any, Name extends string = string> extends Worker<
  Data,
  Result,
  Name
> {
  // oxlint-enable typescript/no-explicit-any
  /** The locks of the keys live here. Use it for plain code of this process that works on the same entities. */
  readonly redlock: Redlock;
  readonly #options: ResolvedExclusiveOptions;
  readonly #parts: WorkerParts;
  #isWarned = false;

  /**
   * Makes a worker as BullMQ's constructor does, with `options.key` added (see `ExclusiveOptions`). `backendFactory`,
   * where BullMQ takes one, must make BullMQ's own Redis backend.
   *
   * Throws `TypeError` or `RangeError` for bad options, and `UnsupportedBullMQError` for a BullMQ that is not known,
   * all before anything is sent.
   */
  constructor(
    name: string,
    processor: string | URL | null | undefined | ExclusiveProcessorFunction<Data, Result, Name>,
    given: ExclusiveWorkerOptions<Data, Name>,
    backendFactory?: object,
  ) {
    const plan = planOf(name, processor, given);
    const { options } = plan;
    try {
      super(
        name,
        processor as string,
        bullOptions(plan.given, options),
        ...((backendFactory === undefined ? [] : [backendFactory]) as unknown as []),
      );
    } catch (error) {
      abandon(plan);
      throw error;
    }
    if (isWrapper(processor)) acceptSignal(this);
    this.#options = options;
    this.redlock = plan.redlock;
    try {
      this.#parts = wire(plan, {
        worker: this as unknown as Worker,
        processor: () => this.processFn,
        makeJob: (fields, jobId) => super.createJob(decodeJob(fields, jobId) as never, jobId),
      });
    } catch (error) {
      abandon(plan);
      super.close(true).catch(() => {});
      throw error;
    }
    this.opts.autorun = plan.given.autorun ?? true;
    if (this.opts.autorun && !plan.isByHand) this.run().catch((error: Error) => this.emit("error", error));
  }

  /**
   * Lists the keys that are busy, paused, or waited for: at most `limit` (default 1000) of them, in no order. It costs
   * O(busy keys).
   *
   * BullMQ's workers have a property `keys`, hence the name.
   */
  async listKeys(options: { readonly limit?: number | undefined } = {}): Promise<BusyKey[]> {
    return await this.#parts.operators.list(options);
  }

  /**
   * Returns who has a key, and who waits for it: at most `limit` (default 1000) of these.
   *
   * `state` says which ones. They are in line (`"parked"`, the default), wait in the queue itself (`"waiting"`), wait
   * for their time or retry (`"delayed"`), or all of these (`"all"`). But for `"parked"`, it costs O(jobs of the queue
   * in that state), in pages.
   */
  async jobsOf(
    key: string,
    options: { readonly limit?: number | undefined; readonly state?: KeyJobState | "all" | undefined } = {},
  ): Promise<KeyJobs> {
    return await this.#parts.operators.jobsOf(key, options);
  }

  /**
   * Removes the jobs of a key that do not run, with their children, for good. It removes all of them, or those of one
   * `state`, as `jobsOf` has them. Resolves with their number.
   *
   * A job that runs is left, and so is the next one of a job scheduler. One that is added meanwhile may be removed,
   * too. It costs O(jobs of the queue in that state), in pages.
   */
  async removeJobs(key: string, options: { readonly state?: KeyJobState | "all" | undefined } = {}): Promise<number> {
    return await this.#parts.operators.remove(key, options);
  }

  /** Explains why a job waits, behind whom and until when. Resolves undefined if there is no such job. */
  async explain(jobId: string): Promise<Explanation | undefined> {
    return await this.#parts.operators.explain(jobId);
  }

  /**
   * Pauses a key: none of its jobs is started from now on, in any process, until `resumeKey`. With `for`, the pause
   * ends when so many ms have passed by the clock of the queue's Redis. One that runs goes on.
   *
   * Resolves false if the key was paused already. Of two pauses the one that ends later stays, with its reason.
   *
   * A job may have the key and not run: it was chosen, waits for its retry or its lock, or has stalled. It goes first
   * afterwards. Plain code is not kept out: lock the key's resource for that.
   */
  async pauseKey(
    key: string,
    reason = "paused by an operator",
    options: { readonly for?: number | undefined } = {},
  ): Promise<boolean> {
    return await this.#parts.operators.pause(key, reason, options);
  }

  /**
   * Ends a pause, the halt after a failed job, or both: look at `paused.jobId` of `listKeys()` before. Resolves false
   * if the key was not paused.
   *
   * To run the failed job again before the others, retry it first (`job.retry()`).
   */
  async resumeKey(key: string): Promise<boolean> {
    return await this.#parts.operators.resume(key);
  }

  /**
   * Says what holds for a key from now on instead of the workers' `perKey`, until it is said anew or removed. All
   * workers of the queue see it with their next decision. What was said before is forgotten.
   *
   * Where more jobs run than may from now on, they go on, and the next one starts when fewer do. A lower `maxWaiting`
   * holds for the next job that comes. A `rate` counts the starts that the rate before has counted.
   * @throws RangeError for what would have no effect in this worker, unless it only asks, or in one that runs.
   */
  async setKeyPolicy(key: string, policy: KeyPolicy): Promise<void> {
    await this.#parts.policies.set(key, policy);
  }

  /** Returns what `setKeyPolicy` has said of a key, or undefined. */
  async getKeyPolicy(key: string): Promise<KeyPolicy | undefined> {
    return await this.#parts.policies.get(key);
  }

  /** Lets the workers' `perKey` hold for a key again. Resolves false if nothing else did. */
  async removeKeyPolicy(key: string): Promise<boolean> {
    return await this.#parts.policies.remove(key);
  }

  /**
   * Returns what `setKeyPolicy` has said, by the key: at most `limit` (default 1000) keys, in no order. It costs O(busy
   * keys, and keys with a policy).
   */
  async listKeyPolicies(options: { readonly limit?: number | undefined } = {}): Promise<Map<string, KeyPolicy>> {
    return await this.#parts.policies.list(options);
  }

  /**
   * Counts jobs that a free slot would take now (`runnable`), that run (`active`), and that wait for their key
   * (`parked`, a part of BullMQ's `delayed`).
   *
   * It costs O(busy keys). A parked job that was removed by hand is counted until its turn.
   */
  async counts(): Promise<JobCounts> {
    return (await this.#parts.operators.gauges()).counts;
  }

  /**
   * Resolves with gauges of the queue's jobs and keys in the text format of Prometheus, as BullMQ's `Queue` has one for
   * its own. `labels` are added to every sample. Costs what `counts()` costs.
   * @throws TypeError, RangeError for labels that Prometheus would refuse.
   */
  async exportPrometheusMetrics(labels: Readonly<Record<string, string>> = {}): Promise<string> {
    LABELS.of("labels", labels);
    return prometheusText(this.name, await this.#parts.operators.gauges(), labels);
  }

  /**
   * Looks now for what weakens a promise: options of this worker, and workers of this queue that do not agree.
   *
   * Each worker that runs compares, too, when it starts and every minute. It tells what it finds once, as an `error`
   * event with a `WorkerMismatchError`. Plain workers that are idle are not seen.
   */
  async check(): Promise<readonly WorkerFinding[]> {
    return [...this.#options.warnings, ...(await this.#parts.registry.check())];
  }

  /** Returns how the workers of this queue that run are set up. One that was killed is known for 3 min. */
  async setups(): Promise<readonly WorkerSetup[]> {
    return await this.#parts.registry.setups();
  }

  /**
   * Takes the lock of the job's keys, for a job that you fetch yourself with `getNextJob`. Resolves undefined for a job
   * without a key.
   *
   * The lane is yours from the fetch to `moveToCompleted`, `moveToFailed` or another move. This lock keeps other queues
   * and plain code out, and is extended until you release it. The call waits up to `timeout` ms (default: the option
   * `timeout`).
   */
  async lockJob(
    job: Job<Data, Result, Name>,
    options: { readonly timeout?: number | undefined } = {},
  ): Promise<Lock | undefined> {
    JOB.of("job", job);
    const { timeout = this.#options.timeout } = LOCK_JOB.resolve(options);
    const { arrivals } = this.#parts;
    const { resources } = arrivals.namesOf(job, arrivals.takenJobFor(job));
    if (resources.length === 0) return undefined;
    const { ttl } = this.#options;
    return await this.redlock.acquire(resources, { ttl, timeout, autoExtend: true });
  }

  /** Fetches a job as BullMQ's `getNextJob` does, for jobs that you run yourself: see `lockJob`. */
  override getNextJob(
    ...args: Parameters<Worker<Data, Result, Name>["getNextJob"]>
  ): ReturnType<Worker<Data, Result, Name>["getNextJob"]> {
    this.#parts.locks.stopScriptLocks();
    this.#parts.registry.join();
    return super.getNextJob(...args);
  }

  /** Adds a listener, as BullMQ's `on` does, also for the events of `WorkerEvents`. */
  override on<Event extends keyof ExclusiveWorkerListener<Data, Result, Name>>(
    event: Event,
    listener: ExclusiveWorkerListener<Data, Result, Name>[Event],
  ): this {
    return super.on(event as BullEvent, listener as () => void);
  }

  /** Adds a listener for the next time, as `on` does. */
  override once<Event extends keyof ExclusiveWorkerListener<Data, Result, Name>>(
    event: Event,
    listener: ExclusiveWorkerListener<Data, Result, Name>[Event],
  ): this {
    return super.once(event as BullEvent, listener as () => void);
  }

  /** Removes a listener that `on` or `once` added. */
  override off<Event extends keyof ExclusiveWorkerListener<Data, Result, Name>>(
    event: Event,
    listener: ExclusiveWorkerListener<Data, Result, Name>[Event],
  ): this {
    return super.off(event as BullEvent, listener as () => void);
  }

  /**
   * Emits an event, as BullMQ's `emit` does. An `error` loses the command that its client has hung on it, because the
   * arguments of that may be a password.
   */
  override emit<Event extends keyof ExclusiveWorkerListener<Data, Result, Name>>(
    event: Event,
    ...args: Parameters<ExclusiveWorkerListener<Data, Result, Name>[Event]>
  ): boolean {
    const told = event === "error" ? args.map(withoutCommand) : args;
    return super.emit(event as BullEvent, ...(told as []));
  }

  override run(): Promise<void> {
    this.#warnOfKeyPath();
    this.#parts.lane.markLoopStarted();
    this.#parts.registry.join();
    return super.run();
  }

  /** Emits a process warning, once, if the path of the option `key` probably begins in the wrong place. */
  #warnOfKeyPath(): void {
    const found = this.#isWarned ? undefined : this.#options.warnings.find(({ code }) => code === "KEY_PATH");
    this.#isWarned = true;
    if (found !== undefined) warn(found.code, `queue ${this.name}: ${found.message}`);
  }

  /** Resolves as BullMQ's method does. An error loses the command that its client has hung on it. */
  override async waitUntilReady(): ReturnType<Worker<Data, Result, Name>["waitUntilReady"]> {
    return await rejectingPlainly(async () => await super.waitUntilReady());
  }

  /**
   * Closes the worker as BullMQ's `close` does, which waits while the queue's Redis is away. The locks of jobs that
   * still run are released when these end. With `force` the promise waits for neither, unless `close()` was called
   * before.
   */
  override async close(force = false): Promise<void> {
    const { closing } = this.#parts;
    closing.begin(force);
    try {
      await super.close(force);
    } finally {
      await closing.end(force);
    }
  }

  /**
   * Waits as BullMQ's method does, unless the worker is closing. `close()` ends BullMQ's wait for the rate limit. It
   * does not end a wait that begins later, because the answer to a request that was under way brings the limit.
   */
  override async delay(...args: Parameters<Worker<Data, Result, Name>["delay"]>): Promise<void> {
    if (this.closing === undefined) await super.delay(...args);
  }

  /** Closes the worker at the end of `await using worker = …`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /**
   * Renews as BullMQ's method does. A job that has asked for longer (`job.extendLock`) would have less then, so it
   * counts as renewed.
   */
  override extendJobLocks(jobIds: string[], tokens: string[], duration: number): Promise<string[]> {
    const { interrupts, renewals } = this.#parts;
    interrupts?.checkNotes(jobIds);
    return renewals.renewAll(jobIds, tokens, duration, (...due) => super.extendJobLocks(...due));
  }

  /**
   * Looks at a reply as BullMQ's method does, which tells that the queue is drained where there is no job. It is not
   * drained if the lane is only to be asked again.
   */
  protected override nextJobFromJobData(
    ...args: Parameters<Worker<Data, Result, Name>["nextJobFromJobData"]>
  ): ReturnType<Worker<Data, Result, Name>["nextJobFromJobData"]> {
    const [data, id] = args;
    return isFetchAgainReply(data, id) ? Promise.resolve(undefined as never) : super.nextJobFromJobData(...args);
  }

  protected override createJob(...args: Parameters<Worker<Data, Result, Name>["createJob"]>): Job<Data, Result, Name> {
    return this.#parts.arrivals.attachTakenJob(super.createJob(...args), args[1]) as Job<Data, Result, Name>;
  }

  protected override callProcessJob(
    job: Job<Data, Result, Name>,
    token: string,
    signal?: AbortSignal,
  ): Promise<Result> {
    return this.#parts.runner.run(job, token, signal) as Promise<Result>;
  }
}
