/** Pure: the mode of a queue, exclusive or watched, and the figures of a watched queue. */

/**
 * Whether a job waits while its key is busy. `"on"`: the job waits, which is the promise of this package. `"watch"`: no
 * job waits because its key is busy, as with plain workers, and the starts that exclusion would have delayed are
 * counted.
 */
export type ExclusionMode = "on" | "watch";

/** The mode of a queue, and the figures since the queue was last watched. */
export interface ExclusionReport {
  readonly mode: ExclusionMode;
  /**
   * Since when the queue was last watched, in ms since the epoch, by the clock of the queue's Redis. Undefined if the
   * queue never was.
   */
  readonly watchedSinceMs: number | undefined;
  /** When this ended. Undefined if the queue is watched now, or never was. */
  readonly watchedUntilMs: number | undefined;
  /** Number of jobs with keys that `ExclusiveWorker`s have ended in this time. */
  readonly ended: number;
  /** Number of starts in `ExclusiveWorker`s while as many other jobs of a key were running as the key allows. */
  readonly overlaps: number;
  /**
   * Number of starts in `ExclusiveWorker`s that passed a job of the same key that was not running: the other job waited
   * for its retry (`onFailure` `"block"` or `"halt"`) or for a lock, or its worker was gone.
   */
  readonly outOfOrder: number;
  /** The keys with the most starts of both kinds, the most frequent first. */
  readonly keys: readonly EarlyKey[];
  /** Number of keys that more jobs have at this moment than the key allows. */
  readonly overlappingKeys: number;
  /** Why `setExclusion` would refuse to change the queue to the other mode. Empty if it would not. */
  readonly obstacles: readonly string[];
}

/** A key with starts that exclusion would have delayed. */
export interface EarlyKey {
  readonly key: string;
  /** Number of these starts. Too high by at most the number of the rarest listed key if more than 100 keys were met. */
  readonly starts: number;
}

/** The part of a report that one request reads. */
export type ExclusionFigures = Omit<ExclusionReport, "overlappingKeys" | "obstacles">;

/** Returns the report of a queue in partitions. */
export function sumExclusions(parts: readonly ExclusionReport[], limit: number): ExclusionReport {
  const overlappingKeys = parts.reduce((sum, part) => sum + part.overlappingKeys, 0);
  return {
    ...sumFigures(parts, limit),
    overlappingKeys,
    obstacles: [...new Set(parts.flatMap(({ obstacles }) => obstacles))],
  };
}

/** Returns the figures of a queue in partitions. The queue counts as watched if a partition is. */
export function sumFigures(parts: readonly ExclusionFigures[], limit: number): ExclusionFigures {
  const sumOf = (count: (part: ExclusionFigures) => number): number =>
    parts.reduce((sum, part) => sum + count(part), 0);
  const isWatched = parts.some(({ mode }) => mode === "watch");
  const until = parts.flatMap(({ watchedUntilMs }) => watchedUntilMs ?? []);
  const since = parts.flatMap(({ watchedSinceMs }) => watchedSinceMs ?? []);
  const keys = parts.flatMap((part) => part.keys).toSorted((one, other) => other.starts - one.starts);
  return {
    mode: isWatched ? "watch" : "on",
    watchedSinceMs: since.length === 0 ? undefined : Math.min(...since),
    watchedUntilMs: isWatched || until.length === 0 ? undefined : Math.max(...until),
    ended: sumOf(({ ended }) => ended),
    overlaps: sumOf(({ overlaps }) => overlaps),
    outOfOrder: sumOf(({ outOfOrder }) => outOfOrder),
    keys: keys.slice(0, limit),
  };
}
