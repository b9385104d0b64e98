/** Pure: parses the nodes' replies to a request for permits, and decides the outcome of the request. */
import type { Vote } from "@x/redlock-core";
import {
  acquisitionOutcome,
  emptyTally,
  type NodeReply,
  quorumFreeMs,
  type Refusal,
  refusalOf,
  type VoteTally,
} from "@x/redlock-core/protocol";

/** Figures in the message to a refused caller. */
export interface Figures {
  readonly used: number;
  readonly waiting: number;
}

/** Parsed reply of one node. permits.lua.ts documents the replies. */
export interface PermitAnswer {
  readonly vote: Vote;
  /** Fencing token of a grant. For a refused proposal, the token that the next proposal must exceed. */
  readonly fencingToken?: number;
  readonly figures?: Figures;
  /** Time until this node should be asked again, in ms. Undefined if unknown. */
  readonly askAgainMs?: number | undefined;
  readonly nodeTimeUs?: number;
}

export function answerOf(reply: NodeReply, resource: string): PermitAnswer {
  const about = { node: reply.node, tookMs: Math.round(reply.tookMs) };
  if (!reply.ok) return { vote: { ...about, vote: "failed", error: reply.error.message } };
  const [kind, ...facts] = reply.value as readonly [number, ...(string | number)[]];
  const [first, second] = [Number(facts[0]), Number(facts[1])];
  if (kind === 1) return { vote: { ...about, vote: "granted" }, fencingToken: first, askAgainMs: 0 };
  if (kind === 2) return { vote: { ...about, vote: "quarantined", quarantineLeftMs: first }, askAgainMs: first };
  if (kind === 3) return { vote: { ...about, vote: "stale" }, fencingToken: first, nodeTimeUs: second, askAgainMs: 0 };
  return {
    vote: { ...about, vote: "held", resource },
    askAgainMs: first,
    figures: { used: second, waiting: Number(facts[2]) },
    nodeTimeUs: Number(facts[3]),
  };
}

function tallyOf(answers: readonly PermitAnswer[]): VoteTally {
  const tally = emptyTally();
  for (const { vote } of answers) tally[vote.vote] += 1;
  return tally;
}

/** Returns `open` while the nodes that have not answered may decide the outcome. */
export function outcomeOf(answers: readonly PermitAnswer[], nodeCount: number): ReturnType<typeof acquisitionOutcome> {
  return acquisitionOutcome(tallyOf(answers), nodeCount);
}

/** Returns the reason why no quorum has granted the request. */
export function whyRefused(answers: readonly PermitAnswer[], nodeCount: number): Refusal {
  return refusalOf(tallyOf(answers), nodeCount);
}

/** Whether a node may have granted a request that no quorum has granted. */
export function mayBeGranted(answers: readonly PermitAnswer[], nodeCount: number): boolean {
  const isSure = ({ vote }: PermitAnswer): boolean => vote.vote !== "granted" && vote.vote !== "failed";
  return !(answers.length === nodeCount && answers.every(isSure));
}

/** Returns the ms until a quorum may be free. A node without this information counts with `unknownMs`. */
export function askAgainMs(answers: readonly PermitAnswer[], nodeCount: number, unknownMs: number): number {
  return quorumFreeMs(Array.from({ length: nodeCount }, (_, node) => answers[node]?.askAgainMs ?? unknownMs));
}

/** Returns the largest figures of the nodes that refused, because each node may know only a part. */
export function figuresOf(answers: readonly PermitAnswer[]): Figures {
  const told = answers.flatMap(({ figures }) => figures ?? []);
  const most = (of: (figures: Figures) => number): number => Math.max(0, ...told.map(of));
  return { used: most(({ used }) => used), waiting: most(({ waiting }) => waiting) };
}
