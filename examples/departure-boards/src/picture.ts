/** A run as a picture: who led when, what each worker put on the boards, and when the faults struck. It does no I/O. */
import { type Track, tracksSvg } from "@x/test-support";
import type { HistoryEvent, Leadership } from "./history.ts";

export interface PictureParts {
  readonly history: readonly HistoryEvent[];
  readonly leaderships: readonly Leadership[];
  readonly faults: readonly Struck[];
}

interface Struck {
  readonly text: string;
  readonly atMs: number;
  /** The leader that the fault ended, if it ended one. */
  readonly killed?: string | undefined;
}

const colours = ["#3b7ddd", "#d9822b", "#3a9e63", "#a65bd1", "#c2475f", "#2f9ea3"];
const slices = 120;

/** Returns an SVG. Times are those of the store's clock. */
export function pictureOf({ history, leaderships, faults }: PictureParts): string {
  const times = [...history, ...leaderships, ...faults].map(({ atMs }) => atMs);
  const fromMs = times.reduce((least, atMs) => Math.min(least, atMs), times[0] ?? 0);
  const toMs = times.reduce((most, atMs) => Math.max(most, atMs), fromMs) + 1;
  const workers = [...new Set(history.map(({ worker }) => worker))].sort();
  return tracksSvg({
    title: "Departure boards: leaders, flights put on boards by worker, and faults",
    fromMs,
    toMs,
    tracks: [
      leaderTrack(leaderships, faults, toMs),
      ...workers.map((worker, at) =>
        workerTrack({ worker, colour: colours[(at + 3) % colours.length] ?? "" }, history, { fromMs, toMs }),
      ),
    ],
    marks: faults,
  });
}

/** A term is known to last until the next one begins, or until its leader is killed. */
function leaderTrack(leaderships: readonly Leadership[], faults: readonly Struck[], toMs: number): Track {
  const names = [...new Set(leaderships.map(({ leader }) => leader))];
  const bars = leaderships.map(({ leader, term, atMs }, at) => ({
    fromMs: atMs,
    toMs: Math.min(
      leaderships[at + 1]?.atMs ?? toMs,
      ...faults.filter((fault) => fault.killed === leader && fault.atMs > atMs).map((fault) => fault.atMs),
    ),
    colour: colours[names.indexOf(leader) % colours.length] ?? "",
    text: leader,
    title: `${leader}, term ${term}`,
  }));
  return { label: "leader", height: 26, bars };
}

function workerTrack(
  { worker, colour }: { readonly worker: string; readonly colour: string },
  history: readonly HistoryEvent[],
  { fromMs, toMs }: { readonly fromMs: number; readonly toMs: number },
): Track {
  const counts = Array.from({ length: slices }, () => 0);
  const stale = new Set<number>();
  const sliceMs = (toMs - fromMs) / slices;
  for (const event of history) {
    if (event.worker !== worker) continue;
    const slice = Math.min(slices - 1, Math.floor((event.atMs - fromMs) / sliceMs));
    if (event.kind === "written") counts[slice] = (counts[slice] ?? 0) + 1;
    if (event.kind === "stale") stale.add(slice);
  }
  const most = Math.max(1, ...counts);
  const at = (slice: number): number => fromMs + slice * sliceMs;
  return {
    label: worker,
    height: 40,
    bars: counts.flatMap((count, slice) =>
      count === 0 ? [] : [{ fromMs: at(slice), toMs: at(slice + 0.9), colour, share: count / most }],
    ),
    dots: [...stale].map((slice) => ({ atMs: at(slice + 0.5), colour: "#b3141d", title: "stale writes refused" })),
  };
}
