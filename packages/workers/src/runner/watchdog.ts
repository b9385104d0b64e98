/**
 * Ends the runs whose lease is over by this process's clocks. The watchdog wakes at the earliest end of a lease. It
 * also checks all leases once a second, because timers stop while a machine is suspended.
 */
import type { Clock } from "@x/redlock-core";
import { type Instant } from "@x/redlock-core/kit";
import { Renewal } from "@x/redlock-core/protocol";
import type { Run } from "../job-run/run.ts";

export class Watchdog {
  readonly #renewal: Renewal<Run>;
  readonly #findLatest: (jobId: string) => Run | undefined;

  /**
   * `findLatest` returns the latest run of a job if it is known, even if the run has ended. A worker that lost a job
   * and took it again has an earlier run of the same job as well.
   */
  constructor(clock: Clock, findLatest: (jobId: string) => Run | undefined) {
    this.#renewal = new Renewal(clock);
    this.#findLatest = findLatest;
  }

  add(run: Run): void {
    this.#renewal.add(run);
  }

  /**
   * Restarts the lease of a run after a command, sent at `sent`, that has renewed BullMQ's lock. The new lease may end
   * before the old one.
   */
  restartLease(run: Run, sent: Instant, lockDurationMs: number): void {
    run.restartLease(sent, lockDurationMs);
    this.#renewal.reschedule(run);
  }

  delete(run: Run): void {
    this.#renewal.delete(run);
  }

  /** The number of runs that have not ended. */
  get runCount(): number {
    return this.#renewal.leases.length;
  }

  /** Returns the run of this job with this token, unless the run has ended. */
  findRun(jobId: string, token: string): Run | undefined {
    const last = this.#findLatest(jobId);
    if (last?.token === token) return this.#isRunning(last) ? last : undefined;
    return this.#renewal.leases.find((run) => run.jobId === jobId && run.token === token);
  }

  /**
   * Returns the latest run of a job, unless the run has ended. If the lane has dropped its record of the job, all runs
   * are searched. A processor may continue after a command that ends or moves its job.
   */
  findLatestRun(jobId: string): Run | undefined {
    const last = this.#findLatest(jobId) ?? this.#renewal.leases.find((run) => run.jobId === jobId);
    return last !== undefined && this.#isRunning(last) ? last : undefined;
  }

  findRunHolding(lock: Parameters<Run["isHeldBy"]>[0]): Run | undefined {
    return this.#renewal.leases.find((run) => run.isHeldBy(lock));
  }

  /** Marks the locks of all runs as lost. Called when the `Redlock` is being closed, which releases them. */
  markAllKeysLost(): void {
    for (const run of [...this.#renewal.leases]) run.markKeysLost("closed");
  }

  #isRunning(run: Run): boolean {
    return this.#renewal.leases[run.index] === run;
  }
}
