/**
 * BullMQ's locks of jobs that run are renewed by BullMQ, many at once, or extended on `job.extendLock`. Their runs are
 * told until when they may trust them.
 */
import type { Clock } from "@x/redlock-core";
import { type Instant, readClock, validityMs } from "@x/redlock-core/protocol";
import type { LockExtension } from "../bullmq/bullmq.ts";
import type { Run } from "../job-run/run.ts";
import type { Watchdog } from "./watchdog.ts";

/** BullMQ's own renewal of many locks. Resolves with the ids of the jobs whose lock is not ours any more. */
type Renew = (jobIds: string[], tokens: string[], durationMs: number) => Promise<string[]>;

interface JobLockRenewalsParts {
  readonly clock: Clock;
  readonly watchdog: Watchdog;
  /** Those of the Redlock of the keys' locks. */
  readonly limits: { readonly driftFactor: number; readonly maxTtl: number };
  /** The lease of a key's lock. */
  readonly ttl: number;
  /** Renews as the worker does. */
  readonly renew: Renew;
  readonly onError: (error: Error) => void;
}

export class JobLockRenewals {
  readonly #parts: JobLockRenewalsParts;
  /** The number of times that locks of jobs were renewed. */
  #renewals = 0;

  constructor(parts: JobLockRenewalsParts) {
    this.#parts = parts;
  }

  /**
   * Renews by `renew`. A job that has asked for longer (`job.extendLock`) would have less then, so it counts as
   * renewed.
   */
  async renewAll(
    jobIds: readonly string[],
    tokens: readonly string[],
    durationMs: number,
    renew: Renew,
  ): Promise<string[]> {
    const { clock, limits, watchdog } = this.#parts;
    const sent = readClock(clock);
    const renewedLeftMs = validityMs(durationMs, limits.driftFactor);
    const due = jobIds
      .map((jobId, index) => ({ jobId, token: tokens[index] ?? "" }))
      .filter(({ jobId, token }) => (watchdog.find(jobId, token)?.leaseLeftMs() ?? 0) <= renewedLeftMs);
    if (due.length === 0) return [];
    this.#renewals += 1;
    const failed = await renew(
      due.map(({ jobId }) => jobId),
      due.map(({ token }) => token),
      durationMs,
    );
    const failedIds = new Set(failed);
    for (const { jobId, token } of due) {
      const run = watchdog.find(jobId, token);
      if (failedIds.has(jobId)) run?.loseJobLock();
      else if (run !== undefined) watchdog.renewed(run, sent, durationMs);
    }
    return failed;
  }

  /**
   * Renews the lock of one job: its keys are held or not, and nothing has run yet. Resolves false if the job is not
   * ours any more, or nobody knows.
   */
  async renew({ jobId, token }: Run, durationMs: number): Promise<boolean> {
    try {
      return (await this.#parts.renew([jobId], [token], durationMs)).length === 0;
    } catch (error) {
      this.#parts.onError(error as Error);
      return false;
    }
  }

  /** Extends the locks of the job's keys, too, on `job.extendLock`. */
  async extend({ jobId, token, durationMs, ask }: LockExtension): Promise<number> {
    const { clock, limits, ttl, watchdog } = this.#parts;
    let sent: Instant;
    let extended: number;
    let renewals: number;
    do {
      renewals = this.#renewals;
      sent = readClock(clock);
      extended = await ask();
      // A renewal that was sent behind it may have cut it.
    } while (extended > 0 && this.#renewals > renewals);
    const run = watchdog.find(jobId, token);
    if (run === undefined) return extended;
    if (extended > 0) {
      watchdog.renewed(run, sent, durationMs);
      await run.extendKeys(Math.min(durationMs, limits.maxTtl), ttl);
    } else {
      run.loseJobLock();
    }
    return extended;
  }
}
