/** Pure: what one election object of one process is doing. `nextState` is the only function that changes it. */
import type { TermEndReason } from "../errors.ts";

export type ElectionState<Term = number> =
  /** The process takes no part. */
  | { readonly name: "idle" }
  /** The process stays out for a while, after a failure or a resignation. */
  | { readonly name: "cooldown" }
  /** The process waits for the lock. */
  | { readonly name: "follower" }
  /** The process has the lock and does not lead yet: it waits out `lockDelay` and writes its record. */
  | { readonly name: "candidate"; readonly term: Term }
  | { readonly name: "leader"; readonly term: Term }
  /** The term was asked to end. The process still has the lease, and renews it while the task comes to its end. */
  | { readonly name: "draining"; readonly term: Term; readonly reason: TermEndReason }
  /** The process takes no part any more. */
  | { readonly name: "stopped" };

export type ElectionEvent<Term = number> =
  | { readonly type: "campaign" }
  | { readonly type: "cool" }
  | { readonly type: "won"; readonly term: Term }
  | { readonly type: "led" }
  | { readonly type: "drain"; readonly reason: TermEndReason }
  /** The campaign was given up, or the term is over. */
  | { readonly type: "ended" }
  | { readonly type: "stop" };

export const IDLE: { readonly name: "idle" } = Object.freeze({ name: "idle" });

/** Returns the state after `event`. It is the same object if the event does not apply in it. */
export function nextState<Term>(state: ElectionState<Term>, event: ElectionEvent<Term>): ElectionState<Term> {
  if (state.name === "stopped") return state;
  switch (event.type) {
    case "campaign":
      return state.name === "idle" || state.name === "cooldown" ? { name: "follower" } : state;
    case "cool":
      return state.name === "idle" || state.name === "follower" ? { name: "cooldown" } : state;
    case "won":
      return state.name === "follower" ? { name: "candidate", term: event.term } : state;
    case "led":
      return state.name === "candidate" ? { name: "leader", term: state.term } : state;
    case "drain":
      return state.name === "leader" ? { name: "draining", term: state.term, reason: event.reason } : state;
    case "ended":
      return state.name === "idle" ? state : IDLE;
    case "stop":
      return { name: "stopped" };
  }
}

/** Returns the term of a process that believes that it has the lease. */
export function termOf<Term>(state: ElectionState<Term>): Term | undefined {
  return "term" in state ? state.term : undefined;
}
