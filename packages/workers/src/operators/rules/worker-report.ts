/** Pure: what the workers of a queue report about themselves, and what it means for waiting jobs. */
import { type FleetFacts, GONE_SECONDS, type StoredReport } from "../../scripts/operator-replies.ts";
import { storedObject } from "./key-policy.ts";
import type { WorkerSetup } from "./worker-setup.ts";

/** The part of a report that changes. All counts are since the start of the worker. */
export interface WorkerStatus {
  /** The version of this package. Undefined if it cannot be read, as in a bundle. */
  readonly version?: string | undefined;
  /** Jobs that the worker runs at the same time. Undefined in a partition, and for jobs that are fetched by hand. */
  readonly slots?: number | undefined;
  /** Jobs that ran at the time of the report. */
  readonly busy: number;
  readonly completed: number;
  /** Failed attempts. */
  readonly failed: number;
  /** Jobs of any worker that this worker has found stalled. */
  readonly stalled: number;
  /** Locks that were lost while their job ran. */
  readonly locksLost: number;
  /** When a lock was last lost, in ms since the epoch, by the worker's clock. Undefined if none was. */
  readonly lockLostMs?: number | undefined;
}

/** The last report of a worker of a queue. */
export interface WorkerReport {
  /** The worker's options, and its process as `at`. */
  readonly setup: WorkerSetup;
  /** Undefined if the worker does not report it. */
  readonly status: WorkerStatus | undefined;
  /** When the worker reported, in ms since the epoch, by the clock of the queue's Redis. */
  readonly reportedMs: number;
  /** Whether the worker has not reported for 30 s. A worker reports every 10 s. */
  readonly isGone: boolean;
}

/** A damaged report is left out. */
export function reportsOf(stored: readonly StoredReport[], nowMs: number): readonly WorkerReport[] {
  return stored.flatMap(({ ageSeconds, text }) => {
    const parsed = storedObject(text) as (WorkerSetup & { readonly status?: WorkerStatus }) | undefined;
    if (parsed === undefined) return [];
    const { status, ...setup } = parsed;
    return { setup, status, reportedMs: nowMs - ageSeconds * 1_000, isGone: ageSeconds > GONE_SECONDS };
  });
}

/** Returns the setups of the workers that are not gone. */
export function setupsOf(stored: readonly StoredReport[]): readonly WorkerSetup[] {
  return reportsOf(stored, 0).flatMap(({ setup, isGone }) => (isGone ? [] : setup));
}

/** Returns the report of a process with two workers that have the same options. */
export function sumReports(one: WorkerReport, other: WorkerReport): WorkerReport {
  const reportedMs = Math.max(one.reportedMs, other.reportedMs);
  const isGone = one.isGone && other.isGone;
  if (one.status === undefined || other.status === undefined) return { ...one, status: undefined, reportedMs, isGone };
  const { busy, completed, failed, stalled, locksLost, lockLostMs } = other.status;
  const status = {
    ...one.status,
    busy: one.status.busy + busy,
    completed: one.status.completed + completed,
    failed: one.status.failed + failed,
    stalled: one.status.stalled + stalled,
    locksLost: one.status.locksLost + locksLost,
    lockLostMs: Math.max(one.status.lockLostMs ?? 0, lockLostMs ?? 0) || undefined,
  };
  return { ...one, status, reportedMs, isGone };
}

/** The workers of a queue, as waiting jobs see them. */
export class Fleet {
  readonly #facts: FleetFacts;
  readonly #reports: readonly WorkerReport[];
  readonly #running: readonly WorkerReport[];

  constructor(facts: FleetFacts) {
    this.#facts = facts;
    this.#reports = reportsOf(facts.reports, 0);
    this.#running = this.#reports.filter(({ isGone }) => !isGone);
  }

  /** Says that no worker is running. Undefined if one is. */
  get absence(): string | undefined {
    if (this.#running.length > 0 || this.#facts.isHeard) return undefined;
    if (this.#reports.length === 0) return "no worker with keys runs";
    return `no worker with keys has reported for ${-this.#newestMs / 1_000} s`;
  }

  /** Says what a job with a free key waits for: `waits for a free slot: all 15 slots of 3 workers are busy`. */
  get slots(): string {
    const slots = this.#running.reduce((sum, { status }) => sum + (status?.slots ?? 0), 0);
    const workers = `${this.#running.length} ${this.#running.length === 1 ? "worker" : "workers"}`;
    if (slots === 0) return "waits for a free slot";
    const { active } = this.#facts;
    if (active < slots) return `waits for a free slot: ${slots - active} of ${slots} slots of ${workers} are free`;
    return slots === 1
      ? "waits for a free slot: the only slot of 1 worker is busy"
      : `waits for a free slot: all ${slots} slots of ${workers} are busy`;
  }

  /** Returns the last report of the worker with this ID. Undefined if the worker does not report. */
  reportOf(worker: string): { readonly at: string; readonly ageSeconds: number } | undefined {
    const stored = this.#facts.reports.find((each) => each.worker === worker);
    const [report] = stored === undefined ? [] : reportsOf([stored], 0);
    return report === undefined ? undefined : { at: report.setup.at, ageSeconds: stored?.ageSeconds ?? 0 };
  }

  get #newestMs(): number {
    return Math.max(...this.#reports.map(({ reportedMs }) => reportedMs));
  }
}
