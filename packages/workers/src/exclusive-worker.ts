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
 * - With `startNext: "at-once"`, that a job is not run again after the next one of its key was started. Nor that no job
 *   starts that was removed or paused in the ms before.
 */
import type { Clock, Lock, Redlock } from "@x/redlock-core";
import {
  Check,
  DAY_MS,
  elapsedMs,
  InFlight,
  type Instant,
  integer,
  kindOf,
  linkSignals,
  protocolOf,
  readClock,
  Schema,
  shaped,
  sleep,
  text,
} from "@x/redlock-core/protocol";
import { DelayedError, Job, Worker } from "bullmq";
import {
  acceptSignal,
  checkScripts,
  type Following,
  installedScripts,
  keepTracked,
  type LockExtension,
  replaceExtendLock,
  type TrackedJobs,
  targetOf,
} from "./bullmq/bullmq.ts";
import { composeScripts } from "./bullmq/compose.ts";
import { KEY, type Pin, slotSuffix } from "./entity-key.ts";
import { JobKeyError, KeyBacklogError, LaneError, MixedFleetError, SupersededError, withoutCommand } from "./errors.ts";
import { aboutJob, channels, type ExclusiveWorkerListener, type Tell, traces } from "./events.ts";
import type { WorkerFinding } from "./finding.ts";
import { formatOutcome, isMove, type Outcome, parseOutcome, valueOf } from "./job-run/batch.ts";
import { EarlyRun } from "./job-run/early-run.ts";
import type { JobLock } from "./job-run/job-lock.ts";
import { mustConfirm } from "./job-run/lease.ts";
import { Run } from "./job-run/run.ts";
import { Watchdog } from "./job-run/watchdog.ts";
import { Interrupts } from "./lane/interrupts.ts";
import { type Arrival, ASK_AGAIN_ID, Lane } from "./lane/lane.ts";
import { ScriptLocks } from "./lane/script-locks.ts";
import { startSweep } from "./lane/sweep.ts";
import { type HeldKeys, KeyLocks } from "./locks/key-locks.ts";
import { ownRedlock } from "./locks/own-redlock.ts";
import { Fleet, type FleetParts, type Setup as WorkerSetup } from "./operators/fleet.ts";
import {
  type BusyKey,
  type Explanation,
  type InLine,
  type JobCounts,
  type KeyJobs,
  type KeyList,
  parseExplanation,
  parseInLine,
  parseKeyJobs,
  parseKeys,
} from "./operators/operators.ts";
import { type KeyGauges, LABELS, prometheusText } from "./operators/prometheus.ts";
import {
  bullOptions,
  type ExclusiveWorkerOptions,
  type ResolvedExclusiveOptions,
  readOptions,
  resolveOptions,
} from "./options.ts";

/** BullMQ's processor with a fourth argument. A processor with fewer parameters runs as it is. */
export type ExclusiveProcessorFunction<Data, Result, Name extends string> = (
  job: Job<Data, Result, Name>,
  token: string | undefined,
  signal: AbortSignal,
  lock: JobLock<Data, Result, Name>,
) => Promise<Result>;

/** What a job returns that was completed without a run, or not to its end, because of the option `whenBusy`. */
export interface NotRun {
  /** It did not run, because a newer one waits or its key was busy; or its run was interrupted by a newer one. */
  readonly notRun: "superseded" | "busy" | "interrupted";
  /** The job that waits instead, or that has the key. */
  readonly by?: string;
  /** The message of what an interrupted processor rejected with, if that was not its signal's reason. */
  readonly error?: string;
}

/** The name of an event without arguments. BullMQ's own types are told of ours by it. */
type BullEvent = "ready";

/** A job has what its fetch told under this symbol. */
const ARRIVAL = Symbol("arrival");
type Arrived = object & { [ARRIVAL]?: Arrival };

const CONFIRM_ATTEMPTS = 3;
/**
 * A job is started at once only if what is known of it is this young, in ms: it may have been changed, removed or
 * paused since. After a job that took longer, a round trip does not count.
 */
const FRESH_MS = 25;
const LIST_PAGE = 500;
const SHORTEST_SWEEP_MS = 1_000;

