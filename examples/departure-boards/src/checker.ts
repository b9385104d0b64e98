/** The verdict on a run, from the store's record and its boards alone. */
import { isDeepStrictEqual } from "node:util";
import { type Board, boardsOf } from "./board.ts";
import type { Flight } from "./flight.ts";
import type { HistoryEvent, Leadership } from "./history.ts";

export interface Findings {
  /** Flights on the boards. */
  readonly processed: number;
  /** Flights that no write put on a board. */
  readonly lost: readonly number[];
  /** Flights that more than one write put on a board. */
  readonly duplicated: readonly number[];
  /** Pairs of runs, per airport, that both changed the board although one began before the other had written. */
  readonly overlaps: ReadonlyMap<string, number>;
  /** Flights, per airport, that were written after a later one. */
  readonly outOfOrder: ReadonlyMap<string, number>;
  /** Reads and writes with an old fencing token, all refused. */
  readonly staleRefused: number;
  /** Runs of a flight that was on its board already: a worker died between the write and the end of the job. */
  readonly repeated: number;
  readonly airports: number;
  /** Airports whose board is not what a sequential pass arrives at. */
  readonly wrongBoards: readonly WrongBoard[];
}

export interface WrongBoard {
  readonly airport: string;
  readonly expected: Board;
  readonly actual: Board | undefined;
}

export function judge(
  flights: readonly Flight[],
  history: readonly HistoryEvent[],
  boards: ReadonlyMap<string, Board>,
): Findings {
  const writes = new Map<number, number>();
  for (const event of history)
    if (event.kind === "written") writes.set(event.flight, (writes.get(event.flight) ?? 0) + 1);
  const wrongBoards: WrongBoard[] = [];
  const expectedBoards = boardsOf(flights);
  for (const [airport, expected] of expectedBoards) {
    const actual = boards.get(airport);
    if (!isDeepStrictEqual(actual, expected)) wrongBoards.push({ airport, expected, actual });
  }
  return {
    processed: writes.size,
    lost: flights.filter((flight) => !writes.has(flight.index)).map((flight) => flight.index),
    duplicated: [...writes].filter(([, count]) => count > 1).map(([flight]) => flight),
    overlaps: countPerAirport(history, overlapsOf),
    outOfOrder: countPerAirport(history, outOfOrderOf),
    staleRefused: history.filter((event) => event.kind === "stale").length,
    repeated: history.filter((event) => event.kind === "repeated").length,
    airports: expectedBoards.size,
    wrongBoards,
  };
}

/** Whether the run did what it promises; the report shows the numbers that say no. */
export function isCorrect(findings: Findings): boolean {
  const { lost, duplicated, overlaps, outOfOrder, wrongBoards } = findings;
  return [lost.length, duplicated.length, overlaps.size, outOfOrder.size, wrongBoards.length].every(
    (count) => count === 0,
  );
}

function countPerAirport(
  history: readonly HistoryEvent[],
  count: (events: readonly HistoryEvent[]) => number,
): Map<string, number> {
  const counts = new Map<string, number>();
  for (const [airport, events] of byAirport(history)) {
    const found = count(events);
    if (found > 0) counts.set(airport, found);
  }
  return counts;
}

function byAirport(history: readonly HistoryEvent[]): Map<string, HistoryEvent[]> {
  const groups = new Map<string, HistoryEvent[]>();
  for (const event of history) {
    const group = groups.get(event.origin);
    if (group === undefined) groups.set(event.origin, [event]);
    else group.push(event);
  }
  return groups;
}

// A run that never wrote, or was refused, changed nothing: what it read while others worked did no harm.
function overlapsOf(events: readonly HistoryEvent[]): number {
  const effective = new Set(events.filter((event) => event.kind === "written").map((event) => event.run));
  const open = new Set<string>();
  let overlaps = 0;
  for (const { kind, run } of events) {
    if (!effective.has(run)) continue;
    if (kind === "begin") {
      overlaps += open.size;
      open.add(run);
    } else {
      open.delete(run);
    }
  }
  return overlaps;
}

function outOfOrderOf(events: readonly HistoryEvent[]): number {
  let latest = -1;
  let count = 0;
  for (const { kind, flight } of events) {
    if (kind !== "written") continue;
    if (flight < latest) count++;
    latest = Math.max(latest, flight);
  }
  return count;
}

/** How long after `atMs` the next leader was there; undefined if none came. */
export function leaderTakeoverMs(leaderships: readonly Leadership[], atMs: number): number | undefined {
  const next = leaderships.find((leadership) => leadership.atMs > atMs);
  return next === undefined ? undefined : next.atMs - atMs;
}

/** Runs of a worker that had read a board and not written it at `atMs`. */
export function openRuns(history: readonly HistoryEvent[], worker: string, atMs: number): HistoryEvent[] {
  const open = new Map<string, HistoryEvent>();
  for (const event of history) {
    if (event.worker !== worker || event.atMs > atMs) continue;
    if (event.kind === "begin") open.set(event.run, event);
    else open.delete(event.run);
  }
  return [...open.values()];
}

/**
 * How long it took until each airport in whose runs a worker was killed or frozen at `atMs` was worked on by another run: the longest;
 * undefined if there was none, or one was never worked on again.
 */
export function workerTakeoverMs(history: readonly HistoryEvent[], worker: string, atMs: number): number | undefined {
  const waits = openRuns(history, worker, atMs).map(({ origin, run }) => {
    const next = history.find(
      (event) => event.origin === origin && event.kind === "begin" && event.run !== run && event.atMs > atMs,
    );
    return next === undefined ? Number.NaN : next.atMs - atMs;
  });
  const longest = Math.max(...waits);
  return Number.isFinite(longest) ? longest : undefined;
}
