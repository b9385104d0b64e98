/** Ends runs whose lease is over by this process's own clocks: one timer for all of them, set to the earliest end. */
import type { Clock } from "@x/redlock-core";
import type { Run } from "./run.ts";

export class Watchdog {
  readonly #clock: Clock;
  readonly #runs = new Map<string, Run>();
  #cancel: (() => void) | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  add(run: Run): void {
    this.#runs.set(nameOf(run), run);
    // A lease that begins later ends later, unless it was renewed: the timer looks again when it fires.
    if (this.#cancel === undefined) this.#arm(run.leaseLeftMs());
  }

  delete(run: Run): void {
    this.#runs.delete(nameOf(run));
    if (this.#runs.size > 0) return;
    this.#cancel?.();
    this.#cancel = undefined;
  }

  find(jobId: string, token: string): Run | undefined {
    return this.#runs.get(nameOf({ jobId, token }));
  }

  /** The run that holds this lock. */
  holderOf(lock: Parameters<Run["isHeldBy"]>[0]): Run | undefined {
    for (const run of this.#runs.values()) if (run.isHeldBy(lock)) return run;
    return undefined;
  }

  #arm(inMs: number): void {
    this.#cancel = this.#clock.schedule(Math.max(Math.ceil(inMs), 1), () => this.#check());
  }

  #check(): void {
    this.#cancel = undefined;
    let earliestMs = Number.POSITIVE_INFINITY;
    for (const run of this.#runs.values())
      if (run.lost === undefined) earliestMs = Math.min(earliestMs, run.leaseLeftMs());
    if (Number.isFinite(earliestMs)) this.#arm(earliestMs);
  }
}

/** A job has one run per token; the same job may run twice in a worker that lost it and took it again. */
function nameOf(run: { readonly jobId: string; readonly token: string }): string {
  return `${run.jobId} ${run.token}`;
}
