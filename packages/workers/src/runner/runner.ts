/**
 * A run of a job begins with what its fetch told, and ends with its locks passed on or released. BullMQ then records
 * how it ended.
 */
import type { Clock } from "@x/redlock-core";
import { type InFlight, messageOf, readClock } from "@x/redlock-core/protocol";
import type { TrackedJobs } from "../bullmq/bullmq.ts";
import { passLockToSandbox } from "../bullmq/job.ts";
import { takesSignal } from "../bullmq/processor.ts";
import { DelayedError, type Job } from "../bullmq/public.ts";
import { isMove } from "../bullmq/rules/move.ts";
import { KeyBacklogError, type SupersededError } from "../errors.ts";
import { aboutJob, type Tell, traces, type WorkerEvents } from "../events.ts";
import type { JobLock } from "../job-run/job-lock.ts";
import { type Outcome, parseOutcome, valueOf } from "../job-run/rules/batch.ts";
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

/** BullMQ's processor with a fourth argument. A processor with fewer parameters runs as it is. */
export type ExclusiveProcessorFunction<Data, Result, Name extends string> = (
  job: Job<Data, Result, Name>,
  token: string | undefined,
  signal: AbortSignal,
  lock: JobLock<Data, Result, Name>,
) => Promise<Result>;

/** What a job returns that was completed without a run, or not to its end, because of the option `whenBusy`. */
export interface NotRun {
  /** It did not run, because a newer one waits or its key was busy; or its run was interrupted by a newer one. */
  readonly notRun: "superseded" | "busy" | "interrupted";
  /** The job that waits instead, or that has the key. */
  readonly by?: string;
  /** The message of what an interrupted processor rejected with, if that was not its signal's reason. */
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
  /** The merging of jobs, with `whenBusy: "merge"`. */
  readonly merging: Merging | undefined;
  readonly lockDurationMs: number;
  /** That of the Redlock of the keys' locks. */
  readonly driftFactor: number;
  readonly isSandboxed: boolean;
  readonly processor: () => unknown;
  /** Renews BullMQ's lock of a job for so many ms. Resolves false if the job is not ours any more. */
  readonly renew: (run: Run, durationMs: number) => Promise<boolean>;
  readonly tell: Tell;
}

const CONFIRM_ATTEMPTS = 3;

export class Runner {
  readonly #parts: RunnerParts;
  readonly #clock: Clock;
  readonly #onLost = (run: Run, error: Error): void => this.#parts.tell("lost", () => ({ ...aboutJob(run), error }));

  constructor(parts: RunnerParts) {
    this.#parts = parts;
    this.#clock = parts.clock;
  }

  /** Runs a job that BullMQ hands to its processor. Resolves with its result, and rejects with its failure. */
  async run(job: Job, token: string, signal: AbortSignal | undefined): Promise<unknown> {
    const taken = this.#parts.arrivals.of(job);
    if (taken.pin.kind === "dropped") return this.#drop(job, taken.pin);
    if (taken.outcome !== undefined) return this.#endMerged(job, taken, parseOutcome(taken.outcome));
    const { merging } = this.#parts;
    const run = this.#begin(taken, job, token, signal);
    const unlink = signal === undefined || run.ownsSignal(signal) ? undefined : follow(run, signal);
    taken.run = run;
    let isDone = false;
    try {
      if (!this.#isReady(run, taken, signal)) await this.#makeReady(run, taken, job, signal);
      let result: unknown;
      try {
        result = await this.#process(run, job);
        if (merging === undefined) result = run.endOf(result);
      } catch (error) {
        result = await this.#failed(run, job, error);
      }
      // What ran without its keys' lock may have overlapped another job: it must not count as done. If BullMQ's lock is
      // lost, BullMQ itself refuses the result.
      run.lock?.assertHeld();
      if (merging !== undefined) result = await merging.settle(run, result);
      isDone = true;
      return result;
    } finally {
      this.#end(run, taken, isDone);
      unlink?.();
    }
  }

  /** Makes the run of a job, and looks after its lease from now on. */
  #begin(taken: TakenJob, job: Job, token: string, signal: AbortSignal | undefined): Run {
    const { arrivals, inFlight, interrupts, lockDurationMs, driftFactor, tracked, watchdog } = this.#parts;
    const { jobId, sent, place, parkedSinceMs } = taken;
    const { keys, resources } = arrivals.namesOf(job, taken);
    // A second controller, and a listener, would cost each run of a job some 7 µs.
    const controller = signal === undefined ? undefined : tracked.findController(jobId, signal);
    const ofJob = { job, jobId, token, keys, resources, place, parkedSinceMs, controller };
    const run = new Run({ ...ofJob, sent, lockDurationMs, driftFactor }, this.#clock, this.#onLost);
    watchdog.add(run);
    inFlight.begin();
    interrupts?.begins(jobId);
    return run;
  }

  /** Tells whether the processor may be called at once: the lock of the job's key has come with it, just now. */
  #isReady(run: Run, taken: TakenJob, signal: AbortSignal | undefined): boolean {
    const { locks, merging } = this.#parts;
    if (run.keys.length > 0 && !locks.claim(run, taken, signal)) return false;
    return merging === undefined && !this.#mustConfirm(run) && run.lock?.isHeld() !== false && run.lost === undefined;
  }

