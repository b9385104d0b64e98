/**
 * Closes a worker in this order:
 * - The worker leaves the registry of workers, and the waits of jobs that have not started end. With force, scripts
 *   no longer acquire and release locks.
 * - BullMQ's worker is closed. If Redis stops answering, the rest happens without Redis, as by force.
 * - Scripts acquire no further locks, and no more jobs are brought back.
 * - When the last run has released its locks, the worker's own `Redlock` is closed.
 */
import type { Clock, Redlock } from "@x/redlock-core";
import type { InFlight } from "@x/redlock-core/kit";
import { untilUnanswered } from "./answers.ts";
import type { Interrupts } from "./lane/interrupts.ts";
import type { RunLocks } from "./locks/run-locks.ts";
import type { WorkerRegistry } from "./operators/worker-registry.ts";

interface ClosingParts {
  readonly clock: Clock;
  /** Sends a request to the queue's Redis. */
  readonly ask: () => Promise<unknown>;
  /** Called once if the worker is closed without its Redis. Ends the worker's connections. */
  readonly onUnreachable: () => void;
  readonly registry: WorkerRegistry;
  readonly locks: RunLocks;
  readonly interrupts: Interrupts | undefined;
  readonly inFlight: InFlight;
  readonly stopSweeping: () => void;
  readonly stopListening: () => void;
  /** The worker's own `Redlock`. Undefined if the user has passed one. */
  readonly redlock: Redlock | undefined;
}

export class Closing {
  readonly #parts: ClosingParts;
  readonly #controller = new AbortController();
  #isForced = false;
  #isUnreachable = false;
  #ended: Promise<void> | undefined;

  constructor(parts: ClosingParts) {
    this.#parts = parts;
  }

  /** Aborts when the worker is being closed. Ends the waits of jobs that have not started. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get isForced(): boolean {
    return this.#isForced;
  }

  /**
   * Leaves the registry of workers, and ends the waits of jobs that have not started. The caller closes BullMQ's worker
   * next.
   */
  begin(force: boolean): void {
    this.#parts.registry.leave();
    this.#isForced ||= force;
    if (force) this.#parts.locks.close();
    this.#controller.abort();
  }

  /** Resolves like `closed`, the close of BullMQ's worker, or when the queue's Redis has not answered for 30 s. */
  async untilClosed(closed: Promise<void>): Promise<void> {
    const { clock, ask, onUnreachable } = this.#parts;
    const end = new AbortController();
    const isUnreachable = untilUnanswered(clock, ask, end.signal).then(() => true);
    try {
      if ((await Promise.race([closed, isUnreachable])) !== true || this.#isUnreachable) return;
    } finally {
      end.abort();
    }
    this.#isForced = true;
    this.#isUnreachable = true;
    onUnreachable();
    closed.catch(() => undefined);
  }

  /** Finishes the close after BullMQ's worker has been closed. With `force`, running jobs are not awaited. */
  end(force: boolean): Promise<void> {
    this.#ended ??= this.#end(force);
    return this.#ended;
  }

  async #end(force: boolean): Promise<void> {
    const { locks, interrupts, inFlight, stopSweeping, stopListening, redlock } = this.#parts;
    locks.close();
    stopSweeping();
    const silent = interrupts?.stop();
    const closed = inFlight.untilNone().then(async () => {
      stopListening();
      await silent;
      await redlock?.close();
    });
    if ((force || this.#isUnreachable) && inFlight.count > 0) closed.catch(() => {});
    else await closed;
  }
}
