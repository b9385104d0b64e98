/**
 * The operators' methods of a divided queue. A call about a key asks the key's partition. The other calls ask all
 * partitions, and combine the answers.
 */
import { ExclusionRefusedError, type WorkerFinding } from "../errors.ts";
import type { ExclusiveQueue } from "../exclusive-queue.ts";
import type {
  CancelOptions,
  JobsOfOptions,
  ListOptions,
  OverviewOptions,
  PauseOptions,
  QueueOperators,
  SetExclusionOptions,
  StateOptions,
} from "../operators/queue-operators.ts";
import { type ExclusionMode, type ExclusionReport, sumExclusions } from "../operators/rules/exclusion.ts";
import type { KeyPolicy } from "../operators/rules/key-policy.ts";
import type {
  BusyKey,
  CancelledJobs,
  CancelledState,
  Explanation,
  JobCounts,
  KeyJobs,
  KeyReading,
} from "../operators/rules/key-report.ts";
import {
  CANCEL_REASON,
  EXCLUSION_CHANGE,
  EXCLUSION_MODE,
  EXCLUSION_REPORT,
  JOB_ID,
  LIST,
  OVERVIEW,
} from "../operators/rules/operator-arguments.ts";
import { sumCounts } from "../operators/rules/prometheus.ts";
import { type QueueOverview, sumOverviews } from "../operators/rules/queue-overview.ts";
import type { WorkerSetup } from "../operators/rules/worker-setup.ts";
import { readMetrics } from "./metrics.ts";
import { CANCEL_IN_PARTITIONS, type CancelInPartitionsOptions, type LookupOptions } from "./options.ts";
import type { PartitionQueues } from "./partition-queues.ts";
import { distinct } from "./rules/merge.ts";
import { partitionOf } from "./rules/partition.ts";

export class PartitionedOperators<Data, Result, Name extends string> implements QueueOperators {
  readonly name: string;
  readonly partitions: number;
  /** The queues by partition, for calls that this class does not have. */
  readonly queues: readonly ExclusiveQueue<Data, Result, Name>[];
  readonly #partitionQueues: PartitionQueues<Data, Result, Name>;

  constructor(queues: PartitionQueues<Data, Result, Name>) {
    this.name = queues.division.name;
    this.partitions = queues.division.partitions;
    this.queues = queues.all;
    this.#partitionQueues = queues;
  }

  /** Returns the partition of a key. */
  partitionOf(key: string): number {
    return partitionOf(key, this.partitions);
  }

  /** Returns the queue that contains the jobs of a key, for calls about one key. */
  queueOf(key: string): ExclusiveQueue<Data, Result, Name> {
    return this.#partitionQueues.at(this.partitionOf(key));
  }

  async listKeys(options: ListOptions = {}): Promise<BusyKey[]> {
    return await this.#listAll(options, async (queue, bounded) => await queue.listKeys(bounded));
  }

  async jobsOf(key: string, options: JobsOfOptions = {}): Promise<KeyJobs> {
    return await this.queueOf(key).jobsOf(key, options);
  }

  async removeJobs(key: string, options: StateOptions = {}): Promise<number> {
    return await this.queueOf(key).removeJobs(key, options);
  }

