/**
 * A worker asks for all keys when it starts, and now and then.
 *
 * A key whose job was removed is passed on, or forgotten, when somebody asks for it. But nobody may, or only those far
 * back in line. One worker does it for all, at most every `turnMs`. It costs O(busy keys).
 */
import type { Clock } from "@x/redlock-core";
import { repeat } from "@x/redlock-core/protocol";

export interface SweepParts {
  readonly clock: Clock;
  readonly turnMs: number;
  readonly askForAll: () => Promise<void>;
  /** Resolves true if no worker has had its turn for so long; then it is this one's. */
  readonly takeTurn: (turnMs: number) => Promise<boolean>;
}

/** Begins to ask, and returns a function that ends that. */
export function startSweep({ clock, turnMs, askForAll, takeTurn }: SweepParts): () => void {
  let isFirst = true;
  // Twice as long: where it is not due then, somebody did it in the meantime.
  return repeat(clock, 2 * turnMs, async () => {
    const wasFirst = isFirst;
    isFirst = false;
    if (wasFirst || (await takeTurn(turnMs))) await askForAll();
  });
}
