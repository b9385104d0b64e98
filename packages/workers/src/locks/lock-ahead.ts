/**
 * The lock of a key's next job is asked for in the turn of the event loop in which the one before releases it. BullMQ
 * is told in the same one that this job has ended. If the answer brings the next job of the key, its lock is there
 * already. Two jobs of a key are then one round trip of BullMQ's apart.
 *
 * It is an ordinary grant with a fencing token of its own, for which everybody who waited goes first. A lock that no
 * job claims is released. With locks elsewhere, a hot key has 10 % more jobs/s by it.
 */
import type { Clock, Lock } from "@x/redlock-core";
import { type Deferred, deferred } from "@x/redlock-core/protocol";
import type { AskedAhead, TakenJob } from "../lane/taken-job.ts";

/**
 * A lock that nobody has claimed is released after this. BullMQ hands a fetched job to its processor at once, but a
 * worker that is being closed may not.
 */
const UNCLAIMED_MS = 2_000;

/** The job that came with the end of the one before. */
type NextJob = Pick<TakenJob, "lockName" | "ahead">;

/** This is what the end of a job is to do (see `Ending`): it releases no lock, and gives this one to the next job. */
export class LockAhead implements AskedAhead {
  readonly token = "";
  readonly #lockName: string;
  readonly #lock: Promise<Lock | null>;
  readonly #cancelTimer: () => void;
  readonly #settled: Deferred<undefined> = deferred();
  #isDone = false;

  /** Takes a `lock` that never rejects, and is null if somebody else has it. */
  constructor(lockName: string, lock: Promise<Lock | null>, clock: Clock) {
    this.#lockName = lockName;
    this.#lock = lock;
    this.#cancelTimer = clock.schedule(UNCLAIMED_MS, () => void this.drop());
  }

  /** Resolves when the lock is claimed, or released. */
  get settled(): Promise<undefined> {
    return this.#settled.promise;
  }

  get answer(): this {
    return this;
  }

  /** Keeps the lock for the job that came with the answer to the end, if that is of the same key; or drops it. */
  settle(_isReleased: boolean, next?: NextJob): void {
    if (next?.lockName === this.#lockName) next.ahead = this;
    else void this.drop();
  }

  /** Returns the lock to the one who asks first. */
  async claim(): Promise<Lock | null> {
    if (this.#isDone) return null;
    this.#end();
    this.#settled.resolve(undefined);
    return await this.#lock;
  }

  /** Gives up the lock, which nobody needs. Resolves when it is released. */
  async drop(): Promise<void> {
    if (this.#isDone) return;
    this.#end();
    await (await this.#lock)?.release();
    this.#settled.resolve(undefined);
  }

  #end(): void {
    this.#isDone = true;
    this.#cancelTimer();
  }
}
