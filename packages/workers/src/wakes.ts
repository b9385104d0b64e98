/**
 * Jobs of this process that wait in `delayed` for a lock that plain code holds. Each stands in line for the lock like anybody else;
 * when it gets it, the job is run next and finds the lock reserved for a moment.
 *
 * Only hints: a job whose waiter is lost with its process comes back from `delayed` at its time.
 */
import type { Clock, Lock, Redlock } from "@x/redlock-core";

/** A free slot takes the job at once; if none does, others should not wait for it any longer. */
const RESERVED_MS = 250;

export interface WakesParts {
  readonly redlock: Redlock;
  readonly clock: Clock;
  readonly lockTtl: number;
  /** Brings the job back; false if it is not in `delayed` any more. */
  readonly wake: (jobId: string) => Promise<boolean>;
  readonly onError: (error: Error) => void;
}

type Waiting =
  | { readonly state: "waiting"; readonly cancel: AbortController }
  | { readonly state: "reserved"; readonly lock: Lock; readonly cancelTimer: () => void };

export class Wakes {
  readonly #parts: WakesParts;
  readonly #waiting = new Map<string, Waiting>();
  #isClosed = false;

  constructor(parts: WakesParts) {
    this.#parts = parts;
  }

  /** Waits for the locks on behalf of the job; `onWoken` is called when it was brought back. */
  add(jobId: string, resources: readonly string[], onWoken: () => void): void {
    if (this.#isClosed || this.#waiting.has(jobId)) return;
    const cancel = new AbortController();
    this.#waiting.set(jobId, { state: "waiting", cancel });
    this.#waitFor(jobId, resources, cancel.signal, onWoken).catch((error: Error) => {
      this.#waiting.delete(jobId);
      if (!cancel.signal.aborted && !this.#isClosed) this.#parts.onError(error);
    });
  }

  /** The job has come: the locks reserved for it, if they are; it does not wait here any more. */
  take(jobId: string): Lock | undefined {
    const waiting = this.#waiting.get(jobId);
    if (waiting === undefined) return undefined;
    this.#waiting.delete(jobId);
    if (waiting.state === "waiting") {
      waiting.cancel.abort();
      return undefined;
    }
    waiting.cancelTimer();
    if (waiting.lock.isHeld()) return waiting.lock;
    void waiting.lock.release();
    return undefined;
  }

  close(): void {
    this.#isClosed = true;
    for (const jobId of this.#waiting.keys()) void this.take(jobId)?.release();
  }

  async #waitFor(jobId: string, resources: readonly string[], signal: AbortSignal, onWoken: () => void): Promise<void> {
    const { redlock, clock, lockTtl, wake } = this.#parts;
    const lock = await redlock.acquire(resources, {
      ttl: lockTtl,
      timeout: Number.POSITIVE_INFINITY,
      signal,
      autoExtend: true,
    });
    if (signal.aborted) {
      await lock.release();
      return;
    }
    const giveUp = (): void => {
      this.#waiting.delete(jobId);
      void lock.release();
    };
    // Before the job is brought back, so that it finds the lock however fast it comes.
    this.#waiting.set(jobId, { state: "reserved", lock, cancelTimer: clock.schedule(RESERVED_MS, giveUp) });
    const isBack = await wake(jobId).catch((error: Error) => {
      this.#parts.onError(error);
      return false;
    });
    if (isBack) onWoken();
    else void this.take(jobId)?.release();
  }
}
