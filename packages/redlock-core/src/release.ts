/**
 * Release: compare-and-delete on every node that may hold a key of ours, also those that never answered.
 *
 * Guaranteed: it never throws, and it never deletes somebody else's key. A node that could not be reached is released again
 * when its connection is ready, as long as the key may live.
 */
import type { Engine } from "./engine.ts";
import { outcome } from "./quorum.ts";
import { type Observer, startRound } from "./round.ts";

export interface ReleaseRequest {
  readonly resources: readonly string[];
  readonly keys: readonly string[];
  readonly slot: number;
  readonly token: string;
  readonly ttlMs: number;
  /** Per node: whether it may hold a key of ours; the others are not asked. */
  readonly mayHold: (node: number) => boolean;
  readonly observe?: Observer | undefined;
}

/** Resolves true as soon as a quorum of nodes confirms that every key held the token until now, else false. */
export function releaseEverywhere(engine: Engine, request: ReleaseRequest): Promise<boolean> {
  const nodeCount = engine.nodes.length;
  const { keys, slot } = request;
  const args = ["R", String(request.resources.length), request.token];
  const asked = engine.nodes.map((_, node) => request.mayHold(node));
  const tally = { yes: 0, no: asked.filter((isAsked) => !isAsked).length };
  const untilMs = engine.clock.monotonicMs() + request.ttlMs;
  if (tally.no === nodeCount) return Promise.resolve(false);

  return new Promise((resolve) => {
    startRound(
      engine,
      { keys, args, slot },
      {
        timeoutMs: engine.options.nodeTimeout,
        sendAnyway: true,
        only: (node) => asked[node] === true,
        onUndelivered: (node) => engine.batchers[node]?.keepUndelivered({ keys, args, slot, untilMs }),
        observe: request.observe,
        onAnswer: (_node, answer) => {
          if (answer.kind === "reply" && answer.reply.value === request.resources.length) tally.yes += 1;
          else tally.no += 1;
          const decided = outcome(tally, nodeCount);
          if (decided === "open") return false;
          resolve(decided === "won");
          return true;
        },
      },
    );
  });
}
