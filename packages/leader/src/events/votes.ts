/** Pure: what the votes of a refused attempt say about the nodes. */
import type { Vote } from "@x/redlock-core";

export interface Electorate {
  readonly nodeCount: number;
  readonly quorum: number;
}

/** The votes that failed, if there are so many that no quorum is left. */
export function decisiveFailures(votes: readonly Vote[], { nodeCount, quorum }: Electorate): readonly Vote[] {
  const failed = votes.filter((vote) => vote.vote === "failed");
  return nodeCount - failed.length < quorum ? failed : [];
}

export function mayVoteAgain(afterMs: number): string {
  return `nodes may vote again in ${afterMs} ms: a leader is possible then`;
}

/** Milliseconds until a quorum may vote again; undefined if it is not their quarantine that keeps the nodes from voting. */
export function quarantineLeftMs(votes: readonly Vote[], { nodeCount, quorum }: Electorate): number | undefined {
  const told = votes.map((vote) => {
    if (vote.vote === "failed") return Number.POSITIVE_INFINITY;
    return vote.vote === "quarantined" ? (vote.quarantineLeftMs ?? 0) : 0;
  });
  const silent = Array.from({ length: nodeCount - votes.length }, () => 0);
  const leftMs = [...told, ...silent].toSorted((a, b) => a - b)[quorum - 1] ?? 0;
  return leftMs > 0 && Number.isFinite(leftMs) ? leftMs : undefined;
}
