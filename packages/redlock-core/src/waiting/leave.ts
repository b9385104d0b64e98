/**
 * Removes a waiter from the lines of the nodes, together with its reservation if there is one.
 *
 * If a node cannot be reached, the request is sent again when the node's connection is ready, up to the lifetime of a
 * line without new waiters. Otherwise the node would reserve the lock for a waiter that has left, until the reservation
 * ends.
 */

import { type AnswerObserver, startRound } from "../rounds/round.ts";
import type { RoundEngine } from "../rounds/round-engine.ts";
import { leaveText, type Target, WAITER_TTL_MS } from "../rules/operation.ts";

/** Name of a waiter in the lines of the nodes, and the nodes whose lines may contain the name. */
export interface Enrolment {
  readonly member: string;
  /** Nodes that were asked to enrol the member and have not granted the lock since, as bits. */
  enrolledOn: number;
}

/**
 * Removes the member from the lines of `nodes` (bits). Default: all nodes, because a request that enrols the member may
 * be about to be sent.
 */
export function leaveLines(
  engine: RoundEngine,
  target: Target,
  enrolment: Readonly<Enrolment>,
  { nodes, observe }: { readonly nodes?: number; readonly observe?: AnswerObserver } = {},
): void {
  const text = leaveText(target.keys.length, enrolment.member);
  startRound(engine, {
    kind: "leave",
    target,
    text,
    timeoutMs: engine.options.nodeTimeout,
    isSentAnyway: true,
    nodes,
    observe,
    onAnswer: () => false,
    onUndelivered: (node) => {
      if ((enrolment.enrolledOn & (1 << node)) === 0) return;
      const untilMs = engine.clock.monotonicMs() + WAITER_TTL_MS;
      engine.batchers[node]?.keepUndelivered({ kind: "leave", target, text, untilMs });
    },
  });
}
