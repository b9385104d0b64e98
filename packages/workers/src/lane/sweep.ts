/**
 * Sweeps the queue's busy keys when the worker starts, and regularly afterwards.
 *
 * If a key's job was removed, the next script that looks at the key passes the key on or forgets it. A sweep is such a
 * script, for keys that no job asks for, or only jobs far back in line. At most one worker sweeps in any `everyMs`. The
 * cost of a sweep does not depend on the number of keys, because each sweep continues where the last one ended.
 */
import type { Clock } from "@x/redlock-core";
import { repeat } from "@x/redlock-core/kit";
import type { Lane } from "./lane.ts";

/** Number of keys that one script looks at, which takes a few ms. */
const PAGE = 500;
/** Number of pages in one sweep. */
const MAX_PAGES = 10;

interface SweepParts {
  readonly clock: Clock;
  readonly everyMs: number;
  readonly lane: Pick<Lane, "operate">;
}

/** Starts the sweeps. Returns a function that stops them. */
export function startSweep({ clock, everyMs, lane }: SweepParts): () => void {
  let isFirst = true;
  // Twice the interval: if a sweep is not due by then, another worker has done it in the meantime.
  return repeat(clock, 2 * everyMs, async () => {
    const isForced = isFirst ? 1 : "";
    isFirst = false;
    let cursor = (await lane.operate("beginSweep", everyMs, isForced)) as string | null;
    for (let page = 1; page <= MAX_PAGES && cursor !== null; page += 1) {
      const isLast = page === MAX_PAGES ? 1 : "";
      const next = (await lane.operate("sweep", cursor, PAGE, everyMs, isLast)) as string;
      cursor = next === "0" ? null : next;
    }
  });
}
