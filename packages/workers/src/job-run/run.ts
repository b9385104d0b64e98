/**
 * A run of a job begins when the lane hands the job out, and ends when the job's locks are released.
 *
 * A run aborts its processor's signal when the keys' lock is lost, or when BullMQ's lock of the job has expired by this
 * process's clocks. A run releases only the locks that it acquired, and only after its processor has settled. A
 * processor that continues after a loss therefore keeps the keys' lock, if no other process has acquired it, as long as
 * its process lives.
 */
import type { Clock, Lock, LockLossReason } from "@x/redlock-core";
import { DAY_MS, type Instant, integer, readClock } from "@x/redlock-core/kit";
import { elapsedMs, protocolOf, type Renewable } from "@x/redlock-core/protocol";
import { DelayedError, type Job } from "../bullmq/public.ts";
import { JobCancelledError, JobLockLostError, type SupersededError } from "../errors.ts";
import type { JobLock } from "./job-lock.ts";
import { Batch, valueOf } from "./rules/batch.ts";
import { type JobLease, leaseLeftMs } from "./rules/lease.ts";
import { RunSignal } from "./run-signal.ts";

const BACK_OFF = integer({ min: 1, max: DAY_MS });

interface RunFacts extends JobLease {
  readonly job: Job;
  readonly jobId: string;
  readonly token: string;
  readonly keys: readonly string[];
  readonly resources: readonly string[];
  /** The job's place in line for its locks, if it has waited for them before. */
  readonly place: number | undefined;
  /** When the job was parked, in ms since the epoch. Undefined if it was not parked. */
  readonly parkedSinceMs?: number | undefined;
  /** The controller of the signal that BullMQ has created for the processor, if any. */
  readonly controller: AbortController | undefined;
}

export class Run implements JobLock, Renewable {
  index = -1;
  readonly windowMs = 0;
  readonly keys: readonly string[];
  readonly resources: readonly string[];
  readonly #facts: RunFacts;
  readonly #clock: Clock;
  readonly #onLost: (run: Run, error: Error) => void;
  readonly #signal: RunSignal;
  #lease: JobLease;
  #held: { readonly lock: Lock; readonly sinceMs: number } | undefined;
  #lost: Error | undefined;
  #backOffMs: number | undefined;
  #stopped: JobCancelledError | SupersededError | undefined;
  #batch: Batch | undefined;

  constructor(facts: RunFacts, clock: Clock, onLost: (run: Run, error: Error) => void) {
    this.keys = facts.keys;
    this.resources = facts.resources;
    this.#facts = facts;
    this.#clock = clock;
    this.#onLost = onLost;
    this.#signal = new RunSignal(facts.controller);
    this.#lease = facts;
  }

  get jobId(): string {
    return this.#facts.jobId;
  }

  get token(): string {
    return this.#facts.token;
  }

  get place(): number | undefined {
    return this.#facts.place;
  }

  get parkedSinceMs(): number | undefined {
    return this.#facts.parkedSinceMs;
  }

  /** When the job was fetched, by the wall clock. */
  get askedMs(): number {
    return this.#facts.sent.wallMs;
  }

  /** Reports whether BullMQ has created this signal for the run. */
  ownsSignal(signal: AbortSignal): boolean {
    return this.#signal.isOfBull(signal);
  }

  get signal(): AbortSignal {
    return this.#signal.read(this.#lost);
  }

  get fencingToken(): number {
    return this.lock?.fencingToken ?? 0;
  }