const QUEUE_NAME = text({ min: 1 });
const PROCESSOR = new Check<unknown>({
  rule: "a function, the path or file: URL of a file that exports one, or null for jobs that are fetched by hand",
  faultOf: (given) => {
    const isOne = ["function", "string", "undefined"].includes(typeof given) || given === null || given instanceof URL;
    return isOne ? undefined : "type";
  },
});
const JOB_ID = text({ min: 1 });
const JOB = shaped<Job>(
  "a job that this worker fetched",
  ({ id, moveToCompleted }) => typeof id === "string" && typeof moveToCompleted === "function",
);
const LONGEST_REASON = 10_000;
const REASON = text({ max: LONGEST_REASON });
const LIST = new Schema({ limit: integer({ min: 1, unit: "" }).default(1_000) });
const PAUSE = new Schema({ for: integer({ min: 1, max: 366 * DAY_MS }).optional() });
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
  readonly #clock: Clock;
  readonly #lane: Lane;
  /** The locks that scripts take, if the keys' locks are on the queue's own Redis. */
  readonly #scriptLocks: ScriptLocks | undefined;
  readonly #watchdog: Watchdog;
  readonly #tracked: TrackedJobs;
  readonly #keyLocks: KeyLocks;
  #stopSweeping: () => void = () => undefined;
  readonly #interrupts: Interrupts | undefined;
  /** The places of the jobs in a run's batch, by their ids. */
  readonly #places = new WeakMap<Run, ReadonlyMap<string, string>>();
  readonly #fleet: Fleet;
  readonly #isSandboxed: boolean;
  readonly #inFlight = new InFlight();
  readonly #tell: Tell = (name, message) => {
    const isHeard = this.listenerCount(name) > 0;
    if (!isHeard && !channels.isHeard(name)) return;
    const told = message();
    channels.publish(name, () => told);
    if (isHeard) this.emit(name, ...([told] as Parameters<ExclusiveWorkerListener<Data, Result, Name>[typeof name]>));
  };
  readonly #onLost = (run: Run, error: Error): void =>
    this.#tell("lost", () => ({ ...aboutJob(this.name, run), error }));
  readonly #stopListening: () => void;
  /** The number of times that locks of jobs were renewed. */
  #renewals = 0;
  #closingLocks: Promise<void> | undefined;
  /** Ends the waits of jobs that have not begun. */
  readonly #closing = new AbortController();
  #isForced = false;

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
    QUEUE_NAME.of("name", name);
    PROCESSOR.of("processor", processor);
    const options = readOptions(given);
    const resolved = resolveOptions(name, options);
    if (resolved.rules.merge !== undefined && typeof processor !== "function") {
      throw new TypeError(`processor must be a function where whenBusy is "merge", got ${kindOf(processor)}`);
    }
    const bullScripts = checkScripts(installedScripts());
    const redlock = resolved.redlock ?? ownRedlock(options, resolved.ttl);
    const isByHand = (processor ?? null) === null;
    try {
      super(
        name,
        processor as string,
        bullOptions(options, resolved),
        ...((backendFactory === undefined ? [] : [backendFactory]) as unknown as []),
      );
    } catch (error) {
      if (resolved.redlock === undefined) void redlock.close();
      throw error;
    }
    if (isWrapper(processor)) acceptSignal(this);
    this.#options = resolved;
    this.redlock = redlock;
    this.#clock = protocolOf(redlock).clock;
    this.#watchdog = new Watchdog(this.#clock);
    this.#isSandboxed = typeof processor !== "function";
    // Jobs that are run by hand have locks of their own: see `lockJob`.
    this.#scriptLocks = resolved.redlock !== undefined || isByHand ? undefined : ScriptLocks.on(redlock, resolved);
    this.#lane = new Lane({
      scripts: composeScripts(
        bullScripts,
        { ...resolved.rules, startsAtOnce: resolved.rules.startsAtOnce && this.#canStartAtOnce() },
        this.#scriptLocks?.rules,
      ),
      locks: this.#scriptLocks,
      keyOf: resolved.keyOf as (job: unknown) => unknown,
      clock: this.#clock,
      events: {
        onParked: (jobs) => this.#tell("parked", () => ({ queue: this.name, jobs })),
        onFault: (fault) => this.emit("error", new LaneError(this.name, fault)),
      },
    });
    this.#stopListening = redlock.on("lost", (lost) => this.#watchdog.holderOf(lost)?.loseKeys());
    this.#keyLocks = new KeyLocks({
      queue: name,
      redlock,
      lane: this.#lane,
      scriptLocks: this.#scriptLocks,
      inFlight: this.#inFlight,
      ttl: resolved.ttl,
      timeout: resolved.timeout,
      recheckInterval: resolved.recheckInterval,
      tell: this.#tell,
      onError: (error) => this.emit("error", error),
    });
    this.#fleet = new Fleet({
      clock: this.#clock,
      id: this.id,
      setup: setupOf(resolved, redlock),
      look: async (id, setup, lifeMs) => await this.#lane.operate("look", id, setup, lifeMs),
      onFinding: (finding) => this.emit("error", new MixedFleetError(this.name, finding)),
    });
    try {
      const target = targetOf(this, new Job(this, "contract", {}));
      this.#lane.attach(target);
      replaceExtendLock(target, async (extension) => await this.#extendJobLock(extension));
      this.#tracked = keepTracked(this, (jobId, token) => this.#watchdog.find(jobId, token) !== undefined);
    } catch (error) {
      this.close(true).catch(() => {});
      throw error;
    }
    this.#stopSweeping = startSweep({
      clock: this.#clock,
      turnMs: Math.max(resolved.recheckInterval, SHORTEST_SWEEP_MS),
      askForAll: async () => {
        for await (const page of this.#keyPages()) void page;
      },
      takeTurn: async (turnMs) => (await this.#lane.operate("turn", turnMs)) === 1,
    });
    if (resolved.rules.line?.interrupts === true) {
      this.#interrupts = new Interrupts({
        // Where the locks are elsewhere, what the lane publishes is heard on the queue's own Redis.
        redlock: resolved.redlock === undefined ? redlock : ownRedlock(options, resolved.ttl),
        isShared: resolved.redlock === undefined,
        channel: `${this.qualifiedName}:lane:superseded`,
        ask: async (jobIds) => (await this.#lane.operate("superseded", ...jobIds)) as readonly string[],
        onSuperseded: ({ jobId, key, by }) => {
          const run = this.#watchdog.lastOf(jobId);
          run?.supersede(new SupersededError(jobId, key, by));
          return run !== undefined;
        },
        onError: (error) => this.emit("error", error),
      });
    }
    void this.#scriptLocks?.prove((name) => this.#lane.operate("mark", name));
    this.opts.autorun = options.autorun ?? true;
    if (this.opts.autorun && !isByHand) this.run().catch((error: Error) => this.emit("error", error));
  }

  /**
   * Lists the keys that are busy, paused, or waited for: at most `limit` (default 1000) of them, in no order. It costs
   * O(busy keys).
   *
   * BullMQ's workers have a property `keys`, hence the name.
   */
  async listKeys(options: { readonly limit?: number | undefined } = {}): Promise<BusyKey[]> {
    const { limit } = LIST.resolve(options);
    const found = new Map<string, BusyKey>();
    for await (const page of this.#keyPages()) {
      for (const key of page) found.set(key.key, key);
      if (found.size >= limit) break;
    }
    return [...found.values()].slice(0, limit);
  }

  /** Returns who has a key, and who waits for it: at most `limit` (default 1000) of these. */
  async jobsOf(key: string, options: { readonly limit?: number | undefined } = {}): Promise<KeyJobs> {
    KEY.of("key", key);
    const { limit } = LIST.resolve(options);
    return parseKeyJobs(await this.#lane.operate("inLine", key, limit));
  }

  /** Explains why a job waits, behind whom and until when. Resolves undefined if there is no such job. */
  async explain(jobId: string): Promise<Explanation | undefined> {
    JOB_ID.of("jobId", jobId);
    const [raw, state] = await Promise.all([this.#lane.operate("explain", jobId), this.#lane.stateOf(jobId)]);
    return parseExplanation(jobId, state, raw);
  }

  /**
   * Pauses a key: none of its jobs is started from now on, in any process, until `resumeKey`, or until `for` ms have
   * passed by the clock of the queue's Redis. One that runs goes on.
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
    KEY.of("key", key);
    REASON.of("reason", reason);
    const { for: ms = "" } = PAUSE.resolve(options);
    const [isNew, until] = (await this.#lane.operate("pause", key, reason, ms)) as readonly [number, string];
    this.#tell("keyPaused", () => ({
      queue: this.name,
      key,
      reason,
      ...(until === "" ? {} : { until: Number(until) }),
    }));
    return isNew === 1;
  }

  /**
   * Ends a pause, the halt after a failed job, or both: look at `paused.jobId` of `listKeys()` before. Resolves false
   * if the key was not paused.
   *
   * To run the failed job again before the others, retry it first (`job.retry()`).
   */
  async resumeKey(key: string): Promise<boolean> {
    KEY.of("key", key);
    const wasPaused = (await this.#lane.operate("resume", key)) === 1;
    this.#tell("keyResumed", () => ({ queue: this.name, key }));
    return wasPaused;
  }

  /**
   * Counts jobs that a free slot would take now (`runnable`), that run (`active`), and that wait for their key
   * (`parked`, a part of BullMQ's `delayed`).
   *
   * It costs O(busy keys). A parked job that was removed by hand is counted until its turn.
   */
  async counts(): Promise<JobCounts> {
    return (await this.#gauges()).counts;
  }

  /**
   * Resolves with gauges of the queue's jobs and keys in the text format of Prometheus, as BullMQ's `Queue` has one for
   * its own. `labels` are added to every sample. Costs what `counts()` costs.
   * @throws TypeError, RangeError for labels that Prometheus would refuse.
   */
  async exportPrometheusMetrics(labels: Readonly<Record<string, string>> = {}): Promise<string> {
    LABELS.of("labels", labels);
    return prometheusText(this.name, await this.#gauges(), labels);
  }

  /**
   * Looks now for what weakens a promise: options of this worker, and workers of this queue that do not agree.
   *
   * Each worker that runs compares, too, when it starts and every minute. It tells what it finds once, as an `error`
   * event with a `MixedFleetError`. Plain workers that are idle are not seen.
   */
  async check(): Promise<readonly WorkerFinding[]> {
    return [...this.#options.warnings, ...(await this.#fleet.check())];
  }

  /** Returns how the workers of this queue that run are set up. One that was killed is known for 3 min. */
  async setups(): Promise<readonly WorkerSetup[]> {
    return await this.#fleet.setups();
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
    const arrival = this.#arrivalOf(job);
    const keys = this.#keysOf(job, arrival);
    if (keys.length === 0) return undefined;
    const { ttl } = this.#options;
    return await this.redlock.acquire(this.#resourcesOf(job, keys, arrival), { ttl, timeout, autoExtend: true });
  }

  /** Fetches a job as BullMQ's `getNextJob` does, for jobs that you run yourself: see `lockJob`. */
  override getNextJob(
    ...args: Parameters<Worker<Data, Result, Name>["getNextJob"]>
  ): ReturnType<Worker<Data, Result, Name>["getNextJob"]> {
    this.#scriptLocks?.stop();
    this.#fleet.join();
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
    this.#lane.loops();
    this.#fleet.join();
    return super.run();
  }

  /**
   * Closes the worker as BullMQ's `close` does. The locks of jobs that still run are released when these end; with
   * `force` the promise does not wait for that.
   */
  override async close(force = false): Promise<void> {
    this.#fleet.leave();
    this.#isForced ||= force;
    this.#closing.abort();
    try {
      await super.close(force);
    } finally {
      await this.#closeLocks(force);
    }
  }

  /** Closes the worker at the end of `await using worker = …`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /**
   * Renews as BullMQ's method does. A job that has asked for longer (`job.extendLock`) would have less then, so it
   * counts as renewed.
   */
  override async extendJobLocks(jobIds: string[], tokens: string[], duration: number): Promise<string[]> {
    const sent = readClock(this.#clock);
    this.#interrupts?.lookAt(jobIds);
    const due = jobIds
      .map((jobId, index) => ({ jobId, token: tokens[index] ?? "" }))
      .filter(({ jobId, token }) => (this.#watchdog.find(jobId, token)?.leaseLeftMs() ?? 0) <= duration);
    if (due.length === 0) return [];
    this.#renewals += 1;
    const failed = await super.extendJobLocks(
      due.map(({ jobId }) => jobId),
      due.map(({ token }) => token),
      duration,
    );
    const failedIds = new Set(failed);
    for (const { jobId, token } of due) {
      const run = this.#watchdog.find(jobId, token);
      if (failedIds.has(jobId)) run?.loseJobLock();
      else if (run !== undefined) this.#watchdog.renewed(run, sent, duration);
    }
    return failed;
  }

  /** Extends the locks of the job's keys, too, on `job.extendLock`. */
  async #extendJobLock({ jobId, token, durationMs, ask }: LockExtension): Promise<number> {
    let sent: Instant;
    let extended: number;
    let renewals: number;
    do {
      renewals = this.#renewals;
      await this.#lane.untilOurs(jobId);
      sent = readClock(this.#clock);
      extended = await ask();
      // A renewal that was sent behind it may have cut it.
    } while (extended > 0 && this.#renewals > renewals);
    const run = this.#watchdog.find(jobId, token);
    if (run === undefined) return extended;
    if (extended > 0) {
      this.#watchdog.renewed(run, sent, durationMs);
      await run.extendKeys(Math.min(durationMs, this.redlock.options.maxTtl), this.#options.ttl);
    } else {
      run.loseJobLock();
    }
    return extended;
  }

  /**
   * Looks at a reply as BullMQ's method does, which tells that the queue is drained where there is no job. It is not
   * drained if the lane is only to be asked again.
   */
  protected override nextJobFromJobData(
    ...args: Parameters<Worker<Data, Result, Name>["nextJobFromJobData"]>
  ): ReturnType<Worker<Data, Result, Name>["nextJobFromJobData"]> {
    const [data, id] = args;
    const isToAsk = (data ?? null) === null && id === ASK_AGAIN_ID;
    return isToAsk ? Promise.resolve(undefined as never) : super.nextJobFromJobData(...args);
  }

  protected override createJob(...args: Parameters<Worker<Data, Result, Name>["createJob"]>): Job<Data, Result, Name> {
    const fresh = super.createJob(...args);
    const arrival = this.#lane.arrivalOf(args[1]);
    if (arrival === undefined) return fresh;
    const job = arrival.early === undefined ? fresh : (arrival.early.jobFrom(fresh) as Job<Data, Result, Name>);
    (job as Arrived)[ARRIVAL] = arrival;
    return job;
  }

  protected override async callProcessJob(
    job: Job<Data, Result, Name>,
    token: string,
    signal?: AbortSignal,
  ): Promise<Result> {
    const arrival = this.#arrivalOf(job);
    if (arrival.pin.kind === "dropped") return this.#drop(job, arrival.pin) as Result;
    if (arrival.outcome !== undefined) return this.#endMerged(job, arrival, parseOutcome(arrival.outcome)) as Result;
    const { sent, order } = arrival;
    const keys = this.#keysOf(job, arrival);
    const resources = this.#resourcesOf(job, keys, arrival);
    const { lockDuration: lockDurationMs } = this.#options;
    const jobId = String(job.id);
    // A second controller, and a listener, would cost each run of a job some 7 µs.
    const early = arrival.early?.claim();
    const controller =
      signal === undefined || early !== undefined ? undefined : this.#tracked.controllerOf(jobId, signal);
    const facts = { job, jobId, token, keys, resources, order, lockDurationMs, sent, controller };
    const run = early?.run ?? new Run(facts, this.#clock, this.#onLost);
    // A signal of its own is what a subclass has called this with.
    const other = controller === undefined ? signal : undefined;
    const cancel = (): void => run.cancel(other?.reason);
    if (other?.aborted === true) cancel();
    other?.addEventListener("abort", cancel, { once: true });
    if (early === undefined) {
      this.#watchdog.add(run);
      this.#inFlight.begin();
      this.#interrupts?.begins(jobId);
    }
    let held: HeldKeys | undefined = early?.held;
    let isDone = false;
    try {
      if (early === undefined && keys.length > 0) {
        held = this.#keyLocks.claim(run, signal) ?? (await this.#keyLocks.acquire(run, job, { arrival, signal }));
      }
      if (this.#options.rules.merge !== undefined && keys.length === 1) await this.#gather(run, signal);
      if (early === undefined && this.#mustConfirm(run)) await this.#confirm(run);
      // Only if the process was frozen just now: nothing has run yet, so the job goes back as it came.
      if (early === undefined && held?.lock.isHeld() === false) return await this.#keyLocks.giveBack(run, job);
      // A renewal was refused meanwhile: whoever has the job now runs it.
      if (early === undefined && run.lost !== undefined) throw new DelayedError(run.lost.message);
      let result: Result;
      try {
        result = await (early === undefined ? this.#process(run, job) : (early.result as Promise<Result>));
        if (this.#options.rules.merge === undefined) result = run.endOf(result) as Result;
      } catch (error) {
        const { backOffMs, superseded } = run;
        if (run.lost !== undefined) throw error;
        if (backOffMs !== undefined) return await this.#keyLocks.backOff(run, job, backOffMs);
        if (superseded === undefined || isMove(error)) throw error;
        result = this.#interrupted(run, superseded, error) as Result;
      }
      // What ran without its keys' lock may have overlapped another job: it must not count as done. If BullMQ's lock is
      // lost, BullMQ itself refuses the result.
      held?.lock.assertHeld();
      if (this.#options.rules.merge !== undefined) result = (await this.#settle(run, result)) as Result;
      isDone = true;
      return result;
    } finally {
      const isFollowed = isDone && arrival.isFollowed && run.lost === undefined;
      const next = isDone && held !== undefined ? this.#nextOf(run, held, arrival) : undefined;
      if (next !== undefined) this.#keyLocks.passOnWithEnd(run, next);
      else if (held !== undefined) this.#keyLocks.release(run, held, { withEnd: isDone && !isFollowed });
      if (isFollowed) this.#keyLocks.lockAhead(run, arrival.slots?.[0]);
      this.#inFlight.end();
      this.#watchdog.delete(run);
      other?.removeEventListener("abort", cancel);
    }
  }

  /** Ends a job that does not run. */
  #drop(job: Job<Data, Result, Name>, { as, key, by }: Pin & { readonly kind: "dropped" }): NotRun {
    const about = { jobId: String(job.id), keys: [key] };
    this.#tell("dropped", () => ({ ...aboutJob(this.name, about), reason: as, by: by === "" ? undefined : by }));
    if (as === "backlog") throw new KeyBacklogError(about.jobId, key);
    return { notRun: as, ...(by === "" ? {} : { by }) };
  }

  /** Ends a job that ran, and is not to run again. */
  #interrupted(run: Run, reason: SupersededError, error: unknown): NotRun {
    const { by } = reason;
    const facts = error === reason ? {} : { error };
    this.#tell("dropped", () => ({ ...aboutJob(this.name, run), reason: "interrupted", by, ...facts }));
    return { notRun: "interrupted", by, ...(error === reason ? {} : { error: messageOf(error) }) };
  }

  /**
   * Lets the call of this run be for those that wait, too. If these cannot be asked for, it is for its job alone.
   *
   * Rejects if the worker is closed by force meanwhile: then the job is left to the next worker.
   */
  async #gather(run: Run, signal: AbortSignal | undefined): Promise<void> {
    const { size, wait } = this.#options.rules.merge ?? { size: 1, wait: 0 };
    if (run.lost !== undefined) return;
    try {
      let others = await this.#inLineBehind(run, size - 1);
      if (wait > 0 && others.length < size - 1) {
        // The run's own signal is not asked for: the job may turn out not to be lost.
        const ends = linkSignals(this.#closing.signal, signal);
        await sleep(this.#clock, wait, ends.signal).catch(() => {});
        ends.unlink();
        if (!this.#isForced) others = await this.#inLineBehind(run, size - 1);
      }
      this.#places.set(run, new Map(others.map(({ id, place }) => [id, place])));
      run.joinedBy(others.map(({ id, fields }) => super.createJob(fields as never, id)));
    } catch (error) {
      this.emit("error", error as Error);
    }
    if (this.#isForced) throw new DelayedError(`job ${run.jobId} was not started: its worker is closed by force`);
  }

  async #inLineBehind({ jobId, token }: Run, most: number): Promise<readonly InLine[]> {
    return parseInLine(await this.#lane.operate("gather", jobId, token, most));
  }

  /** Stores what the call has made of the others, and returns what it has made of its own job, or throws that. */
  async #settle(run: Run, returned: unknown): Promise<unknown> {
    const { jobId, token, batch } = run;
    const [own, ...others] = batch.jobs;
    const places = this.#places.get(run);
    const stored = others.flatMap((job) => [
      String(job.id),
      places?.get(String(job.id)) ?? "",
      formatOutcome(batch.endOf(job, returned), jobId),
    ]);
    if (stored.length > 0 && (await this.#lane.operate("settle", jobId, token, ...stored)) === null) {
      run.loseJobLock();
      throw run.lost ?? new DelayedError(`job ${jobId} is not ours any more`);
    }
    return own === undefined ? returned : valueOf(batch.endOf(own, returned));
  }

  /** Ends a job that was in the batch of another one. */
  #endMerged(job: Job<Data, Result, Name>, arrival: Arrival, settled: Outcome & { readonly by: string }): unknown {
    const about = { jobId: String(job.id), keys: this.#keysOf(job, arrival) };
    const outcome = "error" in settled ? "failed" : "completed";
    this.#tell("merged", () => ({ ...aboutJob(this.name, about), by: settled.by, outcome }));
    return valueOf(settled);
  }

  /** Whether the option `startNext` can do anything for this worker. */
  #canStartAtOnce(): boolean {
    return !this.#isSandboxed && this.opts.telemetry === undefined;
  }

  /** Returns the run of the key's next job, which may begin in this turn, if there is one. */
  #nextOf(run: Run, held: HeldKeys, { following, sent }: Arrival): EarlyRun | undefined {
    if (following === undefined || run.lost !== undefined || this.#mustConfirm(run)) return undefined;
    if (elapsedMs(sent, readClock(this.#clock)) > FRESH_MS) return undefined;
    const job = this.#jobOf(following, run.token);
    if (job === undefined) return undefined;
    const { jobId, fencingToken } = following;
    const { token, keys, resources } = run;
    const { lockDuration: lockDurationMs } = this.#options;
    // Until it is handed out, the lease of the job before is all that keeps others from the key.
    const facts = { job, jobId, token, keys, resources, order: undefined, lockDurationMs, sent: run.sent };
    const next = new Run({ ...facts, controller: undefined }, this.#clock, this.#onLost);
    let nextHeld = held;
    const early: EarlyRun = new EarlyRun({
      job,
      run: next,
      held: () => nextHeld,
      fencingToken,
      clock: this.#clock,
      process: () => this.#process(next, job),
      onBegin: () => {
        this.#inFlight.begin();
        this.#watchdog.add(next);
        nextHeld = this.#keyLocks.passOn({ from: run, to: next, held, fencingToken });
      },
      onDeclined: () => this.#keyLocks.release(run, held, { withEnd: false }),
      onConfirmed: (at) => this.#watchdog.renewed(next, at, lockDurationMs),
      onDropped: () => {
        this.#lane.dropped(early);
        this.#keyLocks.release(next, nextHeld, { withEnd: false });
        this.#inFlight.end();
        this.#watchdog.delete(next);
      },
    });
    return early;
  }

  /** Makes the job as BullMQ will when it hands it out; undefined if its data cannot be read. */
  #jobOf({ jobId, fields }: Following, token: string): Job<Data, Result, Name> | undefined {
    try {
      const job = super.createJob(fields as never, jobId);
      job.attemptsStarted += 1;
      job.processedOn = Math.floor(this.#clock.wallMs());
      job.token = token;
      return job;
    } catch {
      return undefined;
    }
  }

  #process(run: Run, job: Job<Data, Result, Name>): Promise<Result> {
    if (run.superseded !== undefined) return Promise.reject(run.superseded);
    const process = this.processFn as unknown as ExclusiveProcessorFunction<Data, Result, Name>;
    if (this.#isSandboxed) tellSandbox(job, run);
    // As BullMQ does: a processor that declares fewer parameters gets no signal, and costs none.
    const takesSignal = process.length >= 3 || isWrapper(process) || this.#isSandboxed;
    const signal = (takesSignal ? run.signal : undefined) as AbortSignal;
    const lock = run as unknown as JobLock<Data, Result, Name>;
    if (!traces.run.isHeard) return process(job, run.token, signal, lock);
    const { fencingToken } = run;
    const facts = { ...aboutJob(this.name, run), fencingToken };
    return traces.run.run(facts, async () => await process(job, run.token, signal, lock));
  }

  #mustConfirm(run: Run): boolean {
    return mustConfirm(run.sent, readClock(this.#clock), this.#options.lockDuration);
  }

  /**
   * Renews BullMQ's lock first if the fetch is not recent. A process that was frozen after it would start a job that
   * another worker has taken since.
   *
   * A job that is not ours any more is left alone, which costs no attempt.
   */
  async #confirm(run: Run): Promise<void> {
    const { lockDuration } = this.#options;
    for (let attempt = 1; this.#mustConfirm(run); attempt++) {
      const ageMs = run.ageMs();
      const sent = readClock(this.#clock);
      const isOurs = attempt <= CONFIRM_ATTEMPTS && (await this.#renew(run, lockDuration));
      if (!isOurs) {
        run.loseJobLock();
        this.#tell("stale", () => ({ ...aboutJob(this.name, run), ageMs }));
        throw new DelayedError(`job ${run.jobId} was taken ${Math.round(ageMs)} ms ago and is not ours any more`);
      }
      run.confirmed(sent, lockDuration);
    }
  }

  /** Renews BullMQ's lock of the job alone: its keys are held or not, and nothing has run yet. */
  async #renew({ jobId, token }: Run, durationMs: number): Promise<boolean> {
    try {
      return (await this.extendJobLocks([jobId], [token], durationMs)).length === 0;
    } catch (error) {
      this.emit("error", error as Error);
      return false;
    }
  }

  #arrivalOf(job: Job<Data, Result, Name>): Arrival {
    const known = (job as Arrived)[ARRIVAL];
    if (known !== undefined) return known;
    // The user may have made the job himself, of what `moveToCompleted` brought.
    const arrival = this.#lane.arrivalOf(String(job.id));
    if (arrival === undefined) {
      throw new TypeError(
        "a job reached this ExclusiveWorker without passing through its lane: fetch jobs with this worker",
      );
    }
    (job as Arrived)[ARRIVAL] = arrival;
    return arrival;
  }

  #keysOf(job: Job<Data, Result, Name>, { pin }: Arrival): readonly string[] {
    if (pin.kind === "keys") return pin.keys;
    if (pin.kind === "fault") throw new JobKeyError(String(job.id), pin.fault);
    if (pin.kind === "dropped") throw new KeyBacklogError(String(job.id), pin.key);
    if (this.#options.withoutKey === "fail") throw new JobKeyError(String(job.id), "is missing");
    return [];
  }

  /** Returns the names of the locks. None may be named like a key of BullMQ's, whose place it would take. */
  #resourcesOf(job: Job<Data, Result, Name>, keys: readonly string[], { slots }: Arrival): readonly string[] {
    const { resourceOf, reserved } = this.#options;
    const resources = keys.map((key, index) => resourceOf(key) + slotSuffix(slots?.[index]));
    const taken = resources.find((resource) => protocolOf(this.redlock).lockKey(resource).startsWith(reserved));
    if (taken === undefined) return resources;
    throw new JobKeyError(String(job.id), `would have a lock named like a key of BullMQ's ("${taken}")`);
  }

  /** Asks for all keys, page by page. Some come twice if there are fewer and fewer meanwhile. */
  async *#keyPages(): AsyncGenerator<readonly BusyKey[]> {
    let cursor = "0";
    do {
      const list: KeyList = parseKeys(await this.#lane.operate("list", cursor, LIST_PAGE));
      yield list.keys;
      cursor = list.cursor;
    } while (cursor !== "0");
  }

  async #gauges(): Promise<KeyGauges> {
    let [parked, busyKeys, pausedKeys, longestLine] = [0, 0, 0, 0];
    const now = this.#clock.wallMs();
    let oldest = now;
    const counted = new Set<string>();
    for await (const page of this.#keyPages()) {
      for (const key of page) {
        if (counted.has(key.key)) continue;
        counted.add(key.key);
        parked += key.parked;
        longestLine = Math.max(longestLine, key.parked);
        if (key.holder !== undefined) busyKeys += 1;
        if (key.paused !== undefined) pausedKeys += 1;
        oldest = Math.min(oldest, key.since ?? now);
      }
    }
    const [runnable, active] = await this.#laneLengths();
    const counts = { runnable, active, parked, busyKeys, pausedKeys };
    return { counts, longestLine, longestHeldMs: now - oldest };
  }

  async #laneLengths(): Promise<[number, number]> {
    const lengths = (await this.#lane.operate("lengths")) as readonly number[];
    return [lengths[0] ?? 0, lengths[1] ?? 0];
  }

  #closeLocks(force: boolean): Promise<void> {
    this.#closingLocks ??= (async () => {
      this.#keyLocks.close();
      this.#stopSweeping();
      const silent = this.#interrupts?.stop();
      const closed = this.#inFlight.untilNone().then(async () => {
        this.#stopListening();
        await silent;
        if (this.#options.redlock === undefined) await this.redlock.close();
      });
      if (force && this.#inFlight.count > 0) closed.catch(() => {});
      else await closed;
    })();
    return this.#closingLocks;
  }
}

function setupOf(options: ResolvedExclusiveOptions, redlock: Redlock): FleetParts["setup"] {
  const { rules, resourcePrefix } = options;
  return {
    key: rules.path?.join(".") ?? null,
    onFailure: rules.onFailure,
    perKey: perKeyText(rules),
    // No resource is empty, as the prefix may be.
    locks: resourcePrefix === undefined ? null : protocolOf(redlock).lockKey(`${resourcePrefix}*`).slice(0, -1),
    nodes: redlock.nodeCount,
  };
}

function perKeyText({ slots, rate, line, merge }: ResolvedExclusiveOptions["rules"]): string | undefined {
  const limits = { concurrency: slots === 1 ? undefined : slots, rate, line, merge };
  return Object.values(limits).every((limit) => limit === undefined) ? undefined : JSON.stringify(limits);
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Tells whether a processor declares no parameters, so that it may be `(...args) => processor(...args)`. */
function isWrapper(processor: unknown): boolean {
  return typeof processor === "function" && processor.length === 0;
}

/** Gives the lock's facts to the child process, as `job.lock`. */
function tellSandbox(job: Job, lock: JobLock): void {
  const asJSON = job.asJSONSandbox.bind(job);
  const { keys, resources, fencingToken } = lock;
  job.asJSONSandbox = () => Object.assign(asJSON(), { lock: { keys, resources, fencingToken } });
}
