/**
 * Acquires the locks of a run's keys and releases them after the run. A lock either arrives together with the job, or
 * is acquired while the job waits in its slot or in `delayed`.
 *
 * A run starts only with the locks of all its keys. A job that lacks a lock returns to `delayed`, keeps its keys, and
 * runs before the keys' other jobs. Every lock that is acquired here is released here, regardless of the run's outcome.
 *
 * A release may arrive after the key's next job has been fetched. This job then waits in its slot.
 */
import { type Clock, type Lock, LockHeldError, type Redlock, RedlockError, type Reentrancy } from "@x/redlock-core";
import { type InFlight } from "@x/redlock-core/kit";
import { protocolOf } from "@x/redlock-core/protocol";
import { DelayedError, type Job } from "../bullmq/public.ts";
import { JobCancelledError, JobKeyError, NotALockError } from "../errors.ts";
import { aboutJob, type EmitEvent, type WorkerEvents } from "../events.ts";
import type { Run } from "../job-run/run.ts";
import type { Lane, MoveBack } from "../lane/lane.ts";
import type { TakenJob } from "../lane/taken-job.ts";
import { foreignVote, type KeyLocks } from "./key-locks.ts";
import { LockWaiters } from "./lock-waiters.ts";

interface RunLocksParts {
  readonly redlock: Redlock;
  readonly locks: KeyLocks;
  readonly lane: Lane;
  readonly inFlight: InFlight;
  readonly reentrancy: Reentrancy;
  readonly recheckInterval: number;
  readonly emitEvent: EmitEvent;
  readonly onError: (error: Error) => void;
}

type BullJob = Pick<Job, "moveToDelayed">;

/** A job returns after this time if its lock nodes did not answer, or if its lock was lost before the job started. */
const UNREACHABLE_RETRY_MS = 1_000;

export class RunLocks {
  readonly #parts: RunLocksParts;
  readonly #clock: Clock;
  readonly #waiters: LockWaiters;

