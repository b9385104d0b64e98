/**
 * Follows the renewals of BullMQ's locks of running jobs, and updates the runs' leases. BullMQ renews many locks in one
 * request, and `job.extendLock` extends a single one.
 */
import type { Clock } from "@x/redlock-core";
import { type Instant, readClock } from "@x/redlock-core/kit";
import { validityMs } from "@x/redlock-core/protocol";
import type { LockExtension } from "../bullmq/bullmq.ts";
import type { Run } from "../job-run/run.ts";
import type { Watchdog } from "./watchdog.ts";

/**
 * BullMQ's own renewal of many locks. Resolves with the IDs of the jobs whose lock no longer belongs to this worker.
 */
type Renew = (jobIds: string[], tokens: string[], durationMs: number) => Promise<string[]>;

interface JobLockRenewalsParts {
  readonly clock: Clock;
  readonly watchdog: Watchdog;
  /** Options of the `Redlock` for the keys' locks. */
  readonly limits: { readonly driftFactor: number; readonly maxTtl: number };
  /** TTL of a key's lock. */
  readonly ttl: number;
  readonly renew: Renew;
  readonly onError: (error: Error) => void;
}

export class JobLockRenewals {
  readonly #parts: JobLockRenewalsParts;
  /** How many times locks were renewed by `renewAll`. */
  #renewals = 0;

  constructor(parts: JobLockRenewalsParts) {
    this.#parts = parts;
  }

  /**
   * Renews the locks by calling `renew`. A job whose lock lasts longer, because of `job.extendLock`, is left out and
   * counts as renewed, since this renewal would shorten its lock.
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
      .filter(({ jobId, token }) => (watchdog.findRun(jobId, token)?.leaseLeftMs() ?? 0) <= renewedLeftMs);
    if (due.length === 0) return [];
    this.#renewals += 1;
    const failed = await renew(
      due.map(({ jobId }) => jobId),
      due.map(({ token }) => token),
      durationMs,
    );
    const failedIds = new Set(failed);
    for (const { jobId, token } of due) {
      const run = watchdog.findRun(jobId, token);
      if (failedIds.has(jobId)) run?.markJobLockLost();
      else if (run !== undefined) watchdog.restartLease(run, sent, durationMs);
    }
    return failed;
  }

  /**
   * Renews BullMQ's lock of a run whose processor has not started. Resolves with false if the job no longer belongs to
   * this worker, or if the renewal failed.
   */
  async renewRun({ jobId, token }: Run, durationMs: number): Promise<boolean> {
    try {
      return (await this.#parts.renew([jobId], [token], durationMs)).length === 0;
    } catch (error) {
      this.#parts.onError(error as Error);
      return false;
    }
  }

  /** Extends BullMQ's lock of a job and the lock of its keys. Called for `job.extendLock`. */
  async extend({ jobId, token, durationMs, ask }: LockExtension): Promise<number> {
    const { clock, limits, ttl, watchdog } = this.#parts;
    let sent: Instant;
    let extended: number;
    let renewals: number;
    do {
      renewals = this.#renewals;
      sent = readClock(clock);
      extended = await ask();
      // A renewal that was sent after the extension may have shortened the lock.
    } while (extended > 0 && this.#renewals > renewals);
    const run = watchdog.findRun(jobId, token);
    if (run === undefined) return extended;
    if (extended > 0) {
      watchdog.restartLease(run, sent, durationMs);
      await run.extendKeys(Math.min(durationMs, limits.maxTtl), ttl);
    } else {
      run.markJobLockLost();
    }
    return extended;
  }
}
