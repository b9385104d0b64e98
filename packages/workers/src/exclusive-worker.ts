/**
 * BullMQ's `Worker`, but with at most one running job for each key.
 *
 * The following is guaranteed while clocks advance at nearly the same rate and the lock nodes keep their data (see
 * `@x/redlock-core`):
 * - Jobs of a key run one after the other, across workers and processes. Because of the key's lock, the same is true
 *   across queues and plain code. With `perKey.concurrency`, up to that many jobs run at the same time, each with its
 *   own lock.
 * - Jobs of a key start in the order in which BullMQ would have handed them out.
 * - A job that was taken and has not finished keeps its key, and runs again before the key's other jobs.
 * - As long as a slot is free, the jobs of other keys do not wait for a busy key.
 *
 * Not guaranteed:
 * - That a frozen process stops by itself. Pass `lock.fencingToken` to every store that the job writes to.
 * - That a job runs only once. BullMQ runs each job at least once.
 * - The order of jobs that are retried with `onFailure: "skip"`, and the order between a more urgent job and a job that
 *   was already chosen.
 * - Any order after the lane's Redis keys were deleted by hand.
 */
import type { Lock, Redlock } from "@x/redlock-core";
import { integer, Schema, shaped } from "@x/redlock-core/kit";
import { withoutCommand } from "@x/redlock-core/protocol";
import { isFetchAgainReply, shareTarget } from "./bullmq/bullmq.ts";
import { decodeJob } from "./bullmq/job.ts";
import { acceptSignal, isWrapper } from "./bullmq/processor.ts";
import { Job, Worker } from "./bullmq/public.ts";
import { JobCancelledError, type WorkerFinding } from "./errors.ts";
import { channels, type ExclusiveWorkerListener } from "./events.ts";
import { bullOptions, type ExclusiveWorkerOptions, type ResolvedExclusiveOptions } from "./options.ts";
import type { ExclusiveProcessorFunction } from "./runner/runner.ts";
import { rejectWithoutCommand } from "./without-command.ts";
import { closeUnused, createWorkerParts, planWorker, type WorkerParts, warn, warnOnce } from "./worker-parts.ts";

