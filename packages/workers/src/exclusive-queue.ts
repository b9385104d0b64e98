/**
 * BullMQ's `Queue` with the keys of its jobs: for everything that concerns a queue of `ExclusiveWorker`s and is not
 * processing. Adding jobs needs no key, so any producer may continue to use BullMQ's own `Queue`.
 *
 * Guaranteed: every call follows the options of the queue's workers, which store them in Redis. A call that changes a
 * key is atomic, unless its description says that it works in pages.
 *
 * Not guaranteed: that a list or a count of many keys shows one moment, because it is read in pages.
 */
import { systemClock } from "@x/redlock-core";
import { withoutCommand } from "@x/redlock-core/protocol";
import { checkScripts, installedScripts, queueTargetOf } from "./bullmq/bullmq.ts";
import { leaveReplicas } from "./bullmq/connections.ts";
import { Queue, type QueueOptions } from "./bullmq/public.ts";
import { readNode, withSocketTimeout } from "./bullmq/rules/connection.ts";
import type { WorkerFinding } from "./errors.ts";
import { type ExclusiveQueueListener, eventEmitterOf } from "./events.ts";
import { JobOperators } from "./operators/job-operators.ts";
import { KeyOperators } from "./operators/key-operators.ts";
import { KeyPolicies } from "./operators/key-policies.ts";
import { OperatorLane } from "./operators/operator-lane.ts";
import { QueueExclusion } from "./operators/queue-exclusion.ts";
import type {
  CancelOptions,
  JobsOfOptions,
  ListOptions,
  OverviewOptions,
  PauseOptions,
  QueueOperators,
  SetExclusionOptions,
  StateOptions,
} from "./operators/queue-operators.ts";
import type { ExclusionMode, ExclusionReport } from "./operators/rules/exclusion.ts";
import type { KeyPolicy } from "./operators/rules/key-policy.ts";
import type {
  BusyKey,
  CancelledJobs,
  CancelledState,
  Explanation,
  JobCounts,
  KeyJobs,
  KeyReading,
} from "./operators/rules/key-report.ts";
import { LABELS, prometheusText } from "./operators/rules/prometheus.ts";
import type { QueueOverview } from "./operators/rules/queue-overview.ts";
import { findingsOf, type WorkerSetup } from "./operators/rules/worker-setup.ts";
import { readRegistry } from "./operators/worker-registry.ts";
import {
  type ExclusiveOptions,
  FINGERPRINT,
  type KeyOption,
  keyOptions,
  PATH_OR_FUNCTION,
  QUEUE_NAME,
  readOptions,
} from "./options.ts";

/** BullMQ's options of a `Queue`, and the workers' options `key` and `acceptScripts`. */
export type ExclusiveQueueOptions<Data = unknown, Name extends string = string> = QueueOptions & {
  /**
   * The option `key` of the workers. Default: the path that the workers have stored in Redis.
   *
   * Needed only to find the jobs of a key that no worker has looked at (`waiting` and `delayed`), and only if the
   * workers' `key` is a function or no worker has run yet.
   */
  readonly key?: KeyOption<Data, Name> | undefined;
} & Pick<ExclusiveOptions, "acceptScripts">;

/** Name of a BullMQ event without arguments. BullMQ's typed methods accept the names of our events as this name. */
type BullEvent = "paused";

const OWN = ["key", "acceptScripts", "connection", "prefix"];
const KEY_OPTION = PATH_OR_FUNCTION.optional();

