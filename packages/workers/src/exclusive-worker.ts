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
  InFlight,
  type Instant,
  integer,
  kindOf,
  protocolOf,
  readClock,
  Schema,
  shaped,
  text,
  validityMs,
} from "@x/redlock-core/protocol";
import { Job, Worker } from "bullmq";
import {
  acceptSignal,
  checkScripts,
  decodeJob,
  installedScripts,
  isAskAgain,
  keepTracked,
  type LockExtension,
  replaceExtendLock,
  type TrackedJobs,
  targetOf,
} from "./bullmq/bullmq.ts";
import { composeScripts } from "./bullmq/compose.ts";
import { LaneError, MixedFleetError, SupersededError, type WorkerFinding, withoutCommand } from "./errors.ts";
import { channels, type ExclusiveWorkerListener, type Tell } from "./events.ts";
import type { Run } from "./job-run/run.ts";
import { Interrupts } from "./lane/interrupts.ts";
import { Lane } from "./lane/lane.ts";
import { startSweep } from "./lane/sweep.ts";
import type { KeyLocks } from "./locks/key-locks.ts";
import { ownRedlock } from "./locks/own-redlock.ts";
import { RedlockLocks } from "./locks/redlock-locks.ts";
import { RunLocks } from "./locks/run-locks.ts";
import { ScriptLocks } from "./locks/script-locks.ts";
import { KeyOperators } from "./operators/key-operators.ts";
import { KeyPolicies } from "./operators/key-policies.ts";
import type { KeyPolicy } from "./operators/key-policy.ts";
import type { BusyKey, Explanation, JobCounts, KeyJobState, KeyJobs } from "./operators/operators.ts";
import { LABELS, prometheusText } from "./operators/prometheus.ts";
import { WorkerRegistry, type WorkerRegistryParts, type WorkerSetup } from "./operators/worker-registry.ts";
import {
  bullOptions,
  type ExclusiveWorkerOptions,
  type ResolvedExclusiveOptions,
  readOptions,
  resolveOptions,
} from "./options.ts";
import { Arrivals } from "./runner/arrivals.ts";
import { Merging } from "./runner/merging.ts";
import { type ExclusiveProcessorFunction, isWrapper, Runner } from "./runner/runner.ts";
import { Watchdog } from "./runner/watchdog.ts";

/** The name of an event without arguments. BullMQ's own types are told of ours by it. */
type BullEvent = "ready";

const SHORTEST_SWEEP_MS = 1_000;

