import type { Clock } from "@x/redlock-core";

const HOUR_MS = 3_600_000;

/**
 * Keeps the process alive until the function that it returns is called. Nothing else does, neither the connections nor
 * any timer, and a replica that waits for its turn must not end for want of work.
 */
export function keepAlive(clock: Clock): () => void {
  let cancel: () => void = () => undefined;
  const arm = (): void => {
    cancel = clock.schedule(HOUR_MS, arm, { keepAlive: true });
  };
  arm();
  return () => cancel();
}
