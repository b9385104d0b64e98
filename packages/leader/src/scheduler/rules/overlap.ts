/** Pure: what happens to a tick while an earlier one of the same schedule still runs. The words are Temporal's. */

export type Overlap = "skip" | "bufferOne" | "cancelOther" | "allowAll";

export type OverlapDecision =
  | "run"
  /** The tick is not run, and counts as dealt with. */
  | "skip"
  /** Runs when the others have ended. */
  | "queue"
  /** The running one is asked to end; this runs when it has. */
  | "replace";

interface Occupancy {
  readonly running: number;
  /** Ticks that wait for the running one. */
  readonly queued: number;
}

/** What is caught up: ticks that passed, and those that fall due before these have run. */
interface Backlog {
  readonly isPart: boolean;
  /** More do not wait: a handler that takes longer than its period would never catch up. */
  readonly mostQueued: number;
}

/** Ticks of a backlog run one after another instead. */
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
