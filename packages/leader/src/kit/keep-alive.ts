import type { Clock } from "@x/redlock-core";

const HOUR_MS = 3_600_000;

/**
 * Keeps the process alive until the returned function is called. Connections and other timers do not keep the process
 * alive, but a replica that waits to lead must not exit.
 */
export function keepAlive(clock: Clock): () => void {
  let cancel: () => void = () => undefined;
  const arm = (): void => {
    cancel = clock.schedule(HOUR_MS, arm, { keepAlive: true });
  };
  arm();
  return () => cancel();
}
