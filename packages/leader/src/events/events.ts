import type { AllNames, Emitter } from "@x/redlock-core/kit";
import type { TermEndReason } from "../errors.ts";
import { type AboutCandidate, channels } from "../kit/diagnostics.ts";
import type { LeaderTerm } from "../leader-term.ts";
import type { LeaderInfo } from "../rules/record.ts";

/** The events of an election. All durations are in milliseconds. */
export interface LeaderEvents {
  elected: LeaderTerm;
  /** A term ended, once for each that was elected. `heldMs` counts from its election. */
  ended: { readonly term: number; readonly reason: TermEndReason; readonly heldMs: number };
  /**
   * The current leader, then each change of the leader or its value, as in `observe()`. Null if there is no leader.
   * Observing starts with the first listener and ends with `stop()`.
   */
  leaderChanged: LeaderInfo | null;
  /** A renewal succeeded. `remainingMs` is the time until the new deadline. */
  renewed: { readonly term: number; readonly tookMs: number; readonly remainingMs: number };
  renewFailed: { readonly term: number; readonly error: unknown; readonly remainingMs: number };
  /**
   * The task still runs although its term is over. Emitted immediately when a term ends without a request, and again
   * with the final figure when the task has ended.
   */
  overrun: { readonly term: number; readonly overrunMs: number };
  drainTimedOut: { readonly term: number };
  /**
   * A lock node could not be reached, or failed so that no quorum was left. Emitted once until the node answers again,
   * and only while this object campaigns or runs.
   */
  nodeFailed: { readonly node: string; readonly error: Error };
  /**
   * A quorum of nodes casts no vote for `quarantineLeftMs`, so no candidate is elected: the nodes are new, restarted,
   * or lost their data. Emitted once for each quarantine.
   */
  quarantined: { readonly quarantineLeftMs: number };
  taskFailed: { readonly term: number; readonly error: unknown };
  /**
   * A request failed and is repeated, or a listener threw. Without a listener, the first error is a process warning.
   */
  error: unknown;
}

/** Ends the subscription that returned this function. */
export type Unsubscribe = () => void;

export const LEADER_EVENTS: AllNames<LeaderEvents> = {
  elected: true,
  ended: true,
  leaderChanged: true,
  renewed: true,
  renewFailed: true,
  overrun: true,
  drainTimedOut: true,
  nodeFailed: true,
  quarantined: true,
  taskFailed: true,
  error: true,
};

/**
 * Publishes the payloads of events. The messages about a term's beginning and end and about an observed leader have
 * more fields. The code that emits these events publishes them.
 */
export function publishEvents(events: Emitter<LeaderEvents>, own: AboutCandidate, deadlineMs: number): void {
  events.on("renewed", (facts) => channels.publish("renewed", () => ({ ...own, ...facts, deadlineMs })));
  events.on("renewFailed", (facts) => channels.publish("renewFailed", () => ({ ...own, ...facts, deadlineMs })));
  events.on("overrun", (facts) => channels.publish("overrun", () => ({ ...own, ...facts })));
  events.on("drainTimedOut", (facts) => channels.publish("drainTimedOut", () => ({ ...own, ...facts })));
  events.on("nodeFailed", (facts) => channels.publish("nodeFailed", () => ({ ...own, ...facts })));
  events.on("quarantined", (facts) => channels.publish("quarantined", () => ({ ...own, ...facts })));
  events.on("taskFailed", (facts) => channels.publish("taskFailed", () => ({ ...own, ...facts })));
  events.on("error", (error) => channels.publish("error", () => ({ ...own, error })));
}
