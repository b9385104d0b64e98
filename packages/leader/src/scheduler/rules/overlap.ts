/** Pure: decides about a tick while an earlier tick of the same schedule runs. The policies have Temporal's names. */

export type Overlap = "skip" | "bufferOne" | "cancelOther" | "allowAll";

export type OverlapDecision =
  | "run"
  /** The tick does not run, and counts as dealt with. */
  | "skip"
  /** The tick runs after the other ticks have ended. */
  | "queue"
  /** The running tick is asked to end, and this tick runs afterwards. */
  | "replace";

interface Occupancy {
  readonly running: number;
  /** Number of ticks that wait for the running tick. */
  readonly queued: number;
}

/** A catch-up: missed ticks, and ticks that fall due before the missed ticks have run. */
interface Backlog {
  readonly isPart: boolean;
  /**
   * The greatest number of waiting ticks. Without a limit, a handler that is slower than its period never catches up.
   */
  readonly mostQueued: number;
}

/** Decides about a tick. Ticks of a catch-up run one after another, except with `allowAll`. */
export function decideOverlap(policy: Overlap, occupancy: Occupancy, backlog: Backlog): OverlapDecision {
  if (policy === "allowAll" || occupancy.running + occupancy.queued === 0) return "run";
  if (backlog.isPart) return occupancy.queued < backlog.mostQueued ? "queue" : "skip";
  switch (policy) {
    case "skip":
      return "skip";
    case "bufferOne":
      return occupancy.queued === 0 ? "queue" : "skip";
    case "cancelOther":
      return "replace";
  }
}
