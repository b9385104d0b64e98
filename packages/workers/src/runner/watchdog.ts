/**
 * The watchdog ends runs whose lease is over by this process's own clocks. It looks at the earliest end, and at all
 * clocks once a second, because the timers of a suspended machine stand still.
 */
import type { Clock } from "@x/redlock-core";
import { type Instant, Renewal } from "@x/redlock-core/protocol";
import type { Run } from "../job-run/run.ts";

export class Watchdog {
  readonly #renewal: Renewal<Run>;
  readonly #lastOf: (jobId: string) => Run | undefined;

  /**
   * `lastOf` returns the last run of a job, if it is known, ended or not. A worker that lost a job and took it again
   * has an earlier run of it, too.
   */
  constructor(clock: Clock, lastOf: (jobId: string) => Run | undefined) {
    this.#renewal = new Renewal(clock);
    this.#lastOf = lastOf;
  }

  add(run: Run): void {
    this.#renewal.add(run);
  }

  /**
   * Counts the lease of a run anew from a command that was sent then, and that has renewed BullMQ's lock. It may end
   * earlier now than the one of before.
   */
  renewed(run: Run, sent: Instant, lockDurationMs: number): void {
    run.renewed(sent, lockDurationMs);
    this.#renewal.reschedule(run);
  }

  delete(run: Run): void {
    this.#renewal.delete(run);
  }

  /** Returns the run of this job with this token, if it has not ended. */
  find(jobId: string, token: string): Run | undefined {
    const last = this.#lastOf(jobId);
    if (last?.token === token) return this.#has(last) ? last : undefined;
    return this.#renewal.leases.find((run) => run.jobId === jobId && run.token === token);
  }

  /**
   * Returns the last run of a job, if it has not ended. A processor may go on after a command that leaves its job, as
   * after one that did not.
   */
  lastOf(jobId: string): Run | undefined {
    const last = this.#lastOf(jobId) ?? this.#renewal.leases.find((run) => run.jobId === jobId);
    return last !== undefined && this.#has(last) ? last : undefined;
  }

  /** Returns the run that holds this lock. */
  holderOf(lock: Parameters<Run["isHeldBy"]>[0]): Run | undefined {
    return this.#renewal.leases.find((run) => run.isHeldBy(lock));
  }

  /** Ends the trust in all runs that hold a lock: the `Redlock` is being closed, and releases it. */
  closed(): void {
    for (const run of [...this.#renewal.leases]) run.loseKeys("closed");
  }

  #has(run: Run): boolean {
    return this.#renewal.leases[run.index] === run;
  }
}
