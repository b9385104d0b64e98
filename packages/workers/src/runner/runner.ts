/**
 * Runs jobs. A run starts with the `TakenJob` from the fetch, and ends when its locks are passed on or released. BullMQ
 * then records the job's outcome.
 */
import type { Clock } from "@x/redlock-core";
import { type InFlight, messageOf, readClock } from "@x/redlock-core/kit";
import type { TrackedJobs } from "../bullmq/bullmq.ts";
import { passLockToSandbox } from "../bullmq/job.ts";
import { takesSignal } from "../bullmq/processor.ts";
import { DelayedError, type Job } from "../bullmq/public.ts";
import { isMove } from "../bullmq/rules/move.ts";
import { JobCancelledError, KeyBacklogError, type SupersededError } from "../errors.ts";
import { aboutJob, type EmitEvent, traces, type WorkerEvents } from "../events.ts";
import type { JobLock } from "../job-run/job-lock.ts";
import { type JobOutcome, parseOutcome, valueOf } from "../job-run/rules/batch.ts";
import { mustConfirm } from "../job-run/rules/lease.ts";
import { Run } from "../job-run/run.ts";
import type { Interrupts } from "../lane/interrupts.ts";
import type { Lane } from "../lane/lane.ts";
import type { TakenJob } from "../lane/taken-job.ts";
import type { RunLocks } from "../locks/run-locks.ts";
import type { Pin } from "../rules/entity-key.ts";
import type { Arrivals } from "./arrivals.ts";
import type { Merging } from "./merging.ts";
import type { Watchdog } from "./watchdog.ts";

/** BullMQ's processor with a fourth argument. A processor with fewer parameters runs unchanged. */
export type ExclusiveProcessorFunction<Data, Result, Name extends string> = (
  job: Job<Data, Result, Name>,
  token: string | undefined,
  signal: AbortSignal,
  lock: JobLock<Data, Result, Name>,
) => Promise<Result>;

/**
 * Return value of a job that was completed without a run, or before the end of its run, because of the option
 * `whenBusy`.
 */
export interface NotRun {
  /**
   * Why the job did not run: a newer job is waiting (`superseded`), or its key was busy. With `interrupted`, a newer
   * job has ended its run early.
   */
  readonly notRun: "superseded" | "busy" | "interrupted";
  /** ID of the newer job, or of the job that has the key. */
  readonly by?: string;
  /**
   * Message of the error with which an interrupted processor rejected. Undefined if it rejected with its signal's
   * reason.
   */
  readonly error?: string;
}

interface RunnerParts {
  readonly queue: string;
  readonly clock: Clock;
  readonly lane: Pick<Lane, "forget">;
  readonly arrivals: Arrivals;
  readonly locks: RunLocks;
  readonly watchdog: Watchdog;
  readonly tracked: TrackedJobs;
  readonly inFlight: InFlight;
  readonly interrupts: Interrupts | undefined;
  /** Set with `whenBusy: "merge"`. */
  readonly merging: Merging | undefined;
  readonly lockDurationMs: number;
  /** The option `driftFactor` of the `Redlock` for the keys' locks. */
  readonly driftFactor: number;
  readonly isSandboxed: boolean;
  readonly processor: () => unknown;
  /**
   * Renews BullMQ's lock of a job for `durationMs`. Resolves with false if the job no longer belongs to this worker.
   */
  readonly renew: (run: Run, durationMs: number) => Promise<boolean>;
  readonly emitEvent: EmitEvent;
}

const CONFIRM_ATTEMPTS = 3;

export class JobRunner {
  readonly #parts: RunnerParts;
  readonly #clock: Clock;
  readonly #onLost = (run: Run, error: Error): void =>
    this.#parts.emitEvent("lost", () => ({ ...aboutJob(run), error }));

  constructor(parts: RunnerParts) {
    this.#parts = parts;
    this.#clock = parts.clock;
  }

