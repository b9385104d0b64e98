/**
 * The locks of keys, which exclude other queues and plain code. They are asked for at the nodes of a `Redlock`. Those
 * of a run are acquired before it begins. When it ends, the one for the next job of its key is asked for (see
 * lock-ahead.ts).
 *
 * `ScriptLocks` has another strategy: the lane's scripts take and release a lock with its job. A run does not know
 * which of the two it has, nor does the lane.
 */
import {
  type Clock,
  type Lock,
  QuorumUnreachableError,
  type Redlock,
  type RedlockError,
  type Vote,
} from "@x/redlock-core";
import { type InFlight, protocolOf, sleep } from "@x/redlock-core/protocol";
import type { Run } from "../job-run/run.ts";
import type { LaneLocks } from "../lane/lane.ts";
import type { LockInstruction, TakenJob } from "../lane/taken-job.ts";
import { LockAhead } from "./lock-ahead.ts";

/**
 * A job waits this long in its slot for lock nodes that do not answer, and asks with the pause below. Connections may
 * not be up yet.
 */
const UNREACHABLE_WAIT_MS = 2_000;
const UNREACHABLE_PAUSE_MS = 50;

export interface KeyLocksParts {
  readonly redlock: Redlock;
  readonly inFlight: InFlight;
  readonly ttl: number;
  /** A job waits in its slot for a lock that is held for so many ms. */
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

  takeLockInstruction(taken: TakenJob | undefined): LockInstruction | undefined {
    if (taken === undefined) return undefined;
    const { lockInstruction, requestedLock } = taken;
    taken.lockInstruction = undefined;
    taken.requestedLock = undefined;
    if (lockInstruction === undefined) return requestedLock && { kind: "requested-ahead", lock: requestedLock };
    void requestedLock?.drop();
    return lockInstruction;
  }

  /** Returns the lock that a script has taken with the job, once. It is undefined if none did, or its lease is over. */
  claim(_taken: TakenJob): Lock | undefined {
    return undefined;
  }

  /**
   * Acquires the locks of the run's keys by requests, or rejects as `acquire` of a `Redlock`.
   *
   * It makes one attempt, which is all that a free lock needs. It then waits in the slot for one that is held: for the
   * option `timeout`, or for two round trips where that is longer.
   *
   * Nodes that do not answer are asked again for a while: a stall is not a reason to send jobs back.
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
        // In less time the nodes cannot answer, and who has the lock would be unknown.
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
   * Returns the run's place in line for its locks. It asks anew each time, because a refusal tells how far this
   * process's clock is off.
   */
  placeOf(run: Run): number {
    return run.place ?? protocolOf(this.#parts.redlock).placeAt(run.askedMs);
  }

  /**
   * Releases the lock of a run that has succeeded, when BullMQ is about to be told that its job has ended. Resolves as
   * `lock.release()` does.
   */
  releaseWithEnd(run: Run, lock: Lock, taken: TakenJob): Promise<boolean> {
    const isFollowed = taken.isFollowed && run.lost === undefined;
    const released = lock.release();
    if (isFollowed) this.#askAhead(run, taken);
    return released;
  }

  /**
   * Lets no script take a lock from now on: jobs are fetched by hand, so nobody would claim it, or the worker is
   * closed.
   */
  stop(): void {}

  /**
   * Asks for the lock of the key's next job in the same turn of the event loop as the release, so that both travel
   * together.
   */
  #askAhead({ resources }: Run, taken: TakenJob): void {
    const { redlock, inFlight, ttl } = this.#parts;
    const protocol = protocolOf(redlock);
    const place = protocol.placeAt(this.#clock.wallMs());
    const lock = protocol.tryAcquireAt(resources, { ttl, place, autoExtend: true }).catch(() => null);
    const requestedLock = new LockAhead(taken.lockName, lock, this.#clock);
    inFlight.follow(requestedLock.settled);
    taken.lockInstruction = { kind: "requested-ahead", lock: requestedLock };
  }
}

/**
 * Returns the vote of a node where a key of the lock is of another type: something else is where the lock should be.
 */
export function foreignVote(error: RedlockError): Vote | undefined {
  const votes = error instanceof QuorumUnreachableError ? error.votes : [];
  return votes.find((vote) => vote.error?.startsWith("WRONGTYPE"));
}
