/**
 * The end of a turn of the real event loop: all promise continuations and `nextTick`s that are due have run. Worlds
 * that run side by side share it, which makes a turn cheap.
 */
import { setImmediate } from "node:timers";

let waiting: (() => void)[] = [];

export function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    if (waiting.length === 0) setImmediate(release);
    waiting.push(resolve);
  });
}

function release(): void {
  const released = waiting;
  waiting = [];
  for (const resolve of released) resolve();
}
