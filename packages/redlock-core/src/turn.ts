/**
 * A waiter that attempts nothing itself: it stands in the queue, and is told when it is its turn. For those who wait
 * without a call of `acquire` in hand, like a job that went back to its queue.
 *
 * Guaranteed: it resolves, at the latest a moment after the lease ends that the nodes told of. Not guaranteed: that the lock
 * is free then. From the turn on the lock is reserved for this order for `GRANT_TTL_MS`.
 */
import type { Engine } from "./engine.ts";
import type { Hints } from "./hints.ts";
import type { Limit } from "./limit.ts";
import { type Target, waitOperation } from "./operation.ts";
import { startRound } from "./round.ts";
import { Waiter } from "./waiting.ts";

export async function untilTurn(
  engine: Engine,
  hints: Hints,
  request: { readonly resource: string; readonly order: number | undefined; readonly limit: Limit },
): Promise<"turn" | "cancelled"> {
  const { limit } = request;
  const target = engine.targetOf([request.resource]);
  await limit.until(hints.open());
  const waiter = new Waiter(engine, hints, request.order ?? engine.sightings.order(engine.clock.wallMs()));
  const freeInMs = await limit.until(enrol(engine, waiter, target));
  if (freeInMs !== undefined) await waiter.untilTurn(freeInMs, limit, "quorum");
  if (limit.reason !== undefined) {
    waiter.leave(target);
    return "cancelled";
  }
  waiter.close();
  return "turn";
}

/** Resolves with the milliseconds until each node's key expires, Infinity where that is not known. */
function enrol(engine: Engine, waiter: Waiter, target: Target): Promise<readonly number[]> {
  const freeInMs = engine.nodes.map(() => Number.POSITIVE_INFINITY);
  let open = freeInMs.length;
  return new Promise((resolve) => {
    startRound(engine, waitOperation(target, waiter), {
      timeoutMs: engine.options.nodeTimeout,
      onAnswer: (node, answer) => {
        const pttl = answer.kind === "reply" ? Number(answer.value) : -1;
        // Free now, or reserved for whoever is first: the hint decides, not the clock.
        freeInMs[node] = pttl === -1 ? Number.POSITIVE_INFINITY : Math.max(pttl, 0);
        open -= 1;
        if (open === 0) resolve(freeInMs);
        return open === 0;
      },
    });
  });
}
