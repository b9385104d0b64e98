/**
 * A waiter that leaves the line is removed on the nodes, together with its reservation if it has one.
 *
 * A node that could not be reached is asked again when its connection is ready, for as long as a line without new
 * waiters lives. Otherwise the node would reserve the lock for a waiter that has left, until the reservation ends.
 */
import { type Engine, WAITER_TTL_MS } from "../rounds/engine.ts";
import { type Observer, startRound } from "../rounds/round.ts";
import { leaveText, type Target } from "../rules/operation.ts";

/** A waiter's name in the nodes' lines, and the nodes that may have the name in their line. */
export interface Enrolment {
  readonly member: string;
  /** The nodes that were asked to enrol the member and have not granted the lock since, as bits. */
  enrolledOn: number;
}

/**
 * Removes the member from the lines of `nodes` (bits; default: all, because a request that enrols the member may be
 * about to be sent).
 */
export function leaveLines(
  engine: Engine,
  target: Target,
  enrolment: Readonly<Enrolment>,
  { nodes, observe }: { readonly nodes?: number; readonly observe?: Observer } = {},
): void {
  const text = leaveText(target.keys.length, enrolment.member);
  startRound(
    engine,
    {
      kind: "other",
      target,
      text,
      timeoutMs: engine.options.nodeTimeout,
      isSentAnyway: true,
      ...(nodes === undefined ? {} : { nodes }),
    },
    {
      observe,
      onAnswer: () => false,
      onUndelivered: (node) => {
        if ((enrolment.enrolledOn & (1 << node)) === 0) return;
        const untilMs = engine.clock.monotonicMs() + WAITER_TTL_MS;
        engine.batchers[node]?.keepUndelivered({ kind: "other", target, text, untilMs });
      },
    },
  );
}
