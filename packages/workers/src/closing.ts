/**
 * A worker is closed in this order. It leaves the other workers, and no job waits to begin. BullMQ's worker is closed.
 * No script takes a lock, and no job is brought back, any more. When the last run has released its locks, its `Redlock`
 * is closed.
 */
import type { Redlock } from "@x/redlock-core";
import type { InFlight } from "@x/redlock-core/protocol";
import type { Interrupts } from "./lane/interrupts.ts";
import type { RunLocks } from "./locks/run-locks.ts";
import type { WorkerRegistry } from "./operators/worker-registry.ts";

interface ClosingParts {
  readonly registry: WorkerRegistry;
  readonly locks: RunLocks;
  readonly interrupts: Interrupts | undefined;
  readonly inFlight: InFlight;
  readonly stopSweeping: () => void;
  readonly stopListening: () => void;
  /** The `Redlock`, if it is the worker's own. */
  readonly redlock: Redlock | undefined;
}

export class Closing {
  readonly #parts: ClosingParts;
  readonly #controller = new AbortController();
  #isForced = false;
  #ended: Promise<void> | undefined;

  constructor(parts: ClosingParts) {
    this.#parts = parts;
  }

  /** Aborts when the worker is being closed: it ends the waits of jobs that have not begun. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get isForced(): boolean {
    return this.#isForced;
  }

  /** Leaves the other workers, and ends the waits of jobs that have not begun. BullMQ's worker is closed next. */
  begin(force: boolean): void {
    this.#parts.registry.leave();
    this.#isForced ||= force;
    this.#controller.abort();
  }

  /** Does what is left when BullMQ's worker is closed. With `force`, runs that go on are not waited for. */
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
    if (force && inFlight.count > 0) closed.catch(() => {});
    else await closed;
  }
}
