/**
 * Acquires the locks of keys, which exclude other queues and plain code, by requests to the nodes of a `Redlock`. The
 * locks of a run are acquired before the run starts. When a run succeeds and its key's next job is likely to follow,
 * the lock for that job is requested as well (see lock-ahead.ts).
 *
 * `ScriptLocks` extends this class: the lane's scripts acquire and release a lock together with its job. Runs and the
 * lane work with both classes in the same way.
 */
import {
  type Clock,
  type Lock,
  QuorumUnreachableError,
  type Redlock,
  type RedlockError,
  type Vote,
} from "@x/redlock-core";
import { type InFlight, sleep } from "@x/redlock-core/kit";
import { protocolOf } from "@x/redlock-core/protocol";
import type { Run } from "../job-run/run.ts";
import type { LaneLocks, TakenJob } from "../lane/taken-job.ts";
import { LockAhead } from "./lock-ahead.ts";

/**
 * How long a job waits in its slot for lock nodes that do not answer, for instance because they are not connected yet.
 * `UNREACHABLE_PAUSE_MS` is the pause between two attempts.
 */
const UNREACHABLE_WAIT_MS = 2_000;
const UNREACHABLE_PAUSE_MS = 50;

export interface KeyLocksParts {
  readonly redlock: Redlock;
  readonly inFlight: InFlight;
  readonly ttl: number;
  /** How many ms a job waits in its slot for a lock that is held. */
  readonly timeout: number;
}

export class KeyLocks implements LaneLocks {
  readonly #parts: KeyLocksParts;
  readonly #clock: Clock;

  constructor(parts: KeyLocksParts) {
    this.#parts = parts;
    this.#clock = protocolOf(parts.redlock).clock;
  }

  newToken(): string {
    return "";
  }

  dropUnclaimed(_lockName: string, _token: string): void {}

  /**
   * Returns the lock that a script has acquired together with the job, to the first caller. Undefined if no script has
   * acquired one, or if its lease is over.
   */
  claim(_taken: TakenJob): Lock | undefined {
    return undefined;
  }

  /**
   * Acquires the locks of the run's keys by requests. Rejects like `acquire` of a `Redlock`.
   *
   * The first attempt succeeds if the lock is free. If the lock is held, the job waits in its slot for the option
   * `timeout`, or for two round trips if they take longer. With `timeout: 0` the second attempt does not wait.
   *
   * If the nodes do not answer, the attempts are repeated for about two seconds, because jobs need not be sent back for
   * a short stall.
   */
  async acquire(run: Run, signal: AbortSignal | undefined): Promise<Lock> {
    const { redlock, ttl, timeout } = this.#parts;
    const protocol = protocolOf(redlock);
    const options = { ttl, autoExtend: true, signal };
    const startedMs = this.#clock.monotonicMs();
    for (;;) {
      try {
        const askedMs = this.#clock.monotonicMs();
        const lock = await protocol.tryAcquireAt(run.resources, { ...options, place: this.placeOf(run) });
        if (lock !== null) return lock;
        // In less time the nodes could not answer, and the holder of the lock would stay unknown.
        const leastMs = 2 * Math.ceil(this.#clock.monotonicMs() - askedMs);
        const waitMs = timeout === 0 ? 0 : Math.max(timeout, leastMs);
        return await protocol.acquireAt(run.resources, { ...options, place: this.placeOf(run), timeout: waitMs });
      } catch (error) {
        const isLate = this.#clock.monotonicMs() - startedMs > UNREACHABLE_WAIT_MS;
        if (!(error instanceof QuorumUnreachableError) || isLate || foreignVote(error) !== undefined) throw error;
        await sleep(this.#clock, UNREACHABLE_PAUSE_MS, undefined, { keepAlive: true });
      }
    }
  }

  /**
   * Returns the run's place in line for its locks. The place is computed for each attempt, because a refusal reveals
   * the error of this process's clock.
   */
  placeOf(run: Run): number {
    return run.place ?? protocolOf(this.#parts.redlock).placeAt(run.askedMs);
  }

  /**
   * Releases the lock of a run that has succeeded, just before BullMQ sends the job's end. Resolves like
   * `lock.release()`.
   */
  releaseWithEnd(run: Run, lock: Lock, taken: TakenJob): Promise<boolean> {
    const isFollowed = taken.isFollowed && run.lost === undefined;
    const released = lock.release();
    if (isFollowed) this.#requestAhead(run, taken);
    return released;
  }

  /**
   * Stops scripts from acquiring and releasing locks. Called when the worker is closed, and when jobs are fetched by
   * hand, because no run would claim the locks, and BullMQ may not end the jobs.
   */
  stopScriptLocks(): void {}

  /**
   * Requests the lock of the key's next job in the same turn of the event loop as the release, so that both are sent
   * together.
   */
  #requestAhead({ resources }: Run, taken: TakenJob): void {
    const { redlock, inFlight, ttl } = this.#parts;
    const protocol = protocolOf(redlock);
    const place = protocol.placeAt(this.#clock.wallMs());
    const lock = protocol.tryAcquireAt(resources, { ttl, place, autoExtend: true }).catch(() => null);
    const requestedLock = new LockAhead(taken.lockName, lock, this.#clock);
    inFlight.follow(requestedLock.settled);
    taken.leaveLockInstruction({ kind: "requested-ahead", lock: requestedLock });
  }
}

/** Returns the vote of a node where one of the lock's Redis keys has another type, because other code uses the name. */
export function foreignVote(error: RedlockError): Vote | undefined {
  const votes = error instanceof QuorumUnreachableError ? error.votes : [];
  return votes.find((vote) => vote.error?.startsWith("WRONGTYPE"));
}
