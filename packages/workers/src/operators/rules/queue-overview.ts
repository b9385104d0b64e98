/** Pure: what operators see of a queue as a whole. */
import type { QueueFacts } from "../../scripts/operator-replies.ts";
import { sumFigures } from "./exclusion.ts";
import type { BusyKey, KeyReading } from "./key-report.ts";
import { sumReports, type WorkerReport } from "./worker-report.ts";

/** A queue as a whole, at one moment. */
export interface QueueOverview extends QueueFacts {
  /** The last report of each worker with keys, including the workers that have been gone for up to 15 min. */
  readonly workers: readonly WorkerReport[];
  /** The keys, as `listKeys` lists them. Empty unless asked for. */
  readonly keys: readonly BusyKey[];
  /** The keys of the option `read`, in its order. */
  readonly readings: readonly KeyReading[];
}

/**
 * Returns the overview of a queue in partitions. Workers of one process with the same options count as one. `asked`:
 * the number of keys and the readings that were asked for.
 */
export function sumOverviews(
  parts: readonly QueueOverview[],
  asked: { readonly keys: number; readonly read: readonly string[] },
): QueueOverview {
  const sumOf = (count: (part: QueueOverview) => number): number => parts.reduce((sum, part) => sum + count(part), 0);
  const workers = new Map<string, WorkerReport>();
  for (const report of parts.flatMap((part) => part.workers)) {
    const process = JSON.stringify(report.setup);
    const other = workers.get(process);
    workers.set(process, other === undefined ? report : sumReports(other, report));
  }
  return {
    atMs: Math.max(...parts.map(({ atMs }) => atMs)),
    isPaused: parts.every(({ isPaused }) => isPaused),
    runnable: sumOf(({ runnable }) => runnable),
    active: sumOf(({ active }) => active),
    stalled: parts.flatMap(({ stalled }) => stalled),
    exclusion: sumFigures(
      parts.map(({ exclusion }) => exclusion),
      0,
    ),
    workers: [...workers.values()],
    keys: parts.flatMap(({ keys }) => keys).slice(0, asked.keys),
    readings: parts
      .flatMap(({ readings }) => readings)
      .toSorted((one, other) => asked.read.indexOf(one.key) - asked.read.indexOf(other.key)),
  };
}
