/**
 * Leaving the queue: takes a waiter out on the nodes, with a reservation that it may have there. Where that does not arrive, its
 * turn comes to nobody, and is passed on then (hints.ts).
 */
import type { Engine } from "./engine.ts";
import { leaveOperation, type Target } from "./operation.ts";
import { startRound } from "./round.ts";

/** `only`: on which nodes; default: all. */
export function leaveQueues(engine: Engine, target: Target, member: string, only?: (node: number) => boolean): void {
  startRound(engine, leaveOperation(target, member), {
    timeoutMs: engine.options.nodeTimeout,
    ...(only === undefined ? {} : { only }),
    onAnswer: () => false,
  });
}
