/** Pure: what happens to a tick while an earlier one of the same schedule still runs. The words are Temporal's. */

export type Overlap = "skip" | "bufferOne" | "cancelOther" | "allowAll";

export type OverlapDecision =
  | "run"
  /** Not run; counts as dealt with. */
  | "skip"
  /** Runs when the others have ended. */
  | "queue"
  /** The running one is asked to end; this runs when it has. */
  | "replace";

export interface Occupancy {
  readonly running: number;
  /** Ticks that wait for the running one. */
  readonly queued: number;
}

/** Ticks that are caught up, and ticks that come while others are still being caught up, run one after another instead. */
export function decideOverlap(policy: Overlap, occupancy: Occupancy, isBacklog: boolean): OverlapDecision {
  if (policy === "allowAll" || occupancy.running + occupancy.queued === 0) return "run";
  if (isBacklog) return "queue";
  switch (policy) {
    case "skip":
      return "skip";
    case "bufferOne":
      return occupancy.queued === 0 ? "queue" : "skip";
    case "cancelOther":
      return "replace";
  }
}
