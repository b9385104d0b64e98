/**
 * Jobs of this process wait in `delayed` for a lock that plain code holds. Each stands in line for the lock like
 * anybody else, without holding a slot.
 *
 * When it is its turn, the job is run next, in whatever process, and claims the lock with its place. These are hints
 * only: a job whose place in line is lost with this process comes back from `delayed` at its time.
 */
import type { Redlock } from "@x/redlock-core";
import { protocolOf } from "@x/redlock-core/protocol";

interface LockWaitersParts {
  readonly redlock: Redlock;
  /** Brings the job back. Resolves false if it does not wait for its lock any more. */
  readonly wake: (jobId: string) => Promise<boolean>;
  readonly onError: (error: Error) => void;
}

interface LockWish {
  readonly jobId: string;
  /** The lock that was held. */
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

  /** Waits for the lock on behalf of the job. `onWoken` is called when the job was brought back. */
  add(wish: LockWish, onWoken: () => void): void {
    if (this.#isClosed || this.#waiting.has(wish.jobId)) return;
    const cancel = new AbortController();
    this.#waiting.set(wish.jobId, cancel);
    this.#waitFor(wish, cancel.signal, onWoken)
      .catch((error: Error) => {
        if (!cancel.signal.aborted) this.#parts.onError(error);
      })
      .finally(() => {
        if (this.#waiting.get(wish.jobId) === cancel) this.#waiting.delete(wish.jobId);
      });
  }

  /** Waits no longer for the job: it has come, or is not waited for any more. */
  delete(jobId: string): void {
    this.#waiting.get(jobId)?.abort();
    this.#waiting.delete(jobId);
  }

  close(): void {
    this.#isClosed = true;
    for (const jobId of this.#waiting.keys()) this.delete(jobId);
  }

  async #waitFor({ jobId, resource, place }: LockWish, signal: AbortSignal, onWoken: () => void): Promise<void> {
    const { redlock, wake } = this.#parts;
    // A turn does not mean that the lock is free: another library's tells nobody of its release, and a lease may have
    // been extended.
    do await protocolOf(redlock).waitForTurn(resource, { place, signal });
    while ((await redlock.inspect(resource)).verdict === "held");
    if (await wake(jobId)) {
      onWoken();
      return;
    }
    // The job is done, gone, or running elsewhere: pass the turn on, or the next one would wait for it to lapse.
    if (signal.aborted) return;
    const lock = await protocolOf(redlock).tryAcquireAt([resource], { place, autoExtend: false });
    await lock?.release();
  }
}