// oxlint-disable typescript/no-explicit-any -- BullMQ's own defaults, so that untyped code compiles as before
export class ExclusiveQueue<Data = any, Result = any, Name extends string = string>
  extends Queue<Data, Result, Name>
  implements QueueOperators
{
  // oxlint-enable typescript/no-explicit-any
  readonly #lane: OperatorLane;
  readonly #keys: KeyOperators;
  readonly #jobs: JobOperators;
  readonly #policies: KeyPolicies;
  readonly #exclusion: QueueExclusion;

  /**
   * Creates a queue as BullMQ's constructor does. `backendFactory`, which BullMQ 6 accepts, must create BullMQ's own
   * Redis backend.
   * @throws TypeError for invalid options, and `UnsupportedBullMQError` for an unknown BullMQ, before anything is sent.
   */
  constructor(name: string, given: ExclusiveQueueOptions<Data, Name>, backendFactory?: object) {
    QUEUE_NAME.of("name", name);
    const { key, acceptScripts, ...options } = readOptions(given, OWN, "connection");
    const path = KEY_OPTION.of("key", key);
    readNode(options.connection);
    const { scripts } = checkScripts(installedScripts(), FINGERPRINT.optional().of("acceptScripts", acceptScripts));
    const bullOptions = { ...options, connection: withSocketTimeout(options.connection) };
    super(name, bullOptions, ...((backendFactory === undefined ? [] : [backendFactory]) as unknown as []));
    const target = queueTargetOf(this);
    leaveReplicas(this, options.connection, systemClock);
    const parts = { queue: name, clock: systemClock };
    const ownKey = path === undefined ? undefined : keyOptions(path);
    const lane = new OperatorLane({ ...parts, target, scripts, key: ownKey });
    this.#lane = lane;
    this.#keys = new KeyOperators({ ...parts, lane, emitEvent: eventEmitterOf(this) });
    this.#jobs = new JobOperators({ ...parts, lane });
    const countWorkers = async (): Promise<number> => await this.getWorkersCount();
    this.#exclusion = new QueueExclusion({ ...parts, lane, countWorkers });
    this.#policies = new KeyPolicies({ lane, onError: (error) => void this.emit("error", error) });
  }

  async listKeys(options: ListOptions = {}): Promise<BusyKey[]> {
    return await this.#keys.list(options);
  }

  async jobsOf(key: string, options: JobsOfOptions = {}): Promise<KeyJobs> {
    return await this.#jobs.jobsOf(key, options);
  }

  async removeJobs(key: string, options: StateOptions = {}): Promise<number> {
    return await this.#jobs.remove(key, options);
  }

  async cancel(jobId: string, reason?: string, options: CancelOptions = {}): Promise<CancelledState> {
    return await this.#jobs.cancel(jobId, reason, options);
  }

  async cancelKey(key: string, reason?: string, options: CancelOptions = {}): Promise<CancelledJobs> {
    return await this.#jobs.cancelKey(key, reason, options);
  }

  async explain(jobId: string): Promise<Explanation | undefined> {
    return await this.#jobs.explain(jobId);
  }

  async readKey(key: string, options: ListOptions = {}): Promise<KeyReading> {
    return await this.#keys.read(key, options);
  }

  async overview(options: OverviewOptions = {}): Promise<QueueOverview> {
    return await this.#keys.overview(options);
  }

  async pauseKey(key: string, reason?: string, options: PauseOptions = {}): Promise<boolean> {
    return await this.#keys.pause(key, reason, options);
  }

  async resumeKey(key: string): Promise<boolean> {
    return await this.#keys.resume(key);
  }

  async setKeyPolicy(key: string, policy: KeyPolicy): Promise<void> {
    await this.#policies.set(key, policy);
  }

  async getKeyPolicy(key: string): Promise<KeyPolicy | undefined> {
    return await this.#policies.get(key);
  }

  async removeKeyPolicy(key: string): Promise<boolean> {
    return await this.#policies.remove(key);
  }

  async listKeyPolicies(options: ListOptions = {}): Promise<Map<string, KeyPolicy>> {
    return await this.#policies.list(options);
  }

  async setExclusion(mode: ExclusionMode, options: SetExclusionOptions = {}): Promise<boolean> {
    return await this.#exclusion.set(mode, options);
  }

  async exclusion(options: ListOptions = {}): Promise<ExclusionReport> {
    return await this.#exclusion.report(options);
  }

  async counts(): Promise<JobCounts> {
    return await this.#keys.counts();
  }

  // Repeats the text of `QueueOperators`, because editors would otherwise show the text of BullMQ's method.
  /**
   * Resolves with BullMQ's metrics, and with gauges of the queue's keys, in the text format of Prometheus. `labels` are
   * added to every sample. This call costs as much as `counts()`.
   * @throws TypeError, RangeError for labels that Prometheus would reject.
   */
  override async exportPrometheusMetrics(labels: Record<string, string> = {}): Promise<string> {
    LABELS.of("labels", labels);
    const [bull, counts, { exclusion }] = await Promise.all([
      super.exportPrometheusMetrics(labels),
      this.counts(),
      this.overview(),
    ]);
    return [bull, prometheusText(this.name, { counts, exclusion }, labels)].join("\n");
  }

  async check(): Promise<readonly WorkerFinding[]> {
    const { setups, jobs, isWatched } = await readRegistry(this.#lane);
    return findingsOf(setups, (await this.#lane.isKeyed()) ? jobs : [], isWatched ? this.name : undefined);
  }

  async setups(): Promise<readonly WorkerSetup[]> {
    return (await readRegistry(this.#lane)).setups;
  }

  /** Adds a listener for an event of BullMQ or of `ExclusiveQueueEvents`. */
  override on<Event extends keyof ExclusiveQueueListener>(event: Event, listener: ExclusiveQueueListener[Event]): this {
    return super.on(event as BullEvent, listener as () => void);
  }

  /** Adds a listener for the next event only. */
  override once<Event extends keyof ExclusiveQueueListener>(
    event: Event,
    listener: ExclusiveQueueListener[Event],
  ): this {
    return super.once(event as BullEvent, listener as () => void);
  }

  /** Removes a listener that `on` or `once` added. */
  override off<Event extends keyof ExclusiveQueueListener>(
    event: Event,
    listener: ExclusiveQueueListener[Event],
  ): this {
    return super.off(event as BullEvent, listener as () => void);
  }

  /**
   * Emits an event, as BullMQ's `emit` does. The client's failed command is removed from an `error`, because its
   * arguments may contain a password.
   */
  override emit<Event extends keyof ExclusiveQueueListener>(
    event: Event,
    ...args: Parameters<ExclusiveQueueListener[Event]>
  ): boolean {
    const cleaned = event === "error" ? args.map(withoutCommand) : args;
    return super.emit(event as BullEvent, ...(cleaned as []));
  }

  /** Closes the queue at the end of the scope of `await using queue = …`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