  /** The error if the job no longer belongs to this worker, or its locks are lost. */
  get lost(): Error | undefined {
    if (this.#lost === undefined && this.leaseLeftMs() <= 0) this.markJobLockLost();
    return this.#lost;
  }

  /** When the command that set or renewed BullMQ's lock was sent. */
  get sent(): Instant {
    return this.#lease.sent;
  }

  leaseLeftMs(): number {
    return leaseLeftMs(this.#lease, readClock(this.#clock));
  }

  ageMs(): number {
    return elapsedMs(this.sent, readClock(this.#clock));
  }

  nextDueMs(): number {
    return this.#lost === undefined ? this.#clock.monotonicMs() + this.leaseLeftMs() : Number.POSITIVE_INFINITY;
  }

  /** Checks whether BullMQ's lock has expired. Renewing it is up to BullMQ. */
  tick(): void {
    this.remaining();
  }

  /**
   * Revokes a loss. Called before the processor has started, after Redis has confirmed that the job belongs to this
   * worker.
   */
  restoreTrust(): void {
    this.#lost = undefined;
  }

  /** Restarts the lease after a command, sent at `sent`, that has renewed BullMQ's lock. */
  restartLease(sent: Instant, lockDurationMs: number): void {
    this.#lease = { sent, lockDurationMs, driftFactor: this.#lease.driftFactor };
  }

  /**
   * Extends the keys' lock once so that it lasts at least `ttlMs`. Later renewals use the ordinary lease again. Rejects
   * like `lock.extend`.
   */
  async extendKeys(ttlMs: number, ordinaryTtlMs: number): Promise<void> {
    if (this.lock === undefined || this.lock.remaining() >= ttlMs) return;
    await this.lock.extend(Math.max(ttlMs, ordinaryTtlMs));
    if (ttlMs > ordinaryTtlMs) await this.lock.extend(ordinaryTtlMs);
  }

  setLock(lock: Lock): void {
    this.#held = { lock, sinceMs: this.#clock.monotonicMs() };
  }

  /** How many milliseconds ago the run received the lock of its keys. */
  get heldMs(): number {
    return this.#clock.monotonicMs() - (this.#held?.sinceMs ?? 0);
  }

  get lock(): Lock | undefined {
    return this.#held?.lock;
  }

  isHeldBy(lock: { readonly fencingToken: number; readonly resources: readonly string[] }): boolean {
    return this.lock?.fencingToken === lock.fencingToken && this.resources[0] === lock.resources[0];
  }

  markJobLockLost(): void {
    this.#lose(this.#jobLockLost());
  }

  /** Marks the locks of the keys as lost, or as about to be released. Does nothing if the run has no such locks. */
  markKeysLost(reason: LockLossReason): void {
    if (this.lock !== undefined) this.#lose(protocolOf(this.lock).lostError(reason));
  }

  /** Aborts the processor's signal on behalf of the user. The run is not lost. */
  cancel(reason: unknown): void {
    this.#signal.cancel(reason);
  }

  /**
   * Asks the processor to stop because the job was cancelled, or because a newer job with one of its keys is waiting.
   * If both apply, the job ends as cancelled.
   */
  stop(error: JobCancelledError | SupersededError): void {
    if (!(this.#stopped instanceof JobCancelledError)) this.#stopped = error;
    this.cancel(error);
  }

  /** Why the processor was asked to stop. */
  get stopped(): JobCancelledError | SupersededError | undefined {
    return this.#stopped;
  }

  remaining(): number {
    if (this.lost !== undefined) return 0;
    return this.lock === undefined ? Number.POSITIVE_INFINITY : Math.min(this.lock.remaining(), this.leaseLeftMs());
  }

  isHeld(): boolean {
    return this.remaining() > 0;
  }

  assertHeld(minRemaining = 0): void {
    if (this.lost !== undefined) throw this.lost;
    this.lock?.assertHeld(minRemaining);
    if (this.lock !== undefined && this.leaseLeftMs() < minRemaining) throw this.#jobLockLost(minRemaining);
  }

  backOff(ms: number): never {
    this.#backOffMs = BACK_OFF.of("ms", ms);
    throw new DelayedError(`job ${this.jobId} backs off from its keys for ${ms} ms`);
  }

  get batch(): Batch {
    return (this.#batch ??= new Batch([this.#facts.job]));
  }

  addToBatch(others: readonly Job[]): void {
    this.#batch = new Batch([this.#facts.job, ...others]);
  }

  /**
   * Returns the job's result, given the value that the processor has returned. Throws the error that the batch set for
   * the job, if any.
   */
  resultOf(returned: unknown): unknown {
    return this.#batch === undefined ? returned : valueOf(this.#batch.outcomeOf(this.#facts.job, returned));
  }

  /** How long no job of the keys may start, if the processor has called `backOff`. */
  get backOffMs(): number | undefined {
    return this.#backOffMs;
  }

  #lose(error: Error): void {
    if (this.#lost !== undefined) return;
    this.#lost = error;
    this.#signal.lose(error);
    this.#onLost(this, error);
  }

  #jobLockLost(neededMs = 0): JobLockLostError {
    const { lockDurationMs } = this.#lease;
    const [sinceRenewalMs, leftMs] = [this.ageMs(), this.leaseLeftMs()];
    return new JobLockLostError(this.jobId, { sinceRenewalMs, lockDurationMs, leftMs, neededMs });
  }
}
