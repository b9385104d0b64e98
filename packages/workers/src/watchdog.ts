/** Ends runs whose lease is over by this process's own clocks: one timer for all of them, set to the earliest end. */
import type { Clock } from "@x/redlock-core";
import type { Instant } from "./instant.ts";
import type { Run } from "./run.ts";

export class Watchdog {
  readonly #clock: Clock;
  readonly #runs = new Map<string, Run>();
  #cancel: (() => void) | undefined;
  /** When the timer fires, by the monotonic clock. */
  #armedMs = Number.POSITIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  add(run: Run): void {
    this.#runs.set(nameOf(run), run);
    this.#watch(run);
  }

  /** BullMQ's lock of the run was renewed by a command that was sent then. Its lease may end earlier now than the one of before. */
  renewed(run: Run, sent: Instant, lockDurationMs: number): void {
    run.renewed(sent, lockDurationMs);
    this.#watch(run);
  }

  delete(run: Run): void {
    this.#runs.delete(nameOf(run));
    if (this.#runs.size > 0) return;
    this.#disarm();
  }

  find(jobId: string, token: string): Run | undefined {
    return this.#runs.get(nameOf({ jobId, token }));
  }

  /** The run that holds this lock. */
  holderOf(lock: Parameters<Run["isHeldBy"]>[0]): Run | undefined {
    for (const run of this.#runs.values()) if (run.isHeldBy(lock)) return run;
    return undefined;
  }

  #watch(run: Run): void {
    const leftMs = run.leaseLeftMs();
    if (this.#clock.monotonicMs() + leftMs < this.#armedMs) this.#arm(leftMs);
  }

  #arm(inMs: number): void {
    this.#disarm();
    const afterMs = Math.max(Math.ceil(inMs), 1);
    this.#armedMs = this.#clock.monotonicMs() + afterMs;
    this.#cancel = this.#clock.schedule(afterMs, () => this.#check());
  }

  #disarm(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    this.#armedMs = Number.POSITIVE_INFINITY;
  }

  #check(): void {
    this.#disarm();
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