  /** Runs a job that BullMQ passes to the processor. Resolves with the job's result, or rejects with its failure. */
  async run(job: Job, token: string, signal: AbortSignal | undefined): Promise<unknown> {
    const taken = this.#parts.arrivals.takenJobFor(job);
    if (taken.pin.kind === "dropped") return this.#endDropped(job, taken.pin);
    if (taken.pin.kind === "cancelled") throw new JobCancelledError(taken.jobId, taken.pin.cancellation);
    if (taken.outcome !== undefined) return this.#endMerged(job, taken, parseOutcome(taken.outcome));
    const { merging } = this.#parts;
    const run = this.#startRun(taken, job, token, signal);
    const unlink = signal === undefined || run.ownsSignal(signal) ? undefined : cancelOnAbort(run, signal);
    taken.run = run;
    let isDone = false;
    try {
      if (!this.#isReady(run, taken, signal)) await this.#makeReady(run, taken, job, signal);
      let result: unknown;
      try {
        result = await this.#process(run, job);
        if (merging === undefined) result = run.resultOf(result);
      } catch (error) {
        result = await this.#endRejected(run, job, error);
      }
      // A job that ran without its keys' lock may have overlapped another job, so it must not complete. If BullMQ's
      // lock is lost, BullMQ itself rejects the result.
      run.lock?.assertHeld();
      if (merging !== undefined) result = await merging.storeOutcomes(run, result);
      isDone = true;
      return result;
    } finally {
      this.#cleanUp(run, taken, isDone);
      unlink?.();
    }
  }

  /** Creates the run of a job, and starts to watch its lease. */
  #startRun(taken: TakenJob, job: Job, token: string, signal: AbortSignal | undefined): Run {
    const { arrivals, inFlight, interrupts, lockDurationMs, driftFactor, tracked, watchdog } = this.#parts;
    const { jobId, sent, place, parkedSinceMs } = taken;
    const { keys, resources } = arrivals.namesOf(job, taken);
    // Reuses BullMQ's controller, because a second one with a listener would cost each run about 7 µs.
    const controller = signal === undefined ? undefined : tracked.findController(jobId, signal);
    const jobFacts = { job, jobId, token, keys, resources, place, parkedSinceMs, controller };
    const run = new Run({ ...jobFacts, sent, lockDurationMs, driftFactor }, this.#clock, this.#onLost);
    watchdog.add(run);
    inFlight.begin();
    interrupts?.onRunStarted(jobId);
    return run;
  }

  /**
   * Reports whether the processor can be called immediately. In the normal case it can, because the lock of the key
   * has just arrived together with the job.
   */
  #isReady(run: Run, taken: TakenJob, signal: AbortSignal | undefined): boolean {
    const { locks, merging } = this.#parts;
    if (run.keys.length > 0 && !locks.claim(run, taken, signal)) return false;
    return merging === undefined && !this.#mustConfirm(run) && run.lock?.isHeld() !== false && run.lost === undefined;
  }

  /**
   * Completes the steps that are missing before the processor can be called. Rejects if the processor must not be
   * called.
   */
  async #makeReady(run: Run, taken: TakenJob, job: Job, signal: AbortSignal | undefined): Promise<void> {
    const { locks, merging } = this.#parts;
    if (run.keys.length > 0 && run.lock === undefined) await locks.acquire(run, job, { taken, signal });
    if (merging !== undefined && run.keys.length === 1) await merging.gather(run, signal);
    if (this.#mustConfirm(run)) await this.#confirm(run);
    // The lock can be lost only if the process has just been frozen. Nothing has run yet, so the job goes back
    // unchanged.
    if (run.lock?.isHeld() === false) await locks.giveBack(run, job);
    // A renewal was rejected in the meantime, so the job belongs to another worker.
    if (run.lost !== undefined) throw new DelayedError(run.lost.message);
  }

