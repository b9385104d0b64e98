import type { Emitter, Known } from "@x/redlock-core/protocol";
import type { TermEndReason } from "../errors.ts";
import { type AboutCandidate, publish } from "../kit/diagnostics.ts";
import type { LeaderTerm } from "../leader-term.ts";
import type { LeaderInfo } from "../rules/record.ts";

/** The events of an election. All durations are in milliseconds. */
export interface LeaderEvents {
  elected: LeaderTerm;
  /** A term ended, once for each that was elected. `heldMs` counts from its election. */
  ended: { readonly term: number; readonly reason: TermEndReason; readonly heldMs: number };
  /**
   * The leader of now, then each change of the leader or its value, as `observe()` sees it; null: nobody leads.
   * Observing starts with the first listener and ends with `stop()`.
   */
  leaderChange: LeaderInfo | null;
  /** A renewal succeeded. `remainingMs` is what is left until the deadline, which it has moved. */
  renewed: { readonly term: number; readonly tookMs: number; readonly remainingMs: number };
  renewFailed: { readonly term: number; readonly error: unknown; readonly remainingMs: number };
  /**
   * The task still runs though its term is over. The event comes once more when the task has ended, with the final
   * figure. A term that ends unasked ends under its task, so it comes at once.
   */
  overrun: { readonly term: number; readonly overrunMs: number };
  drainTimeout: { readonly term: number };
  /**
   * A lock node could not be reached, or failed so that no quorum was left. The event comes once until the node answers
   * again, and only while this object campaigns or runs.
   */
  nodeDown: { readonly node: string; readonly error: Error };
  /**
   * A quorum of nodes casts no vote for `quarantineLeftMs`, so nobody is elected: the nodes are new, restarted, or lost
   * their data. The event comes once each time.
   */
  quarantined: { readonly quarantineLeftMs: number };
  taskError: { readonly term: number; readonly error: unknown };
  /** Something failed and is tried again, or a listener threw. If nobody listens, nothing happens. */
  error: unknown;
}

/** Ends what the call that returned it has begun. */
export type Unsubscribe = () => void;

export const LEADER_EVENTS: Known<LeaderEvents> = {
  elected: true,
  ended: true,
  leaderChange: true,
  renewed: true,
  renewFailed: true,
  overrun: true,
  drainTimeout: true,
  nodeDown: true,
  quarantined: true,
  taskError: true,
  error: true,
};

/**
 * Publishes what the events have to tell. The messages of a term's begin and end, and of an observed change, have more,
 * and are published where that happens.
 */
export function publishEvents(events: Emitter<LeaderEvents>, own: AboutCandidate, deadlineMs: number): void {
  events.on("renewed", (facts) => publish("x.leader.renewed", () => ({ ...own, ...facts, deadlineMs })));
  events.on("renewFailed", (facts) => publish("x.leader.renewFailed", () => ({ ...own, ...facts, deadlineMs })));
  events.on("overrun", (facts) => publish("x.leader.overrun", () => ({ ...own, ...facts })));
  events.on("drainTimeout", (facts) => publish("x.leader.drainTimeout", () => ({ ...own, ...facts })));
  events.on("nodeDown", (facts) => publish("x.leader.nodeDown", () => ({ ...own, ...facts })));
  events.on("quarantined", (facts) => publish("x.leader.quarantined", () => ({ ...own, ...facts })));
  events.on("taskError", (facts) => publish("x.leader.taskError", () => ({ ...own, ...facts })));
  events.on("error", (error) => publish("x.leader.error", () => ({ ...own, error })));
}
