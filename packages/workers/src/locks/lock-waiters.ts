/**
 * Lets jobs of this process wait in `delayed` for a lock that plain code holds. Each job waits in line for the lock
 * like any other waiter, but without occupying a slot.
 *
 * When a job's turn comes, any process may run it next, and the run claims the lock with the job's place. All this is
 * only a hint. If this process ends and the place in line is lost, the job still returns from `delayed` at its time.
 */
import type { Redlock } from "@x/redlock-core";
import { protocolOf } from "@x/redlock-core/protocol";

interface LockWaitersParts {
  readonly redlock: Redlock;
  /** Brings the job back. Resolves with false if the job no longer waits for its lock. */
  readonly wake: (jobId: string) => Promise<boolean>;
  readonly onError: (error: Error) => void;
}

interface AwaitedLock {
  readonly jobId: string;
  /** Name of the lock that was held. */
  readonly resource: string;
  readonly place: number;
}

export class LockWaiters {
  readonly #parts: LockWaitersParts;
  readonly #waiting = new Map<string, AbortController>();
  #isClosed = false;

  constructor(parts: LockWaitersParts) {
    this.#parts = parts;
  }

  /** Waits for the lock on behalf of the job. Calls `onWoken` when the job has been brought back. */
  add(awaited: AwaitedLock, onWoken: () => void): void {
    if (this.#isClosed || this.#waiting.has(awaited.jobId)) return;
    const cancel = new AbortController();
    this.#waiting.set(awaited.jobId, cancel);
    this.#waitFor(awaited, cancel.signal, onWoken)
      .catch((error: Error) => {
        if (!cancel.signal.aborted) this.#parts.onError(error);
      })
      .finally(() => {
        if (this.#waiting.get(awaited.jobId) === cancel) this.#waiting.delete(awaited.jobId);
      });
  }

  /** Stops waiting on behalf of the job, because it has been fetched or the worker is closed. */
  delete(jobId: string): void {
    this.#waiting.get(jobId)?.abort();
    this.#waiting.delete(jobId);
  }

  close(): void {
    this.#isClosed = true;
    for (const jobId of this.#waiting.keys()) this.delete(jobId);
  }

  async #waitFor({ jobId, resource, place }: AwaitedLock, signal: AbortSignal, onWoken: () => void): Promise<void> {
    const { redlock, wake } = this.#parts;
    // The lock may still be held at the turn: other libraries do not announce a release, and a lease may have been
    // extended.
    do await protocolOf(redlock).waitForTurn(resource, { place, signal });
    while ((await redlock.inspect(resource)).verdict === "held");
    if (await wake(jobId)) {
      onWoken();
      return;
    }
    // The job has ended, was removed, or is running elsewhere. Pass the turn on, or the next waiter would wait until
    // the turn lapses.
    if (signal.aborted) return;
    const lock = await protocolOf(redlock).tryAcquireAt([resource], { place, autoExtend: false });
    await lock?.release();
  }
}