  /** Returns the result of a job whose processor has rejected, or throws the job's failure. */
  async #endRejected(run: Run, job: Job, error: unknown): Promise<NotRun> {
    const { backOffMs, stopped } = run;
    if (run.lost !== undefined) throw error;
    if (backOffMs !== undefined) return await this.#parts.locks.backOff(run, job, backOffMs);
    if (stopped === undefined || isMove(error)) throw error;
    if (stopped instanceof JobCancelledError) {
      throw error === stopped ? error : new JobCancelledError(run.jobId, stopped, error);
    }
    return this.#endInterrupted(run, stopped, error);
  }

  /** Cleans up after a run. `isDone` reports whether BullMQ is about to complete the job. */
  #cleanUp(run: Run, taken: TakenJob, isDone: boolean): void {
    const { inFlight, locks, lane, watchdog } = this.#parts;
    locks.release(run, isDone ? taken : undefined);
    if (!isDone) lane.forget(taken);
    inFlight.end();
    watchdog.delete(run);
  }

  #endDropped(job: Job, { as, key, by }: Pin & { readonly kind: "dropped" }): NotRun {
    const about = { jobId: String(job.id), keys: [key] };
    this.#parts.emitEvent("dropped", () => ({
      ...about,
      reason: as,
      by: by === "" ? undefined : by,
    }));
    if (as === "backlog") throw new KeyBacklogError(about.jobId, key);
    return { notRun: as, ...(by === "" ? {} : { by }) };
  }

  /** Ends a job that a newer job has interrupted, and that is not retried. */
  #endInterrupted(run: Run, reason: SupersededError, error: unknown): NotRun {
    const { by } = reason;
    const facts = error === reason ? {} : { error };
    this.#parts.emitEvent("dropped", () => ({ ...aboutJob(run), reason: "interrupted" as const, by, ...facts }));
    return { notRun: "interrupted", by, ...(error === reason ? {} : { error: messageOf(error) }) };
  }

  /** Ends a job that another job's call has handled. */
  #endMerged(job: Job, taken: TakenJob, settled: JobOutcome & { readonly by: string }): unknown {
    const about = { jobId: String(job.id), keys: this.#parts.arrivals.keysOf(job, taken) };
    const outcome: WorkerEvents["merged"]["outcome"] = "error" in settled ? "failed" : "completed";
    this.#parts.emitEvent("merged", () => ({ ...about, by: settled.by, outcome }));
    return valueOf(settled);
  }

  #process(run: Run, job: Job): Promise<unknown> {
    if (run.stopped !== undefined) return Promise.reject(run.stopped);
    if (this.#parts.isSandboxed) {
      const { keys, resources, fencingToken } = run;
      passLockToSandbox(job, { keys, resources, fencingToken });
    }
    return traces.run.isHeard ? this.#processTraced(run, job) : this.#call(run, job);
  }

  #processTraced(run: Run, job: Job): Promise<unknown> {
    const { fencingToken, parkedSinceMs } = run;
    const nowMs = this.#clock.wallMs();
    const parkedMs = Math.max(0, nowMs - (parkedSinceMs ?? nowMs));
    const facts = { queue: this.#parts.queue, ...aboutJob(run), fencingToken, parkedMs };
    return traces.run.run(facts, () => this.#call(run, job));
  }

  #call(run: Run, job: Job): Promise<unknown> {
    const { isSandboxed, locks } = this.#parts;
    const process = this.#parts.processor() as ExclusiveProcessorFunction<unknown, unknown, string>;
    const signal = (isSandboxed || takesSignal(process) ? run.signal : undefined) as AbortSignal;
    const { lock } = run;
    if (lock === undefined || !locks.isLockVisible) return process(job, run.token, signal, run);
    return locks.callWithin(run, lock, () => process(job, run.token, signal, run));
  }

  #mustConfirm(run: Run): boolean {
    const { lockDurationMs, driftFactor } = this.#parts;
    return mustConfirm({ sent: run.sent, lockDurationMs, driftFactor }, readClock(this.#clock));
  }

  /**
   * Renews BullMQ's lock before the processor is called, unless the fetch is recent. Otherwise a process that was
   * frozen after the fetch could start a job that another worker has taken since.
   *
   * If the job no longer belongs to this worker, it is left alone and no attempt is counted.
   */
  async #confirm(run: Run): Promise<void> {
    const { lockDurationMs, renew, emitEvent, watchdog } = this.#parts;
    for (let attempt = 1; this.#mustConfirm(run); attempt++) {
      const ageMs = run.ageMs();
      const sent = readClock(this.#clock);
      const isOurs = attempt <= CONFIRM_ATTEMPTS && (await renew(run, lockDurationMs));
      if (!isOurs) {
        run.markJobLockLost();
        emitEvent("abandoned", () => ({ ...aboutJob(run), ageMs }));
        throw new DelayedError(
          `job ${run.jobId} was taken ${Math.round(ageMs)} ms ago and no longer belongs to this worker`,
        );
      }
      run.restoreTrust();
      watchdog.restartLease(run, sent, lockDurationMs);
    }
  }
}

/** Cancels the run when a signal that BullMQ did not create for it aborts. A subclass may have passed such a signal. */
function cancelOnAbort(run: Run, signal: AbortSignal): () => void {
  const cancel = (): void => run.cancel(signal.reason);
  if (signal.aborted) cancel();
  signal.addEventListener("abort", cancel, { once: true });
  return () => signal.removeEventListener("abort", cancel);
}
