/**
 * The locks of a run's keys are taken with the job, or acquired in its slot, or waited for in `delayed`. They are
 * released when the run has ended.
 *
 * A run begins with the lock of all its keys, or its job goes back to `delayed` with its keys kept, to be run first.
 * What is taken here is released here, whatever becomes of the run.
 *
 * It is not guaranteed that a release has arrived when the next job of the key comes; that one waits in its slot.
 */
import { type Clock, type Lock, LockHeldError, type Redlock, RedlockError, type Reentrancy } from "@x/redlock-core";
import { type InFlight, protocolOf } from "@x/redlock-core/protocol";
import { DelayedError, type Job } from "../bullmq/public.ts";
import { JobKeyError, NotALockError } from "../errors.ts";
import { aboutJob, type Tell, type WorkerEvents } from "../events.ts";
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
  readonly tell: Tell;
  readonly onError: (error: Error) => void;
}

type BullJob = Pick<Job, "moveToDelayed">;

/** A job comes back after this time if nobody who has the lock could be asked. */
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

  /** Gives the run the lock that was taken with its job. Returns false if none was. */
  claim(run: Run, taken: TakenJob, signal: AbortSignal | undefined): boolean {
    const lock = this.#parts.locks.claim(taken);
    if (lock === undefined) return false;
    this.#waiters.delete(run.jobId);
    const isWanted = signal?.aborted !== true;
    if (isWanted) this.#holds(run, lock, 0);
    else this.#parts.inFlight.follow(lock.release());
    return isWanted;
  }

  /**
   * Acquires the locks of the job's keys. Otherwise it sends the job back to `delayed` with its keys kept, or leaves it
   * to whoever has it now.
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
      this.#holds(run, lock, this.#clock.monotonicMs() - startedMs);
    } catch (error) {
      if (run.lost !== undefined) throw new DelayedError(run.lost.message);
      // Cancelled by the user, or names that cannot be locked: the job's own failure.
      if (signal?.aborted === true) throw error instanceof Error ? error : new Error(`cancelled: ${String(error)}`);
      if (error instanceof RangeError) throw new JobKeyError(run.jobId, `cannot name a lock: ${error.message}`);
      if (!(error instanceof RedlockError)) throw error;
      const { recheckInterval, onError } = this.#parts;
      if (error instanceof LockHeldError) {
        const endless = error.votes.find(({ holderTtlMs }) => holderTtlMs === -1);
        const { resource = error.resource } = endless ?? {};
        if (endless !== undefined) onError(new NotALockError(run.jobId, [resource], endless));
        await this.#yield(run, job, recheckInterval, error.resource);
      }
      const foreign = foreignVote(error);
      onError(foreign === undefined ? error : new NotALockError(run.jobId, run.resources, foreign));
      await this.#yield(run, job, foreign === undefined ? UNREACHABLE_RETRY_MS : recheckInterval);
    }
  }

  /** Sends the job back as it came, because its lock is gone before anything has run. */
  async giveBack(run: Run, job: BullJob): Promise<never> {
    return await this.#yield(run, job, UNREACHABLE_RETRY_MS);
  }

  /** Sends the job back as its processor has asked for: nothing of its keys is to start for `ms`. */
  async backOff(run: Run, job: BullJob, ms: number): Promise<never> {
    const { jobId } = run;
    const { tell } = this.#parts;
    const untilMs = await this.#leave(run, job, ms, { backOffMs: ms });
    tell("yielded", () => ({ ...aboutJob(run), reason: "backOff" as const, delayMs: ms }));
    const reason = `backed off by job ${jobId}`;
    for (const key of run.keys) tell("keyPaused", () => ({ key, reason, untilMs }));
    throw new DelayedError(`job ${jobId} leaves its keys alone for ${ms} ms`);
  }

  /** Whether processors are called `inside` the locks of their runs. */
  get isLent(): boolean {
    return this.#parts.reentrancy !== "wait";
  }

  /**
   * Calls a processor. `using` in there, of this very `Redlock`, knows of the run's lock. It joins that or is refused,
   * and does not wait for itself.
   */
  inside<Result>(run: Run, lock: Lock, process: () => Promise<Result>): Promise<Result> {
    const { redlock, reentrancy } = this.#parts;
    const { fencingToken, jobId } = run;
    const lent = { holder: `job ${jobId}`, joins: reentrancy === "join", fencingToken };
    return protocolOf(redlock).inside(lock, lent, process);
  }

  /**
   * Releases the lock of a run, if it has one. The request is sent before BullMQ is told of an end. After a run that
   * has succeeded, as what was `taken`, it may go with that.
   *
   * Nobody waits for the release. The next job of the key comes a round trip later at the earliest, and waits in its
   * slot if it is there first.
   */
  release(run: Run, taken?: TakenJob): void {
    const { lock } = run;
    if (lock === undefined) return;
    const { inFlight, locks, tell } = this.#parts;
    const released = taken === undefined ? lock.release() : locks.releaseWithEnd(run, lock, taken);
    inFlight.begin();
    void released.then((confirmed) => {
      const { fencingToken, heldMs } = run;
      tell("released", () => ({ ...aboutJob(run), fencingToken, heldMs, confirmed }));
      inFlight.end();
    });
  }

  /** Brings no job back any more, and lets no script take a lock. What is held is released with its run. */
  close(): void {
    this.#waiters.close();
    this.#parts.locks.stop();
  }

  #holds(run: Run, lock: Lock, waitMs: number): void {
    run.setLock(lock);
    const { fencingToken } = run;
    this.#parts.tell("locked", () => ({ ...aboutJob(run), fencingToken, waitMs }));
  }

  /**
   * Sends the job back to `delayed` for `delayMs`, or until the lock that is `held` is free. BullMQ takes the
   * DelayedError as a sign that the job was moved, and fetches the next one.
   */
  async #yield(run: Run, job: BullJob, delayMs: number, held?: string): Promise<never> {
    const { jobId, parkedSinceMs } = run;
    const { locks, tell } = this.#parts;
    const place = locks.placeOf(run);
    await this.#leave(run, job, delayMs, { place, parkedSinceMs });
    const reason: WorkerEvents["yielded"]["reason"] = held === undefined ? "unreachable" : "held";
    tell("yielded", () => ({ ...aboutJob(run), reason, delayMs }));
    if (held !== undefined) {
      this.#waiters.add({ jobId, resource: held, place }, () => tell("woken", () => aboutJob(run)));
    }
    throw new DelayedError(`job ${jobId} waits for its lock`);
  }

  /** Moves the job to `delayed` for so long, and returns until when. */
  async #leave(run: Run, job: BullJob, delayMs: number, how: MoveBack): Promise<number> {
    const { jobId, token } = run;
    const dueMs = Math.floor(this.#clock.wallMs()) + delayMs;
    try {
      await this.#parts.lane.moveBack(run, how, async () => await job.moveToDelayed(dueMs, token));
      return dueMs;
    } catch (error) {
      // Not ours any more, or Redis is gone: the job comes back as a stalled one.
      this.#parts.onError(error as Error);
      throw new DelayedError(`job ${jobId} could not be moved to delayed`);
    }
  }
}
