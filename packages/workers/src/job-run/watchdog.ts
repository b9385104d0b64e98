/** Ends runs whose lease is over by this process's own clocks: one timer for all of them, set to the earliest end. */
import type { Clock } from "@x/redlock-core";
import { type Instant } from "@x/redlock-core/protocol";
import type { Run } from "./run.ts";

export class Watchdog {
  readonly #clock: Clock;
  /** The last run of each job. */
  readonly #runs = new Map<string, Run>();
  /** The same job may run twice in a worker that lost it and took it again: the earlier runs. */
  readonly #earlier = new Set<Run>();
  #cancel: (() => void) | undefined;
  /** When the timer fires, by the monotonic clock. */
  #armedMs = Number.POSITIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  add(run: Run): void {
    const earlier = this.#runs.get(run.jobId);
    if (earlier !== undefined) this.#earlier.add(earlier);
    this.#runs.set(run.jobId, run);
    this.#watch(run);
  }

  /**
   * BullMQ's lock of the run was renewed by a command that was sent then. Its lease may end earlier now than the one of
   * before.
   */
  renewed(run: Run, sent: Instant, lockDurationMs: number): void {
    run.renewed(sent, lockDurationMs);
    this.#watch(run);
  }

  delete(run: Run): void {
    if (this.#runs.get(run.jobId) === run) this.#runs.delete(run.jobId);
    else this.#earlier.delete(run);
    if (this.#runs.size === 0 && this.#earlier.size === 0) this.#disarm();
  }

  find(jobId: string, token: string): Run | undefined {
    const last = this.#runs.get(jobId);
    if (last?.token === token) return last;
    for (const run of this.#earlier) if (run.jobId === jobId && run.token === token) return run;
    return undefined;
  }

  /** The last run of a job. */
  lastOf(jobId: string): Run | undefined {
    return this.#runs.get(jobId);
  }

  /** The run that holds this lock. */
  holderOf(lock: Parameters<Run["isHeldBy"]>[0]): Run | undefined {
    for (const run of this.#all()) if (run.isHeldBy(lock)) return run;
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
    for (const run of this.#all()) if (run.lost === undefined) earliestMs = Math.min(earliestMs, run.leaseLeftMs());
    if (Number.isFinite(earliestMs)) this.#arm(earliestMs);
  }

  #all(): readonly Run[] {
    return [...this.#runs.values(), ...this.#earlier];
  }
}
