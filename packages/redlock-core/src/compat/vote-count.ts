/** The votes of one attempt, as node-redlock reports them. */

import { quorumOf } from "../quorum.ts";
import type { Observer } from "../round.ts";
import type { SharedEngine } from "./shared-engine.ts";
import { type ExecutionStats, ResourceLockedError } from "./types.ts";

export interface VoteCount {
  /** Resolves when every client has voted; never rejects. */
  readonly stats: Promise<ExecutionStats>;
  /** Clients that answered that the lock is held by another, or not ours. */
  readonly refusals: () => number;
  readonly observe: Observer;
}

/**
 * `isYes` judges a reply without error. `onError` is told of each client that failed: plain contention is not an error.
 */
export function countVotes(
  { engine, clients }: SharedEngine,
  rules: {
    readonly resourceCount: number;
    readonly isYes: (value: unknown) => boolean;
    readonly onError: (error: Error) => void;
  },
): VoteCount {
  const membershipSize = clients.length;
  const stats: ExecutionStats = {
    membershipSize,
    quorumSize: quorumOf(membershipSize),
    votesFor: new Set(),
    votesAgainst: new Map(),
  };
  let refusals = 0;
  let complete: (stats: ExecutionStats) => void = () => undefined;
  const all = new Promise<ExecutionStats>((resolve) => {
    complete = resolve;
  });
  let open = membershipSize;

  const observe: Observer = (node, answer) => {
    const client = clients[node];
    if (client === undefined) return;
    let error: Error | undefined;
    if (answer.kind === "error") {
      const isDown = engine.nodes[node]?.state === "down";
      error = isDown
        ? new Error("Connection is closed.", { cause: engine.nodes[node]?.lastError })
        : new Error(answer.message);
    } else if (!rules.isYes(answer.reply.value)) {
      const applied =
        typeof answer.reply.value === "number" ? Math.min(answer.reply.value, rules.resourceCount - 1) : 0;
      refusals += 1;
      stats.votesAgainst.set(client, refusal(applied, rules.resourceCount));
    } else if (answer.reply.quarantineLeftMs > 0) {
      error = new Error(
        `The node restarted or lost its data; it may vote again in ${answer.reply.quarantineLeftMs} ms.`,
      );
    } else {
      stats.votesFor.add(client);
    }
    if (error !== undefined) {
      stats.votesAgainst.set(client, error);
      rules.onError(error);
    }
    open -= 1;
    if (open === 0) complete(stats);
  };
  return { stats: all, refusals: () => refusals, observe };
}

function refusal(applied: number, resourceCount: number): ResourceLockedError {
  return new ResourceLockedError(
    `The operation was applied to: ${applied} of the ${resourceCount} requested resources.`,
  );
}
