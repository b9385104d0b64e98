/** Work that was asked to end is waited for by the shortest time that anybody has named since. */
import type { Clock } from "@x/redlock-core";
import { deferred } from "@x/redlock-core/protocol";

export interface DrainTimes {
  /** Returns the milliseconds from now for which the work may go on. */
  timeoutMs(): number;
  /** Calls `listener` when `timeoutMs` may have become shorter, and returns a function that ends that. */
  onChange(listener: () => void): () => void;
}

/** The time that `stop()` gives, which a later call may shorten. */
export class DrainLimit {
  #timeoutMs: number | undefined;
  readonly #listeners = new Set<() => void>();

  set(timeoutMs: number): void {
    this.#timeoutMs = timeoutMs;
    for (const listener of this.#listeners) listener();
  }

  times(otherwiseMs: number): DrainTimes {
    return {
      timeoutMs: () => this.#timeoutMs ?? otherwiseMs,
      onChange: (listener) => {
        this.#listeners.add(listener);
        return () => this.#listeners.delete(listener);
      },
    };
  }
}

interface DrainTimer {
  readonly isOver: Promise<"timeout">;
  /** Begins the time, unless it has begun. */
  start(): void;
  cancel(): void;
}

export function drainTimer(clock: Clock, times: DrainTimes): DrainTimer {
  const over = deferred<"timeout">();
  let isStarted = false;
  let endMs = Number.POSITIVE_INFINITY;
  let cancelTimer: () => void = () => undefined;
  const arm = (): void => {
    const nextMs = clock.monotonicMs() + times.timeoutMs();
    if (!isStarted || nextMs >= endMs) return;
    endMs = nextMs;
    cancelTimer();
    cancelTimer = clock.schedule(times.timeoutMs(), () => over.resolve("timeout"));
  };
  const stopListening = times.onChange(arm);
  return {
    isOver: over.promise,
    start: () => {
      if (isStarted) return;
      isStarted = true;
      arm();
    },
    cancel: () => {
      stopListening();
      cancelTimer();
    },
  };
}
