/** Counts what a worker reports to the registry. */
import type { Clock } from "@x/redlock-core";
import type { Worker } from "../bullmq/public.ts";
import type { EmitEvent } from "../events.ts";
import type { WorkerStatus } from "./rules/worker-report.ts";

/** The version of this package, which a test compares with package.json. */
export const VERSION = "0.1.0";

interface WorkerCountsParts {
  readonly clock: Clock;
  readonly worker: Worker;
  /** Whether the worker has a number of slots. Without it, jobs are fetched by hand, or several workers share slots. */
  readonly hasSlots: boolean;
  readonly runningJobs: () => number;
}

export class WorkerCounts {
  readonly #parts: WorkerCountsParts;
  readonly #counts = { completed: 0, failed: 0, stalled: 0, locksLost: 0 };
  #lockLostMs: number | undefined;

  constructor(parts: WorkerCountsParts) {
    this.#parts = parts;
    for (const name of ["completed", "failed", "stalled"] as const)
      parts.worker.on(name, () => {
        this.#counts[name] += 1;
      });
  }

  get status(): WorkerStatus {
    const { worker, hasSlots, runningJobs } = this.#parts;
    return {
      version: VERSION,
      slots: hasSlots ? worker.concurrency : undefined,
      busy: runningJobs(),
      ...this.#counts,
      lockLostMs: this.#lockLostMs,
    };
  }

  /** Returns a function that emits events like `emit`, and counts the locks that were lost. */
  countLost(emit: EmitEvent): EmitEvent {
    return (name, message) => {
      if (name === "lost") {
        this.#counts.locksLost += 1;
        this.#lockLostMs = Math.round(this.#parts.clock.wallMs());
      }
      emit(name, message);
    };
  }
}