const QUEUE_NAME = text({ min: 1 });
export const PROCESSOR: Check<unknown> = new Check<unknown>({
  rule: "a function, the path or file: URL of a file that exports one, or null for jobs that are fetched by hand",
  faultOf: (given) => {
    const isOne = ["function", "string", "undefined"].includes(typeof given) || given === null || given instanceof URL;
    return isOne ? undefined : "type";
  },
});
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
  readonly #clock: Clock;
  readonly #lane: Lane;
  readonly #locks: KeyLocks;
  readonly #watchdog: Watchdog;
  readonly #runLocks: RunLocks;
  readonly #arrivals: Arrivals;
  readonly #runner: Runner;
  readonly #operators: KeyOperators;
  readonly #policies: KeyPolicies;
  #stopSweeping: () => void = () => undefined;
  readonly #interrupts: Interrupts | undefined;
  readonly #registry: WorkerRegistry;
  readonly #inFlight = new InFlight();
  readonly #tell: Tell = (name, message) => {
    const isHeard = this.listenerCount(name) > 0;
    if (!isHeard && !channels.isHeard(name)) return;
    const told = message();
    channels.publish(name, () => told);
    if (isHeard) this.emit(name, ...([told] as Parameters<ExclusiveWorkerListener<Data, Result, Name>[typeof name]>));
  };
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
    const isSandboxed = typeof processor !== "function";
    // Jobs that are run by hand have locks of their own: see `lockJob`.
    const ofLocks = { redlock, inFlight: this.#inFlight, ttl: resolved.ttl, timeout: resolved.timeout };
    const scriptLocks = resolved.redlock !== undefined || isByHand ? undefined : ScriptLocks.on(ofLocks, resolved);
    this.#locks = scriptLocks ?? new RedlockLocks(ofLocks);
    this.#lane = new Lane({
      scripts: composeScripts(
        bullScripts,
        {
          ...resolved.rules,
          startsAtOnce: resolved.rules.startsAtOnce && !isSandboxed && this.opts.telemetry === undefined,
        },
        scriptLocks?.rules,
      ),
      locks: this.#locks,
      keyOf: resolved.keyOf as (job: unknown) => unknown,
      clock: this.#clock,
      lockDurationMs: resolved.lockDuration,
      events: {
        onParked: (jobs) => this.#tell("parked", () => ({ queue: this.name, jobs })),
        onFault: (fault) => this.emit("error", new LaneError(this.name, fault)),
        onLimited: (key, untilMs) => this.#tell("keyLimited", () => ({ queue: this.name, key, untilMs })),
      },
    });
    this.#watchdog = new Watchdog(this.#clock, (jobId) => this.#lane.takenOf(jobId)?.run);
    this.#stopListening = redlock.on("lost", (lost) => this.#watchdog.holderOf(lost)?.loseKeys());
    this.#runLocks = new RunLocks({
      queue: name,
      redlock,
      locks: this.#locks,
      lane: this.#lane,
      inFlight: this.#inFlight,
      reentrancy: resolved.reentrancy,
      recheckInterval: resolved.recheckInterval,
      tell: this.#tell,
      onError: (error) => this.emit("error", error),
    });
    this.#operators = new KeyOperators({ queue: name, lane: this.#lane, clock: this.#clock, tell: this.#tell });
    this.#arrivals = new Arrivals({ lane: this.#lane, redlock, options: resolved });
    this.#registry = new WorkerRegistry({
      clock: this.#clock,
      id: this.id,
      setup: setupOf(resolved, redlock),
      look: async (id, setup, lifeMs) => await this.#lane.operate("look", id, setup, lifeMs),
      onFinding: (finding) => this.emit("error", new MixedFleetError(this.name, finding)),
    });
    this.#policies = new KeyPolicies({
      lane: this.#lane,
      rules: resolved.rules,
      setups: async () => await this.#registry.setups(),
    });
    let tracked: TrackedJobs;
    try {
      const target = targetOf(this, new Job(this, "contract", {}));
      this.#lane.attach(target);
      replaceExtendLock(target, async (extension) => await this.#extendJobLock(extension));
      tracked = keepTracked(this, (jobId, token) => this.#watchdog.find(jobId, token) !== undefined);
    } catch (error) {
      this.close(true).catch(() => {});
      throw error;
    }
    this.#stopSweeping = startSweep({
      clock: this.#clock,
      turnMs: Math.max(resolved.recheckInterval, SHORTEST_SWEEP_MS),
      lane: this.#lane,
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
    const makeJob = (fields: object, jobId: string): Job => super.createJob(decodeJob(fields, jobId) as never, jobId);
    const { merge } = resolved.rules;
    this.#runner = new Runner({
      queue: name,
      clock: this.#clock,
      lane: this.#lane,
      arrivals: this.#arrivals,
      locks: this.#runLocks,
      watchdog: this.#watchdog,
      tracked,
      inFlight: this.#inFlight,
      interrupts: this.#interrupts,
      merging:
        merge === undefined
          ? undefined
          : new Merging({
              ...merge,
              lane: this.#lane,
              clock: this.#clock,
              makeJob,
              closing: this.#closing.signal,
              isForced: () => this.#isForced,
              onError: (error) => this.emit("error", error),
            }),
      lockDurationMs: resolved.lockDuration,
      driftFactor: redlock.options.driftFactor,
      isSandboxed,
      processor: () => this.processFn,
      makeJob,
      renew: async (run, durationMs) => await this.#renew(run, durationMs),
      tell: this.#tell,
    });
    void scriptLocks?.prove((name) => this.#lane.operate("mark", name));
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
    return await this.#operators.list(options);
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
    return await this.#operators.jobsOf(key, options);
  }

  /**
   * Removes the jobs of a key that do not run, with their children, for good. It removes all of them, or those of one
   * `state`, as `jobsOf` has them. Resolves with their number.
   *
   * A job that runs is left, and so is the next one of a job scheduler. One that is added meanwhile may be removed,
   * too. It costs O(jobs of the queue in that state), in pages.
   */
  async removeJobs(key: string, options: { readonly state?: KeyJobState | "all" | undefined } = {}): Promise<number> {
    return await this.#operators.remove(key, options);
  }

  /** Explains why a job waits, behind whom and until when. Resolves undefined if there is no such job. */
  async explain(jobId: string): Promise<Explanation | undefined> {
    return await this.#operators.explain(jobId);
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
    return await this.#operators.pause(key, reason, options);
  }

  /**
   * Ends a pause, the halt after a failed job, or both: look at `paused.jobId` of `listKeys()` before. Resolves false
   * if the key was not paused.
   *
   * To run the failed job again before the others, retry it first (`job.retry()`).
   */
  async resumeKey(key: string): Promise<boolean> {
    return await this.#operators.resume(key);
  }

  /**
   * Says what holds for a key from now on instead of the workers' `perKey`, until it is said anew or removed. All
   * workers of the queue see it with their next decision. What was said before is forgotten.
   *
   * Where more jobs run than may from now on, they go on, and the next one starts when fewer do. A lower `maxWaiting`
   * holds for the next job that comes. A `rate` counts the starts that the rate before has counted.
   * @throws RangeError for what would have no effect in this worker, or in another one that runs.
   */
  async setKeyPolicy(key: string, policy: KeyPolicy): Promise<void> {
    await this.#policies.set(key, policy);
  }

  /** Returns what `setKeyPolicy` has said of a key, or undefined. */
  async getKeyPolicy(key: string): Promise<KeyPolicy | undefined> {
    return await this.#policies.get(key);
  }

  /** Lets the workers' `perKey` hold for a key again. Resolves false if nothing else did. */
  async removeKeyPolicy(key: string): Promise<boolean> {
    return await this.#policies.remove(key);
  }

  /**
   * Returns what `setKeyPolicy` has said, by the key: at most `limit` (default 1000) keys, in no order. It costs O(busy
   * keys, and keys with a policy).
   */
  async listKeyPolicies(options: { readonly limit?: number | undefined } = {}): Promise<Map<string, KeyPolicy>> {
    return await this.#policies.list(options);
  }

  /**
   * Counts jobs that a free slot would take now (`runnable`), that run (`active`), and that wait for their key
   * (`parked`, a part of BullMQ's `delayed`).
   *
   * It costs O(busy keys). A parked job that was removed by hand is counted until its turn.
   */
  async counts(): Promise<JobCounts> {
    return (await this.#operators.gauges()).counts;
  }

  /**
   * Resolves with gauges of the queue's jobs and keys in the text format of Prometheus, as BullMQ's `Queue` has one for
   * its own. `labels` are added to every sample. Costs what `counts()` costs.
   * @throws TypeError, RangeError for labels that Prometheus would refuse.
   */
  async exportPrometheusMetrics(labels: Readonly<Record<string, string>> = {}): Promise<string> {
    LABELS.of("labels", labels);
    return prometheusText(this.name, await this.#operators.gauges(), labels);
  }

  /**
   * Looks now for what weakens a promise: options of this worker, and workers of this queue that do not agree.
   *
   * Each worker that runs compares, too, when it starts and every minute. It tells what it finds once, as an `error`
   * event with a `MixedFleetError`. Plain workers that are idle are not seen.
   */
  async check(): Promise<readonly WorkerFinding[]> {
    return [...this.#options.warnings, ...(await this.#registry.check())];
  }

  /** Returns how the workers of this queue that run are set up. One that was killed is known for 3 min. */
  async setups(): Promise<readonly WorkerSetup[]> {
    return await this.#registry.setups();
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
    const taken = this.#arrivals.of(job);
    const keys = this.#arrivals.keysOf(job, taken);
    if (keys.length === 0) return undefined;
    const { ttl } = this.#options;
    const resources = this.#arrivals.resourcesOf(job, keys, taken);
    return await this.redlock.acquire(resources, { ttl, timeout, autoExtend: true });
  }

  /** Fetches a job as BullMQ's `getNextJob` does, for jobs that you run yourself: see `lockJob`. */
  override getNextJob(
    ...args: Parameters<Worker<Data, Result, Name>["getNextJob"]>
  ): ReturnType<Worker<Data, Result, Name>["getNextJob"]> {
    this.#locks.stop();
    this.#registry.join();
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
    this.#registry.join();
    return super.run();
  }

  /**
   * Closes the worker as BullMQ's `close` does. The locks of jobs that still run are released when these end; with
   * `force` the promise does not wait for that.
   */
  override async close(force = false): Promise<void> {
    this.#registry.leave();
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
    const renewedLeftMs = validityMs(duration, this.redlock.options.driftFactor);
    const due = jobIds
      .map((jobId, index) => ({ jobId, token: tokens[index] ?? "" }))
      .filter(({ jobId, token }) => (this.#watchdog.find(jobId, token)?.leaseLeftMs() ?? 0) <= renewedLeftMs);
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
    return isAskAgain(data, id) ? Promise.resolve(undefined as never) : super.nextJobFromJobData(...args);
  }

  protected override createJob(...args: Parameters<Worker<Data, Result, Name>["createJob"]>): Job<Data, Result, Name> {
    return this.#arrivals.take(super.createJob(...args), args[1]) as Job<Data, Result, Name>;
  }

  protected override callProcessJob(
    job: Job<Data, Result, Name>,
    token: string,
    signal?: AbortSignal,
  ): Promise<Result> {
    return this.#runner.run(job, token, signal) as Promise<Result>;
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

  #closeLocks(force: boolean): Promise<void> {
    this.#closingLocks ??= (async () => {
      this.#runLocks.close();
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

function setupOf(options: ResolvedExclusiveOptions, redlock: Redlock): WorkerRegistryParts["setup"] {
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

function perKeyText({ slots, rate, line, merge, rotate }: ResolvedExclusiveOptions["rules"]): string | undefined {
  const limits = { concurrency: slots === 1 ? undefined : slots, rate, line, merge, rotate };
  return Object.values(limits).every((limit) => limit === undefined) ? undefined : JSON.stringify(limits);
}
