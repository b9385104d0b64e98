/**
 * A worker looks at keys when it starts, and now and then.
 *
 * A key whose job was removed is passed on, or forgotten, when somebody asks for it. But nobody may, or only those far
 * back in line. One worker does it for all, at most every `everyMs`. However many keys there are, one look costs the
 * same: it goes on where the last one has ended.
 */
import type { Clock } from "@x/redlock-core";
import { repeat } from "@x/redlock-core/protocol";
import type { Lane } from "./lane.ts";

/** One script looks at so many keys, within some ms. */
const PAGE = 500;
/** One look has so many pages. */
const MOST_PAGES = 10;

interface SweepParts {
  readonly clock: Clock;
  readonly everyMs: number;
  readonly lane: Pick<Lane, "operate">;
}

/** Begins to look, and returns a function that ends that. */
export function startSweep({ clock, everyMs, lane }: SweepParts): () => void {
  let isFirst = true;
  // Twice as long: where it is not due then, somebody did it in the meantime.
  return repeat(clock, 2 * everyMs, async () => {
    const isInAnyCase = isFirst ? 1 : "";
    isFirst = false;
    let cursor = (await lane.operate("beginSweep", everyMs, isInAnyCase)) as string | null;
    for (let page = 1; page <= MOST_PAGES && cursor !== null; page += 1) {
      const isLast = page === MOST_PAGES ? 1 : "";
      const next = (await lane.operate("sweep", cursor, PAGE, everyMs, isLast)) as string;
      cursor = next === "0" ? null : next;
    }
  });
}
