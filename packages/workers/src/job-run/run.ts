/**
 * One run of a job: from the moment its lane was taken to the moment its locks are released.
 *
 * A run aborts its processor's signal when the lock of its keys is lost, or BullMQ's lock of the job is over by its
 * clocks. It releases only what it acquired, and only after the processor has settled. A zombie that goes on keeps
 * others out for as long as its process lives.
 */
import type { Clock, Lock, LockLossReason } from "@x/redlock-core";
import {
  DAY_MS,
  elapsedMs,
  type Instant,
  integer,
  protocolOf,
  type Renewable,
  readClock,
} from "@x/redlock-core/protocol";
import { DelayedError, type Job } from "../bullmq/public.ts";
import { JobLockLostError, type SupersededError } from "../errors.ts";
import type { JobLock } from "./job-lock.ts";
import { Batch, valueOf } from "./rules/batch.ts";
import { type JobLease, leaseLeftMs } from "./rules/lease.ts";

const BACK_OFF = integer({ min: 1, max: DAY_MS });

interface RunFacts extends JobLease {
  readonly job: Job;
  readonly jobId: string;
  readonly token: string;
  readonly keys: readonly string[];
  readonly resources: readonly string[];
  /** Its place in line for the locks, if it waited for them before. */
  readonly place: number | undefined;
  /** When it was parked, in ms since the epoch, if it was. */
  readonly parkedSinceMs?: number | undefined;
  /** The controller that is to be the processor's, where BullMQ has made one already. */
  readonly controller: AbortController | undefined;
}

export class Run implements JobLock, Renewable {
  index = -1;
  readonly windowMs = 0;
  readonly jobId: string;
  readonly token: string;
  readonly keys: readonly string[];
  readonly resources: readonly string[];
  readonly place: number | undefined;
  readonly parkedSinceMs: number | undefined;
  /** When it was asked for, by the wall clock. */
  readonly askedMs: number;
  readonly #clock: Clock;
  readonly #onLost: (run: Run, error: Error) => void;
  readonly #made: AbortController | undefined;
  // From when somebody asks for the signal: most processors never do, and what is lost before a run begins may turn out not to be.
  #controller: AbortController | undefined;
  #cancelled: { readonly reason: unknown } | undefined;
  #lease: JobLease;
  #lock: Lock | undefined;
  #lockedMs = 0;
  #lost: Error | undefined;
  #backOffMs: number | undefined;
  #superseded: SupersededError | undefined;
  readonly #job: Job;
  #batch: Batch | undefined;

  constructor(facts: RunFacts, clock: Clock, onLost: (run: Run, error: Error) => void) {
    this.#job = facts.job;
    this.jobId = facts.jobId;
    this.token = facts.token;
    this.keys = facts.keys;
    this.resources = facts.resources;
    this.place = facts.place;
    this.parkedSinceMs = facts.parkedSinceMs;
    this.askedMs = facts.sent.wallMs;
    this.#clock = clock;
    this.#onLost = onLost;
    this.#lease = facts;
    this.#made = facts.controller;
  }

