/**
 * The watchdog ends runs whose lease is over by this process's own clocks. It looks at the earliest end, and at all
 * clocks once a second, because the timers of a suspended machine stand still.
 */
import type { Clock } from "@x/redlock-core";
import { type Instant, Renewal } from "@x/redlock-core/protocol";
import type { Run } from "../job-run/run.ts";
import { ShortLivedMap } from "../short-lived-map.ts";

export class Watchdog {
  readonly #renewal: Renewal<Run>;
  /** The last run of each job. A worker that lost a job and took it again has an earlier run of it, too. */
  readonly #last = new ShortLivedMap<Run>();

  constructor(clock: Clock) {
    this.#renewal = new Renewal(clock);
  }

  add(run: Run): void {
    this.#last.set(run.jobId, run);
    this.#renewal.add(run);
  }

  /**
   * BullMQ's lock of the run was renewed by a command that was sent then. Its lease may end earlier now than the one of
   * before.
   */
  renewed(run: Run, sent: Instant, lockDurationMs: number): void {
    run.renewed(sent, lockDurationMs);
    this.#renewal.reschedule(run);
  }

  /** Nothing of the run has begun, and Redis says that the job is ours, whatever our clocks made of it. */
  confirmed(run: Run, sent: Instant, lockDurationMs: number): void {
    run.confirmed(sent, lockDurationMs);
    this.#renewal.reschedule(run);
  }

  delete(run: Run): void {
    if (this.#last.get(run.jobId) === run) this.#last.delete(run.jobId);
    this.#renewal.delete(run);
  }

  find(jobId: string, token: string): Run | undefined {
    const last = this.#last.get(jobId);
    if (last?.token === token) return last;
    return this.#renewal.leases.find((run) => run.jobId === jobId && run.token === token);
  }

  /** Returns the last run of a job. */
  lastOf(jobId: string): Run | undefined {
    return this.#last.get(jobId);
  }

  /** Returns the run that holds this lock. */
  holderOf(lock: Parameters<Run["isHeldBy"]>[0]): Run | undefined {
    return this.#renewal.leases.find((run) => run.isHeldBy(lock));
  }
}
