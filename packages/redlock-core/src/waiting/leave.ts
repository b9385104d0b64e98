/**
 * To leave the line, a waiter is taken out on the nodes, with a reservation that it may have there.
 *
 * A node that could not be reached is told when its connection is ready, as long as a line lives on without anybody
 * who comes. Otherwise the lock would be reserved there, for a waiter that has gone, for as long as a reservation
 * lasts.
 */
import { type Engine, WAITER_TTL_MS } from "../rounds/engine.ts";
import { type RoundHandlers, startRound } from "../rounds/round.ts";
import { leaveText, type Target } from "../rules/operation.ts";

/** An enrolment is a name in lines, and where it may stand in one. */
export interface Enrolment {
  readonly member: string;
  /** The nodes that were asked to enrol it, and have not granted it the lock since. */
  readonly on: Set<number>;
}

/**
 * Leaves the lines. `only` says which nodes are asked; by default all, because a request that enrols may be about to
 * be sent.
 */
export function leaveLines(
  engine: Engine,
  target: Target,
  { member, on }: Enrolment,
  { only, observe }: Pick<RoundHandlers, "only" | "observe"> = {},
): void {
  const text = leaveText(target.keys.length, member);
  startRound(engine, target, text, {
    timeoutMs: engine.options.nodeTimeout,
    sendAnyway: true,
    observe,
    ...(only === undefined ? {} : { only }),
    onUndelivered: (node) => {
      if (!on.has(node)) return;
      const untilMs = engine.clock.monotonicMs() + WAITER_TTL_MS;
      engine.batchers[node]?.keepUndelivered({ target, text, isRelease: false, untilMs });
    },
    onAnswer: () => false,
  });
}