  /** Does what is left to do before the processor is called. Rejects if it is not to be called. */
  async #makeReady(run: Run, taken: TakenJob, job: Job, signal: AbortSignal | undefined): Promise<void> {
    const { locks, merging } = this.#parts;
    if (run.keys.length > 0 && run.lock === undefined) await locks.acquire(run, job, { taken, signal });
    if (merging !== undefined && run.keys.length === 1) await merging.gather(run, signal);
    if (this.#mustConfirm(run)) await this.#confirm(run);
    // Only if the process was frozen just now: nothing has run yet, so the job goes back as it came.
    if (run.lock?.isHeld() === false) await locks.giveBack(run, job);
    // A renewal was refused meanwhile: whoever has the job now runs it.
    if (run.lost !== undefined) throw new DelayedError(run.lost.message);
  }

  /** Returns what a job ends with whose processor has rejected, or throws what it fails with. */
  async #failed(run: Run, job: Job, error: unknown): Promise<NotRun> {
    const { backOffMs, superseded } = run;
    if (run.lost !== undefined) throw error;
    if (backOffMs !== undefined) return await this.#parts.locks.backOff(run, job, backOffMs);
    if (superseded === undefined || isMove(error)) throw error;
    return this.#interrupted(run, superseded, error);
  }

  /** Does what is left after a run. `isDone` tells whether BullMQ is about to be told that its job has completed. */
  #end(run: Run, taken: TakenJob, isDone: boolean): void {
    const { inFlight, locks, lane, watchdog } = this.#parts;
    locks.release(run, isDone ? taken : undefined);
    if (!isDone) lane.forget(taken);
    inFlight.end();
    watchdog.delete(run);
  }

  /** Ends a job that does not run. */
  #drop(job: Job, { as, key, by }: Pin & { readonly kind: "dropped" }): NotRun {
    const about = { jobId: String(job.id), keys: [key] };
    this.#parts.tell("dropped", () => ({
      ...about,
      reason: as,
      by: by === "" ? undefined : by,
    }));
    if (as === "backlog") throw new KeyBacklogError(about.jobId, key);
    return { notRun: as, ...(by === "" ? {} : { by }) };
  }

  /** Ends a job that ran, and is not to run again. */
  #interrupted(run: Run, reason: SupersededError, error: unknown): NotRun {
    const { by } = reason;
    const facts = error === reason ? {} : { error };
    this.#parts.tell("dropped", () => ({ ...aboutJob(run), reason: "interrupted" as const, by, ...facts }));
    return { notRun: "interrupted", by, ...(error === reason ? {} : { error: messageOf(error) }) };
  }

  /** Ends a job that was in the batch of another one. */
  #endMerged(job: Job, taken: TakenJob, settled: Outcome & { readonly by: string }): unknown {
    const about = { jobId: String(job.id), keys: this.#parts.arrivals.keysOf(job, taken) };
    const outcome: WorkerEvents["merged"]["outcome"] = "error" in settled ? "failed" : "completed";
    this.#parts.tell("merged", () => ({ ...about, by: settled.by, outcome }));
    return valueOf(settled);
  }

  #process(run: Run, job: Job): Promise<unknown> {
    if (run.superseded !== undefined) return Promise.reject(run.superseded);
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
    if (lock === undefined || !locks.isLent) return process(job, run.token, signal, run);
    return locks.inside(run, lock, () => process(job, run.token, signal, run));
  }

  #mustConfirm(run: Run): boolean {
    const { lockDurationMs, driftFactor } = this.#parts;
    return mustConfirm({ sent: run.sent, lockDurationMs, driftFactor }, readClock(this.#clock));
  }

  /**
   * Renews BullMQ's lock first if the fetch is not recent. A process that was frozen after it would start a job that
   * another worker has taken since.
   *
   * A job that is not ours any more is left alone, which costs no attempt.
   */
  async #confirm(run: Run): Promise<void> {
    const { lockDurationMs, renew, tell, watchdog } = this.#parts;
    for (let attempt = 1; this.#mustConfirm(run); attempt++) {
      const ageMs = run.ageMs();
      const sent = readClock(this.#clock);
      const isOurs = attempt <= CONFIRM_ATTEMPTS && (await renew(run, lockDurationMs));
      if (!isOurs) {
        run.loseJobLock();
        tell("stale", () => ({ ...aboutJob(run), ageMs }));
        throw new DelayedError(`job ${run.jobId} was taken ${Math.round(ageMs)} ms ago and is not ours any more`);
      }
      run.regained();
      watchdog.renewed(run, sent, lockDurationMs);
    }
  }
}

/** Cancels the run when a signal aborts that is not its own: a subclass has called with that. */
function follow(run: Run, signal: AbortSignal): () => void {
  const cancel = (): void => run.cancel(signal.reason);
  if (signal.aborted) cancel();
  signal.addEventListener("abort", cancel, { once: true });
  return () => signal.removeEventListener("abort", cancel);
}
