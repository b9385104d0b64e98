/** Counts the votes of one attempt in the form in which node-redlock reports them. */
import type { LockSteps, NodeAnswer, OnAnswer } from "@x/redlock-core/protocol";
import type { SharedEngine } from "./shared-engine.ts";
import { type ExecutionStats, ResourceLockedError } from "./types.ts";

export interface Votes {
  readonly onAnswer: OnAnswer;
  /** Resolves when every client has voted. Never rejects. Called once. */
  readonly untilComplete: () => Promise<ExecutionStats>;
}

/** The call whose votes are counted. */
interface Voting {
  readonly shared: SharedEngine;
  readonly steps: LockSteps;
  readonly onVoteAgainst: (error: Error) => void;
}

/** Returns the votes of a new attempt. Only an attempt that counts reports contention. */
export function newVotes(call: Voting, isCounted = true): Votes {
  const { clients, redlock } = call.shared;
  const [membershipSize, quorumSize] = [clients.length, redlock.quorum];
  const stats: ExecutionStats = { membershipSize, quorumSize, votesFor: new Set(), votesAgainst: new Map() };
  let open = clients.length;
  let onComplete: ((stats: ExecutionStats) => void) | undefined;
  const onAnswer: OnAnswer = (node, answer) => {
    const client = clients[node];
    const error = errorOf(call, node, answer);
    if (client !== undefined && error !== undefined) {
      stats.votesAgainst.set(client, error);
      if (isCounted || !(error instanceof ResourceLockedError)) call.onVoteAgainst(error);
    } else if (client !== undefined && answer.kind === "answered") stats.votesFor.add(client);
    open -= 1;
    if (open === 0) onComplete?.(stats);
  };
  const untilComplete = (): Promise<ExecutionStats> =>
    open === 0 ? Promise.resolve(stats) : new Promise((resolve) => void (onComplete = resolve));
  return { onAnswer, untilComplete };
}

/** Returns the error of a vote against the call. */
function errorOf({ shared, steps }: Voting, node: number, answer: NodeAnswer): Error | undefined {
  if (answer.kind === "not asked") return undefined;
  if (answer.kind === "failed") {
    const { state, lastError } = shared.protocol.nodes[node] ?? {};
    return state === "down" ? new Error("Connection is closed.", { cause: lastError }) : new Error(answer.error);
  }
  const { applied, wrongType } = answer;
  if (applied === steps.resourceCount) return undefined;
  return new ResourceLockedError(
    `The operation was applied to: ${applied} of the ${steps.resourceCount} requested resources.`,
    wrongType === undefined ? undefined : { cause: new Error(wrongType) },
  );
}