  /** Tells whether BullMQ has made this signal for the run. */
  ownsSignal(signal: AbortSignal): boolean {
    return this.#made?.signal === signal;
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = this.#made ?? new AbortController();
      if (this.#cancelled !== undefined) this.#controller.abort(this.#cancelled.reason);
      else if (this.#lost !== undefined) this.#controller.abort(this.#lost);
    }
    return this.#controller.signal;
  }

  get fencingToken(): number {
    return this.#lock?.fencingToken ?? 0;
  }

  /** Why the job is not ours any more, if it is not. */
  get lost(): Error | undefined {
    if (this.#lost === undefined && this.leaseLeftMs() <= 0) this.loseJobLock();
    return this.#lost;
  }

  /** When the command was sent that set or renewed BullMQ's lock. */
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

  /** Notices that BullMQ's lock has ended. BullMQ renews it itself. */
  tick(): void {
    this.remaining();
  }

  /** Takes the loss back: nothing has run yet, and Redis says that the job is ours, whatever our clocks made of it. */
  regained(): void {
    this.#lost = undefined;
  }

  /** Counts the lease anew from a command that was sent then, and that has renewed BullMQ's lock. */
  renewed(sent: Instant, lockDurationMs: number): void {
    this.#lease = { sent, lockDurationMs, driftFactor: this.#lease.driftFactor };
  }

  /**
   * Keeps the keys for so long at the least, once: renewals go on with the ordinary lease. Rejects as `lock.extend`.
   */
  async extendKeys(ttlMs: number, ordinaryTtlMs: number): Promise<void> {
    if (this.#lock === undefined || this.#lock.remaining() >= ttlMs) return;
    await this.#lock.extend(Math.max(ttlMs, ordinaryTtlMs));
    if (ttlMs > ordinaryTtlMs) await this.#lock.extend(ordinaryTtlMs);
  }

  /** Gives the run the lock of its job's keys. */
  holds(lock: Lock): void {
    this.#lock = lock;
    this.#lockedMs = this.#clock.monotonicMs();
  }

  /** The time for which it has had the lock of its keys. */
  get heldMs(): number {
    return this.#clock.monotonicMs() - this.#lockedMs;
  }

  /** The lock of its keys, if it has one. */
  get lock(): Lock | undefined {
    return this.#lock;
  }

  isHeldBy(lock: { readonly fencingToken: number; readonly resources: readonly string[] }): boolean {
    return this.#lock?.fencingToken === lock.fencingToken && this.resources[0] === lock.resources[0];
  }

  loseJobLock(): void {
    this.#lose(this.#jobLockLost());
  }

  /** Ends the trust in the run, if it has the locks of its keys: these are lost, or about to be released. */
  loseKeys(reason: LockLossReason): void {
    if (this.#lock !== undefined) this.#lose(protocolOf(this.#lock).lostError(reason));
  }

  /** Aborts the processor's signal for the user, which is not a loss. */
  cancel(reason: unknown): void {
    this.#cancelled ??= { reason };
    this.#controller?.abort(reason);
  }

  /** Asks the run to stop, because a newer job of its keys waits. */
  supersede(error: SupersededError): void {
    this.#superseded ??= error;
    this.cancel(error);
  }

  get superseded(): SupersededError | undefined {
    return this.#superseded;
  }

  remaining(): number {
    if (this.lost !== undefined) return 0;
    return this.#lock === undefined ? Number.POSITIVE_INFINITY : Math.min(this.#lock.remaining(), this.leaseLeftMs());
  }

  isHeld(): boolean {
    return this.remaining() > 0;
  }

  assertHeld(minRemaining = 0): void {
    if (this.lost !== undefined) throw this.lost;
    this.#lock?.assertHeld(minRemaining);
    if (this.#lock !== undefined && this.leaseLeftMs() < minRemaining) throw this.#jobLockLost(minRemaining);
  }

  backOff(ms: number): never {
    this.#backOffMs = BACK_OFF.of("ms", ms);
    throw new DelayedError(`job ${this.jobId} leaves its keys alone for ${ms} ms`);
  }

  get batch(): Batch {
    return (this.#batch ??= new Batch([this.#job]));
  }

  /** Adds these jobs to those that the call is for. */
  joinedBy(others: readonly Job[]): void {
    this.#batch = new Batch([this.#job, ...others]);
  }

  /** Returns the job's outcome once the processor has returned this. Throws the error that the batch set for it. */
  endOf(returned: unknown): unknown {
    return this.#batch === undefined ? returned : valueOf(this.#batch.endOf(this.#job, returned));
  }

  /** The time for which the keys are to be left alone, if the processor has asked for that. */
  get backOffMs(): number | undefined {
    return this.#backOffMs;
  }

  #lose(error: Error): void {
    if (this.#lost !== undefined) return;
    this.#lost = error;
    this.#controller?.abort(error);
    this.#onLost(this, error);
  }

  #jobLockLost(neededMs = 0): JobLockLostError {
    const { lockDurationMs } = this.#lease;
    const [sinceRenewalMs, leftMs] = [this.ageMs(), this.leaseLeftMs()];
    return new JobLockLostError(this.jobId, { sinceRenewalMs, lockDurationMs, leftMs, neededMs });
  }
}
