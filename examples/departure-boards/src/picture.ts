/**
 * A run as a picture: who led when, what each worker put on the boards, what was lost, and when the faults struck. It
 * does no I/O.
 */
import { type Track, type Tracks, tracksSvg } from "@x/test-support";
import type { HistoryEvent, Leadership } from "./history.ts";

export interface PictureParts {
  readonly history: readonly HistoryEvent[];
  readonly leaderships: readonly Leadership[];
  readonly faults: readonly Struck[];
  /** When the log's clock was at 0, by the store's clock. */
  readonly startedMs: number;
  /** Whether the boards are right, as a sentence. */
  readonly verdict: string;
}

interface Struck {
  readonly text: string;
  readonly atMs: number;
  /** The leader that the fault ended, if it ended one. */
  readonly killed?: string | undefined;
}

const colours = ["#3b7ddd", "#d9822b", "#3a9e63", "#a65bd1", "#c2475f", "#2f9ea3"];
const red = "#b3141d";
const slices = 120;

/** Returns an SVG. Times are those of the store's clock, and the scale is the log's clock. */
export function pictureOf({ history, leaderships, faults, startedMs, verdict }: PictureParts): string {
  const times = [...history, ...leaderships, ...faults].map(({ atMs }) => atMs);
  const fromMs = times.reduce((least, atMs) => Math.min(least, atMs), startedMs);
  const toMs = times.reduce((most, atMs) => Math.max(most, atMs), fromMs) + 1;
  const workers = [...new Set(history.map(({ worker }) => worker))].sort();
  const span = { fromMs, toMs };
  const lost = lostTrack(lostIn(history), span);
  return tracksSvg({
    title: "Departure boards: leaders, flights put on boards by worker, and faults",
    ...span,
    tracks: [
      leaderTrack(leaderships, faults, toMs),
      ...workers.map((worker, at) =>
        workerTrack({ worker, colour: colours[(at + 3) % colours.length] ?? "" }, history, span),
      ),
      ...(lost === undefined ? [] : [lost]),
    ],
    marks: faults,
    legend: legendOf(history, leaderships, lost !== undefined),
    notes: [
      verdict,
      "Gaps in the row of the leader: nobody led. The height of a bar: flights per second, up to the number at the left.",
    ],
  });
}

function legendOf(
  history: readonly HistoryEvent[],
  leaderships: readonly Leadership[],
  hasLost: boolean,
): NonNullable<Tracks["legend"]> {
  const leaders = [...new Set(leaderships.map(({ leader }) => leader))];
  return [
    ...leaders.map((leader, at) => ({ colour: colours[at % colours.length] ?? "", text: leader })),
    ...(history.some(({ kind }) => kind === "stale") ? [{ colour: red, text: "dot: late write refused" }] : []),
    ...(hasLost ? [{ colour: red, text: "bar: flights lost" }] : []),
  ];
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

interface Span {
  readonly fromMs: number;
  readonly toMs: number;
}

function workerTrack(
  { worker, colour }: { readonly worker: string; readonly colour: string },
  history: readonly HistoryEvent[],
  span: Span,
): Track {
  const own = history.filter((event) => event.worker === worker);
  const written = own.filter(({ kind }) => kind === "written").map(({ atMs }) => ({ atMs, count: 1 }));
  const stale = new Set(own.filter(({ kind }) => kind === "stale").map(({ atMs }) => sliceOf(atMs, span)));
  return {
    ...countTrack(worker, colour, written, span),
    dots: [...stale].map((slice) => ({
      atMs: startOf(slice + 0.5, span),
      colour: red,
      title: "late writes refused",
    })),
  };
}

function lostTrack(lost: readonly Counted[], span: Span): Track | undefined {
  return lost.length === 0 ? undefined : countTrack("lost flights", red, lost, span);
}

interface Counted {
  readonly atMs: number;
  readonly count: number;
}

/** A row with a bar for each slice of the run, as high as what was counted in it. */
function countTrack(label: string, colour: string, events: readonly Counted[], span: Span): Track {
  const counts = Array.from({ length: slices }, () => 0);
  for (const { atMs, count } of events) counts[sliceOf(atMs, span)] = (counts[sliceOf(atMs, span)] ?? 0) + count;
  const most = Math.max(1, ...counts);
  const perSecond = Math.round((1_000 * most * slices) / (span.toMs - span.fromMs));
  return {
    label,
    note: `up to ${perSecond.toLocaleString("en-US")}/s`,
    height: 40,
    bars: counts.flatMap((count, slice) =>
      count <= 0
        ? []
        : [
            {
              fromMs: startOf(slice, span),
              toMs: startOf(slice + 0.9, span),
              colour,
              share: count / most,
              title: `${label}: ${count.toLocaleString("en-US")}`,
            },
          ],
    ),
  };
}

function sliceOf(atMs: number, { fromMs, toMs }: Span): number {
  return Math.min(slices - 1, Math.floor(((atMs - fromMs) * slices) / (toMs - fromMs)));
}

function startOf(slice: number, { fromMs, toMs }: Span): number {
  return fromMs + (slice * (toMs - fromMs)) / slices;
}

/**
 * Returns when flights vanished from a board: a run that has read the board before another run's write, and writes
 * after it, overwrites this write. A later write of the other run may bring flights back, which counts as negative.
 */
export function lostIn(history: readonly HistoryEvent[]): readonly Counted[] {
  const onBoard = new Map<string, number>();
  const read = new Map<string, number>();
  const lost: Counted[] = [];
  for (const { kind, run, origin, atMs } of history) {
    const now = onBoard.get(origin) ?? 0;
    if (kind === "begin") read.set(run, now);
    if (kind !== "written") continue;
    const before = read.get(run) ?? now;
    if (before !== now) lost.push({ atMs, count: now - before });
    onBoard.set(origin, before + 1);
  }
  return lost;
}
