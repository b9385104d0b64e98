/** Pure: the state of one election object. `nextState` is the only function that changes the state. */
import type { TermEndReason } from "../errors.ts";

export type ElectionState<Term = number> =
  /** The process does not take part. */
  | { readonly name: "idle" }
  /** The process pauses after a failure or a resignation. */
  | { readonly name: "cooldown" }
  /** The process waits for the lock. */
  | { readonly name: "follower" }
  /** The process holds the lock and does not lead yet: it waits for `lockDelay` and writes its record. */
  | { readonly name: "candidate"; readonly term: Term }
  | { readonly name: "leader"; readonly term: Term }
  /** The term was asked to end. The process renews the lease until the task has ended. */
  | { readonly name: "draining"; readonly term: Term; readonly reason: TermEndReason }
  /** The process does not take part any more. */
  | { readonly name: "stopped" };

export type ElectionEvent<Term = number> =
  | { readonly type: "campaign" }
  | { readonly type: "cool" }
  | { readonly type: "won"; readonly term: Term }
  | { readonly type: "led" }
  | { readonly type: "drain"; readonly reason: TermEndReason }
  /** The campaign was cancelled, or the term is over. */
  | { readonly type: "ended" }
  | { readonly type: "stop" };

export const IDLE: { readonly name: "idle" } = Object.freeze({ name: "idle" });

/** Returns the state after `event`. Returns the same object if the event does not apply in this state. */
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

/** Returns the term of a process that trusts its lease. Undefined in the other states. */
export function termOf<Term>(state: ElectionState<Term>): Term | undefined {
  return "term" in state ? state.term : undefined;
}
