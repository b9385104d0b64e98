/**
 * One run of a keyed job: from the moment its lane was taken to the moment its locks are released.
 *
 * Ends its processor's signal, at the latest when the lease of BullMQ's job lock is over by this process's own clocks, or when the
 * lock of its keys is lost. It releases only what it acquired, and only after the processor has settled: a zombie that goes on
 * keeps others out for as long as its process lives.
 */
import type { Clock, Lock } from "@x/redlock-core";
import { JobLockLostError } from "./errors.ts";
import { type Instant, readClock } from "./instant.ts";
import type { JobLock } from "./job-lock.ts";
import { elapsedMs, leaseLeftMs } from "./lease.ts";

export interface RunFacts {
  readonly jobId: string;
  readonly token: string;
  readonly keys: readonly string[];
  readonly resources: readonly string[];
  readonly lockDurationMs: number;
  /** When the command was sent that set BullMQ's lock of the job. */
  readonly sent: Instant;
}

export class Run {
  readonly facts: RunFacts;
  readonly #clock: Clock;
  readonly #onLost: (run: Run, error: Error) => void;
  readonly #controller = new AbortController();
  #sent: Instant;
  #lockDurationMs: number;
  #lost: Error | undefined;

  constructor(facts: RunFacts, clock: Clock, onLost: (run: Run, error: Error) => void) {
    this.facts = facts;
    this.#clock = clock;
    this.#onLost = onLost;
    this.#sent = facts.sent;
    this.#lockDurationMs = facts.lockDurationMs;
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Why the job is not ours any more, if it is not. */
  get lost(): Error | undefined {
    if (this.#lost === undefined && this.leaseLeftMs() <= 0) this.loseJobLock();
    return this.#lost;
  }

  leaseLeftMs(): number {
    return leaseLeftMs(this.#sent, readClock(this.#clock), this.#lockDurationMs);
  }

  ageMs(): number {
    return elapsedMs(this.#sent, readClock(this.#clock));
  }

  /** BullMQ's lock was renewed by a command that was sent at that time. */
  renewed(sent: Instant, lockDurationMs: number): void {
    this.#sent = sent;
    this.#lockDurationMs = lockDurationMs;
  }

  loseJobLock(): void {
    this.lose(
      new JobLockLostError(this.facts.jobId, {
        sinceRenewalMs: this.ageMs(),
        lockDurationMs: this.#lockDurationMs,
      }),
    );
  }

  lose(error: Error): void {
    if (this.#lost !== undefined) return;
    this.#lost = error;
    this.#controller.abort(error);
    this.#onLost(this, error);
  }

  /** Cancelled by the user: not a loss. */
  cancel(reason: unknown): void {
    this.#controller.abort(reason);
  }

  lockView(lock: Lock): JobLock {
    const run = this;
    const remaining = (): number => (run.lost === undefined ? Math.min(lock.remaining(), run.leaseLeftMs()) : 0);
    return {
      keys: this.facts.keys,
      resources: this.facts.resources,
      fencingToken: lock.fencingToken,
      signal: this.signal,
      remaining,
      isHeld: () => remaining() > 0,
      assertHeld(minRemaining = 0): void {
        if (run.lost !== undefined) throw run.lost;
        lock.assertHeld(minRemaining);
        if (run.leaseLeftMs() < minRemaining) run.throwShort();
      },
    };
  }

  throwShort(): never {
    throw new JobLockLostError(this.facts.jobId, {
      sinceRenewalMs: this.ageMs(),
      lockDurationMs: this.#lockDurationMs,
    });
  }
}