  constructor(parts: RunLocksParts) {
    this.#parts = parts;
    this.#clock = protocolOf(parts.redlock).clock;
    this.#waiters = new LockWaiters({
      redlock: parts.redlock,
      wake: async (jobId) => (await parts.lane.operate("wake", jobId)) === 1,
      onError: parts.onError,
    });
  }

  /**
   * Passes the lock that was acquired together with the job to the run. Returns false if there is none, or if the run
   * is cancelled.
   */
  claim(run: Run, taken: TakenJob, signal: AbortSignal | undefined): boolean {
    const lock = this.#parts.locks.claim(taken);
    if (lock === undefined) return false;
    this.#waiters.delete(run.jobId);
    const isWanted = signal?.aborted !== true;
    if (isWanted) this.#startHolding(run, lock, 0);
    else this.#parts.inFlight.follow(lock.release());
    return isWanted;
  }

  /**
   * Acquires the locks of the job's keys. If a lock cannot be acquired, the job returns to `delayed` and keeps its
   * keys. If the job no longer belongs to this worker, the call rejects and leaves the job alone.
   */
  async acquire(
    run: Run,
    job: BullJob,
    { taken, signal }: { readonly taken: TakenJob; readonly signal: AbortSignal | undefined },
  ): Promise<void> {
    const startedMs = this.#clock.monotonicMs();
    this.#waiters.delete(run.jobId);
    try {
      const requested = await taken.requestedLock?.claim();
      const isOurs = requested?.isHeld() === true && signal?.aborted !== true;
      if (!isOurs) void requested?.release();
      const lock = isOurs ? requested : await this.#parts.locks.acquire(run, signal);
      this.#startHolding(run, lock, this.#clock.monotonicMs() - startedMs);
    } catch (error) {
      if (run.lost !== undefined) throw new DelayedError(run.lost.message);
      if (run.stopped instanceof JobCancelledError) throw run.stopped;
      // Cancelled by the user, or a key that cannot name a lock: the job itself fails.
      if (signal?.aborted === true) throw error instanceof Error ? error : new Error(`cancelled: ${String(error)}`);
      if (error instanceof RangeError) throw new JobKeyError(run.jobId, `cannot name a lock: ${error.message}`);
      if (!(error instanceof RedlockError)) throw error;
      const { recheckInterval, onError } = this.#parts;
      if (error instanceof LockHeldError) {
        const endless = error.votes.find(({ holderTtlMs }) => holderTtlMs === -1);
        const { resource = error.resource } = endless ?? {};
        if (endless !== undefined) onError(new NotALockError(run.jobId, [resource], endless));
        await this.#waitInDelayed(run, job, recheckInterval, error.resource);
      }
      const foreign = foreignVote(error);
      onError(foreign === undefined ? error : new NotALockError(run.jobId, run.resources, foreign));
      await this.#waitInDelayed(run, job, foreign === undefined ? UNREACHABLE_RETRY_MS : recheckInterval);
    }
  }

  /** Sends the job back unchanged, because its lock was lost before its processor started. */
  async giveBack(run: Run, job: BullJob): Promise<never> {
    return await this.#waitInDelayed(run, job, UNREACHABLE_RETRY_MS);
  }

  /** Sends the job back at its processor's request. No job of its keys starts for `ms`. */
  async backOff(run: Run, job: BullJob, ms: number): Promise<never> {
    const { jobId } = run;
    const { emitEvent } = this.#parts;
    const untilMs = await this.#moveToDelayed(run, job, ms, { backOffMs: ms });
    emitEvent("yielded", () => ({ ...aboutJob(run), reason: "backOff" as const, delayMs: ms }));
    const reason = `backed off by job ${jobId}`;
    for (const key of run.keys) emitEvent("keyPaused", () => ({ key, reason, jobId, untilMs }));
    throw new DelayedError(`job ${jobId} backs off from its keys for ${ms} ms`);
  }

  /** Whether calls of `using` within a processor know the run's lock. */
  get isLockVisible(): boolean {
    return this.#parts.reentrancy !== "wait";
  }

  /**
   * Calls a processor. If the processor calls `using` of the same `Redlock`, this call joins the run's lock or is
   * rejected. Without this, the call would wait for the lock of its own run.
   */
  callWithin<Result>(run: Run, lock: Lock, process: () => Promise<Result>): Promise<Result> {
    const { redlock, reentrancy } = this.#parts;
    const { fencingToken, jobId } = run;
    const visible = { holder: `job ${jobId}`, joins: reentrancy === "join", fencingToken };
    return protocolOf(redlock).inside(lock, visible, process);
  }

  /**
   * Releases the lock of a run, if it has one. The request is sent before BullMQ sends the job's end. After a success,
   * `taken` is passed, and the script that ends the job may release the lock.
   *
   * The caller does not wait for the release. The key's next job arrives one round trip later at the earliest. A job
   * that arrives before the release waits in its slot.
   */
  release(run: Run, taken?: TakenJob): void {
    const { lock } = run;
    if (lock === undefined) return;
    const { inFlight, locks, emitEvent } = this.#parts;
    const released = taken === undefined ? lock.release() : locks.releaseWithEnd(run, lock, taken);
    inFlight.begin();
    void released.then((confirmed) => {
      const { fencingToken, heldMs } = run;
      emitEvent("released", () => ({ ...aboutJob(run), fencingToken, heldMs, confirmed }));
      inFlight.end();
    });
  }

  /**
   * Stops bringing jobs back, and stops scripts from acquiring and releasing locks. Locks that are held are released
   * when their runs end.
   */
  close(): void {
    this.#waiters.close();
    this.#parts.locks.stopScriptLocks();
  }

  #startHolding(run: Run, lock: Lock, waitMs: number): void {
    run.setLock(lock);
    const { fencingToken } = run;
    this.#parts.emitEvent("locked", () => ({ ...aboutJob(run), fencingToken, waitMs }));
  }

  /**
   * Sends the job back to `delayed` for `delayMs`, or until the lock named `held` is free. BullMQ treats the
   * `DelayedError` as a sign that the job was moved, and fetches the next job.
   */
  async #waitInDelayed(run: Run, job: BullJob, delayMs: number, held?: string): Promise<never> {
    const { jobId, parkedSinceMs } = run;
    const { locks, emitEvent } = this.#parts;
    const place = locks.placeOf(run);
    await this.#moveToDelayed(run, job, delayMs, { place, parkedSinceMs });
    const reason: WorkerEvents["yielded"]["reason"] = held === undefined ? "unreachable" : "held";
    emitEvent("yielded", () => ({ ...aboutJob(run), reason, delayMs }));
    if (held !== undefined) {
      this.#waiters.add({ jobId, resource: held, place }, () => emitEvent("woken", () => aboutJob(run)));
    }
    throw new DelayedError(`job ${jobId} waits for its lock`);
  }

  /** Moves the job to `delayed` for `delayMs`. Returns when the job is due, in ms since the epoch. */
  async #moveToDelayed(run: Run, job: BullJob, delayMs: number, how: MoveBack): Promise<number> {
    const { jobId, token } = run;
    const dueMs = Math.floor(this.#clock.wallMs()) + delayMs;
    try {
      await this.#parts.lane.moveBack(run, how, async () => await job.moveToDelayed(dueMs, token));
      return dueMs;
    } catch (error) {
      if (error instanceof JobCancelledError) throw error;
      // The job no longer belongs to this worker, or Redis cannot be reached. The job comes back when BullMQ finds it
      // stalled.
      this.#parts.onError(error as Error);
      throw new DelayedError(`job ${jobId} could not be moved to delayed`);
    }
  }
}
