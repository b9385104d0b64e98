/**
 * An early run begins when the job before it of the same key has succeeded. The end of that one is then on its way to
 * Redis. It is run under the lock that the one before has had, with a fencing token of its own.
 *
 * It counts only if the answer to that end brings its job, with the lock still ours. Otherwise its signal aborts and
 * what it returns is dropped; its job is run again, at its turn. The lock is kept until its processor has settled, so
 * until then nobody else runs on the key.
 */
import type { Clock, Lock } from "@x/redlock-core";
import { type Deferred, deferred, type Instant } from "@x/redlock-core/protocol";
import { asHandedOut } from "../bullmq/job.ts";
import type { Job } from "../bullmq/public.ts";
import type { Run } from "./run.ts";

interface EarlyRunParts {
  readonly job: Job;
  readonly run: Run;
  /** The lock of the key: that of the run before, until this one begins. */
  readonly lock: Lock;
  readonly fencingToken: number;
  readonly clock: Clock;
  readonly process: () => Promise<unknown>;
  /** It begins: the lock is this run's. */
  readonly onBegin: () => void;
  /** It does not begin: the lock is still that of the run before. */
  readonly onDeclined: () => void;
  /** The job was handed out to this worker by a command that was sent then. */
  readonly onConfirmed: (sent: Instant) => void;
  /** It does not count, and its processor has settled. */
  readonly onDropped: () => void;
}

/** BullMQ hands a fetched job to its processor at once, but a worker that is being closed may not. */
const UNCLAIMED_MS = 2_000;

/** What the lane and the locks of keys know of an early run. */
export type EarlyStart = Pick<EarlyRun, keyof EarlyRun>;

export class EarlyRun {
  readonly #parts: EarlyRunParts;
  readonly #answer: Deferred<Error | undefined> = deferred();
  #result: Promise<unknown> = Promise.resolve();
  #state: "offered" | "declined" | "begun" | "confirmed" | "claimed" | "refused" = "offered";
  #cancelTimer: () => void = () => {};

  constructor(parts: EarlyRunParts) {
    this.#parts = parts;
  }

  get jobId(): string {
    return this.#parts.run.jobId;
  }

  /** The token of the key's lock, which the job before has had. */
  get lockToken(): string {
    return this.#parts.lock.token;
  }

  get fencingToken(): number {
    return this.#parts.fencingToken;
  }

  /** Resolves when the job was handed out to this run; with the reason if it was not. Never rejects. */
  get answered(): Promise<Error | undefined> {
    return this.#answer.promise;
  }

  /** Begins the run, when the end of the job before is on its way. Never throws. */
  begin(): void {
    this.#state = "begun";
    const { onBegin, process } = this.#parts;
    onBegin();
    this.#result = (async () => await process())();
    // Whoever claims it is told.
    this.#result.catch(() => {});
  }

  /** Gives the run up before it begins: the job before has not completed, or nothing is to follow it. */
  decline(): void {
    if (this.#state !== "offered") return;
    this.#state = "declined";
    this.#parts.onDeclined();
  }

  /** Counts the run, whose job was handed out by a command sent then. Returns false if it does not count any more. */
  confirm(sent: Instant): boolean {
    const { run, lock, clock, onConfirmed } = this.#parts;
    if (this.#state !== "begun" || run.lost !== undefined || !lock.isHeld()) return false;
    this.#state = "confirmed";
    onConfirmed(sent);
    this.#answer.resolve(undefined);
    this.#cancelTimer = clock.schedule(UNCLAIMED_MS, () => this.refuse());
    return true;
  }

  /** Drops the run, which has begun without its job being handed out. */
  refuse(): void {
    if (this.#state !== "begun" && this.#state !== "confirmed") return;
    this.#state = "refused";
    this.#cancelTimer();
    const { run, onDropped } = this.#parts;
    run.loseJobLock();
    this.#answer.resolve(run.lost);
    void this.#result.then(onDropped, onDropped);
  }

  /** Returns the run to whoever is to end its job, once. */
  claim(): { readonly run: Run; readonly result: Promise<unknown> } | undefined {
    if (this.#state !== "confirmed") return undefined;
    this.#state = "claimed";
    this.#cancelTimer();
    return { run: this.#parts.run, result: this.#result };
  }

  /** Returns the job that is run, with what its fetch told. */
  jobFrom(fresh: Job): Job {
    return asHandedOut(this.#parts.job, fresh);
  }
}
