/**
 * Each signal gets one listener, however many calls wait for it. A shutdown signal shared by fifty calls is then no
 * listener leak.
 */

interface Fan {
  readonly runs: Set<() => void>;
  readonly onAborted: () => void;
}

const fans = new WeakMap<AbortSignal, Fan>();

/**
 * Calls `run` when the signal aborts, and returns a function that stops that. The last caller to go takes the
 * listener with it.
 */
export function onAbort(signal: AbortSignal, run: () => void): () => void {
  const fan = fans.get(signal) ?? listen(signal);
  // A function of its own, so that the same `run` may wait twice.
  const each = (): void => run();
  fan.runs.add(each);
  return () => {
    fan.runs.delete(each);
    if (fan.runs.size > 0 || fans.get(signal) !== fan) return;
    fans.delete(signal);
    signal.removeEventListener("abort", fan.onAborted);
  };
}

function listen(signal: AbortSignal): Fan {
  const runs = new Set<() => void>();
  const fan: Fan = {
    runs,
    onAborted: () => {
      fans.delete(signal);
      for (const run of [...runs]) run();
    },
  };
  fans.set(signal, fan);
  signal.addEventListener("abort", fan.onAborted, { once: true });
  return fan;
}