/** Name of a BullMQ event without arguments. BullMQ's typed methods accept the names of our events as this name. */
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
  /**
   * The `Redlock` that stores the locks of the keys. Use it for plain code of this process that works on the same
   * entities.
   */
  readonly redlock: Redlock;
  /** Whether the workers of this class share their slots with others, so that none has a number of its own. */
  protected static readonly sharesSlots: boolean = false;
  readonly #options: ResolvedExclusiveOptions;
  readonly #parts: WorkerParts;
  readonly #findings: readonly WorkerFinding[];
  #isWarned = false;

  /**
   * Creates a worker as BullMQ's constructor does. The option `key` and its companions are described at
   * `ExclusiveOptions`. `backendFactory`, which BullMQ 6 accepts, must create BullMQ's own Redis backend.
   *
   * Throws `TypeError` or `RangeError` for invalid options, and `UnsupportedBullMQError` for an unknown BullMQ. In both
   * cases nothing has been sent.
   */
  constructor(
    name: string,
    processor: string | URL | null | undefined | ExclusiveProcessorFunction<Data, Result, Name>,
    given: ExclusiveWorkerOptions<Data, Name>,
    backendFactory?: object,
  ) {
    const plan = planWorker(name, processor, given);
    const { options } = plan;
    try {
      super(
        name,
        processor as string,
        bullOptions(plan.given, options),
        ...((backendFactory === undefined ? [] : [backendFactory]) as unknown as []),
      );
    } catch (error) {
      closeUnused(plan);
      throw error;
    }
    if (isWrapper(processor)) acceptSignal(this);
    this.#options = options;
    this.#findings = plan.findings;
    this.redlock = plan.redlock;
    try {
      this.#parts = createWorkerParts(plan, {
        worker: this as unknown as Worker,
        processor: () => this.processFn,
        sharesSlots: (this.constructor as typeof ExclusiveWorker).sharesSlots,
        makeJob: (fields, jobId) => shareTarget(this, super.createJob(decodeJob(fields, jobId) as never, jobId)),
      });
    } catch (error) {
      closeUnused(plan);
      super.close(true).catch(() => {});
      throw error;
    }
    this.opts.autorun = plan.given.autorun ?? true;
    if (this.opts.autorun && !plan.isByHand) this.run().catch((error: Error) => this.emit("error", error));
  }

  /**
   * Acquires the lock of the job's keys, for a job that you have fetched with `getNextJob`. Resolves with undefined for
   * a job without a key.
   *
   * The job has its keys from the fetch to `moveToCompleted`, `moveToFailed` or another move. This lock also keeps
   * other queues and plain code out, and is extended until you release it. The call waits up to `timeout` ms (default:
   * the option `timeout`).
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

  /** Fetches a job as BullMQ's `getNextJob` does. Use `lockJob` to run the job yourself. */
  override getNextJob(
    ...args: Parameters<Worker<Data, Result, Name>["getNextJob"]>
  ): ReturnType<Worker<Data, Result, Name>["getNextJob"]> {
    this.#parts.locks.stopScriptLocks();
    this.#parts.registry.join();
    return super.getNextJob(...args);
  }

  /** Adds a listener for an event of BullMQ or of `WorkerEvents`. */
  override on<Event extends keyof ExclusiveWorkerListener<Data, Result, Name>>(
    event: Event,
    listener: ExclusiveWorkerListener<Data, Result, Name>[Event],
  ): this {
    return super.on(event as BullEvent, listener as () => void);
  }

  /** Adds a listener for the next event only. */
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
   * Emits an event, as BullMQ's `emit` does. The client's failed command is removed from an `error`, because its
   * arguments may contain a password.
   */
  override emit<Event extends keyof ExclusiveWorkerListener<Data, Result, Name>>(
    event: Event,
    ...args: Parameters<ExclusiveWorkerListener<Data, Result, Name>[Event]>
  ): boolean {
    // BullMQ reports the refused completion of a cancelled job as an error, before it fails the job.
    if (event === "error" && args[0] instanceof JobCancelledError) return false;
    const cleaned = event === "error" ? args.map(withoutCommand) : args;
    if (event === "error") channels.publish("error", () => ({ queue: this.name, error: cleaned[0] }));
    return super.emit(event as BullEvent, ...(cleaned as []));
  }

  override run(): Promise<void> {
    this.#warn();
    this.#parts.lane.markLoopStarted();
    this.#parts.registry.join();
    return super.run();
  }

  /**
   * Reports whether the worker is running and can write to the queue's Redis. False after 30 s without a write, because
   * Redis cannot be reached, does not answer or is read-only. The worker continues by itself when Redis accepts writes.
   */
  override isRunning(): boolean {
    return super.isRunning() && !this.#parts.registry.isOverdue;
  }

  /**
   * Emits a process warning, once, if the path of the option `key` was probably meant to begin elsewhere. The first
   * worker of a process also warns of accepted scripts.
   */
  #warn(): void {
    if (this.#isWarned) return;
    this.#isWarned = true;
    for (const { code, message } of this.#findings) {
      if (code === "KEY_PATH") warn(code, `queue ${this.name}: ${message}`);
      if (code === "UNTESTED_BULLMQ") warnOnce(code, message);
    }
  }

  /** Waits like BullMQ's method. The client's failed command is removed from an error. */
  override async waitUntilReady(): ReturnType<Worker<Data, Result, Name>["waitUntilReady"]> {
    return await rejectWithoutCommand(async () => await super.waitUntilReady());
  }

  /**
   * Closes the worker like BullMQ's `close`. The locks of running jobs are released when these jobs end. With `force`,
   * the promise waits neither for Redis nor for running jobs, unless `close()` was called before.
   *
   * If the queue's Redis does not answer for 30 s, the worker is closed as by force, and an `error` event reports a
   * `QueueUnreachableError`.
   */
  override async close(force = false): Promise<void> {
    const { closing } = this.#parts;
    closing.begin(force);
    try {
      await closing.untilClosed(super.close(force));
    } finally {
      await closing.end(force);
    }
  }

  /**
   * Waits like BullMQ's method, unless the worker is closing. `close()` ends BullMQ's wait for the rate limit. Another
   * wait may begin later, because the reply to an earlier request has reported the limit.
   */
  override async delay(...args: Parameters<Worker<Data, Result, Name>["delay"]>): Promise<void> {
    if (this.closing === undefined) await super.delay(...args);
  }

  /** Closes the worker at the end of the scope of `await using worker = …`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /**
   * Renews the locks of jobs like BullMQ's method. A job whose lock lasts longer, because of `job.extendLock`, is left
   * out and counts as renewed, since this renewal would shorten its lock.
   */
  override extendJobLocks(jobIds: string[], tokens: string[], duration: number): Promise<string[]> {
    const { interrupts, renewals } = this.#parts;
    interrupts?.checkNotes(jobIds);
    return renewals.renewAll(jobIds, tokens, duration, (...due) => super.extendJobLocks(...due));
  }

  /**
   * Reads a reply like BullMQ's method, which reports a drained queue if the reply has no job. If the lane only has to
   * be asked again, the queue is not reported as drained.
   */
  protected override nextJobFromJobData(
    ...args: Parameters<Worker<Data, Result, Name>["nextJobFromJobData"]>
  ): ReturnType<Worker<Data, Result, Name>["nextJobFromJobData"]> {
    const [data, id] = args;
    return isFetchAgainReply(data, id) ? Promise.resolve(undefined as never) : super.nextJobFromJobData(...args);
  }

  protected override createJob(...args: Parameters<Worker<Data, Result, Name>["createJob"]>): Job<Data, Result, Name> {
    const job = shareTarget(this, super.createJob(...args));
    return this.#parts.arrivals.attachTakenJob(job, args[1]) as Job<Data, Result, Name>;
  }

  protected override callProcessJob(
    job: Job<Data, Result, Name>,
    token: string,
    signal?: AbortSignal,
  ): Promise<Result> {
    return this.#parts.runner.run(job, token, signal) as Promise<Result>;
  }
}
