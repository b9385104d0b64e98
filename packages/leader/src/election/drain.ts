/** How long is waited for work that was asked to end: by the shortest time that anybody has named since. */
import type { Clock } from "@x/redlock-core";
import { deferred } from "@x/redlock-core/protocol";

export interface DrainTimes {
  /** In ms, from now. */
  timeoutMs(): number;
  /** Calls `listener` when `timeoutMs` may have become shorter; returns a function that ends that. */
  onChange(listener: () => void): () => void;
}

export interface DrainTimer {
  readonly isOver: Promise<"timeout">;
  /** The time begins; nothing if it has. */
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