  /**
   * Cancels a job. Without the job's `key`, all partitions are asked. See `QueueOperators.cancel`.
   * @throws RangeError if several partitions have a job with this ID. In this case pass the `key`.
   */
  async cancel(jobId: string, reason?: string, options: CancelInPartitionsOptions = {}): Promise<CancelledState> {
    JOB_ID.of("jobId", jobId);
    CANCEL_REASON.of("reason", reason);
    const { key, remove } = CANCEL_IN_PARTITIONS.resolve(options);
    const found = await this.#partitionQueues.findJob(jobId, { key }, async (queue) =>
      (await queue.explain(jobId)) === undefined ? undefined : queue,
    );
    return (await found?.cancel(jobId, reason, { remove })) ?? "unknown";
  }

  async cancelKey(key: string, reason?: string, options: CancelOptions = {}): Promise<CancelledJobs> {
    return await this.queueOf(key).cancelKey(key, reason, options);
  }

  /**
   * Explains why a job waits. Without the job's `key`, all partitions are asked. Resolves with undefined if the job
   * does not exist.
   * @throws RangeError if several partitions have a job with this ID. In this case pass the `key`.
   */
  async explain(jobId: string, options: LookupOptions = {}): Promise<Explanation | undefined> {
    return await this.#partitionQueues.findJob(jobId, options, async (queue) => await queue.explain(jobId));
  }

  async readKey(key: string, options: ListOptions = {}): Promise<KeyReading> {
    return await this.queueOf(key).readKey(key, options);
  }

  async overview(options: OverviewOptions = {}): Promise<QueueOverview> {
    const { keys, read } = OVERVIEW.resolve(options);
    const parts = await this.#partitionQueues.askAll(
      async (queue) => await queue.overview({ keys, read: read.filter((key) => this.queueOf(key) === queue) }),
    );
    return sumOverviews(parts, { keys, read });
  }

  async pauseKey(key: string, reason?: string, options: PauseOptions = {}): Promise<boolean> {
    return await this.queueOf(key).pauseKey(key, reason, options);
  }

  async resumeKey(key: string): Promise<boolean> {
    return await this.queueOf(key).resumeKey(key);
  }

  async setKeyPolicy(key: string, policy: KeyPolicy): Promise<void> {
    await this.queueOf(key).setKeyPolicy(key, policy);
  }

  async getKeyPolicy(key: string): Promise<KeyPolicy | undefined> {
    return await this.queueOf(key).getKeyPolicy(key);
  }

  async removeKeyPolicy(key: string): Promise<boolean> {
    return await this.queueOf(key).removeKeyPolicy(key);
  }

  async listKeyPolicies(options: ListOptions = {}): Promise<Map<string, KeyPolicy>> {
    return new Map(await this.#listAll(options, async (queue, bounded) => await queue.listKeyPolicies(bounded)));
  }

  async setExclusion(mode: ExclusionMode, options: SetExclusionOptions = {}): Promise<boolean> {
    EXCLUSION_MODE.of("mode", mode);
    const { force } = EXCLUSION_CHANGE.resolve(options);
    if (!force) {
      const reports = await this.#partitionQueues.askAll(async (queue) => await queue.exclusion({ limit: 0 }));
      const changing = reports.filter((report) => report.mode !== mode);
      const obstacles = [...new Set(changing.flatMap((report) => report.obstacles))];
      if (obstacles.length > 0) throw new ExclusionRefusedError(this.name, mode, obstacles);
    }
    return (
      await this.#partitionQueues.askAll(async (queue) => await queue.setExclusion(mode, { force: true }))
    ).includes(true);
  }

  async exclusion(options: ListOptions = {}): Promise<ExclusionReport> {
    const { limit } = EXCLUSION_REPORT.resolve(options);
    return sumExclusions(await this.#partitionQueues.askAll(async (queue) => await queue.exclusion({ limit })), limit);
  }

  async counts(): Promise<JobCounts> {
    return sumCounts(await this.#partitionQueues.askAll(async (queue) => await queue.counts()));
  }

  async exportPrometheusMetrics(labels: Record<string, string> = {}): Promise<string> {
    return await readMetrics(this.#partitionQueues, labels);
  }

  async check(): Promise<readonly WorkerFinding[]> {
    const findings = distinct((await this.#partitionQueues.askAll(async (queue) => await queue.check())).flat());
    const { fault } = await this.#partitionQueues.record.compare("read");
    return fault === undefined ? findings : [fault.finding, ...findings];
  }

  async setups(): Promise<readonly WorkerSetup[]> {
    return distinct((await this.#partitionQueues.askAll(async (queue) => await queue.setups())).flat());
  }

  /** Lists what all partitions list, up to the limit. */
  async #listAll<Listed>(
    options: ListOptions,
    list: (queue: ExclusiveQueue<Data, Result, Name>, bounded: { readonly limit: number }) => Promise<Iterable<Listed>>,
  ): Promise<Listed[]> {
    const { limit } = LIST.resolve(options);
    const lists = await this.#partitionQueues.askAll(async (queue) => await list(queue, { limit }));
    return lists.flatMap((each) => [...each]).slice(0, limit);
  }
}
