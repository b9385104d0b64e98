/**
 * This waiter attempts nothing itself: it stands in the queue, and is told when it is its turn. It serves callers
 * that wait without a call of `acquire` in hand, like a job that went back to its queue.
 *
 * It resolves at the latest a moment after the lease ends that the nodes told of. Where they cannot tell, it resolves
 * sooner: see `UNKNOWN_MS` in waiting.ts and `askAgainMs` in scripts/hand-over.lua.ts.
 *
 * It is not guaranteed that the lock is free then. From the turn on, the lock is reserved for this order for
 * `GRANT_TTL_MS`.
 */
import type { Engine } from "../rounds/engine.ts";
import { type Round, startRound } from "../rounds/round.ts";
import { type Target, waitText } from "../rules/operation.ts";
import type { Hints } from "./hints.ts";
import type { Limit } from "./limit.ts";
import { Waiter } from "./waiting.ts";

export async function untilTurn(
  engine: Engine,
  hints: Hints,
  request: { readonly resource: string; readonly order: number | undefined; readonly limit: Limit },
): Promise<"turn" | "cancelled"> {
  const { limit } = request;
  const target = engine.targetOf([request.resource]);
  await limit.until(hints.open());
  const waiter = new Waiter(engine, hints, target, request.order ?? engine.fencingClock.order(engine.clock.wallMs()));
  const freeInMs = await limit.until(enrol(engine, waiter, target));
  if (freeInMs !== undefined) await waiter.untilTurn(freeInMs, limit, "quorum");
  // A waiter that ends by the clock still stands in line, for a turn that nobody would take.
  // Asking again keeps the place, by its order.
  if (limit.reason === undefined && waiter.hasTurn) waiter.close();
  else waiter.leave();
  return limit.reason === undefined ? "turn" : "cancelled";
}

/**
 * Asks the nodes to enrol the waiter. Resolves when a quorum has told it or all have answered, with the milliseconds
 * until each node's key expires. Infinity means that this is not known.
 */
function enrol(engine: Engine, waiter: Waiter, target: Target): Promise<readonly number[]> {
  const freeInMs = engine.nodes.map(() => Number.POSITIVE_INFINITY);
  let open = freeInMs.length;
  let told = 0;
  return new Promise((resolve) => {
    let round: Round | undefined;
    round = startRound(engine, target, waitText(target.keys.length, waiter.order, waiter.member), {
      timeoutMs: engine.options.nodeTimeout,
      onAnswer: (node, answer) => {
        if (round?.sent(node) === true) waiter.on.add(node);
        const pttl = answer.kind === "reply" ? Number(answer.value) : -1;
        // Free now, or reserved for whoever is first: the hint decides, not the clock.
        freeInMs[node] = pttl === -1 ? Number.POSITIVE_INFINITY : Math.max(pttl, 0);
        open -= 1;
        if (answer.kind === "reply") told += 1;
        if (told >= engine.quorum || open === 0) resolve([...freeInMs]);
        return open === 0;
      },
    });
  });
}
