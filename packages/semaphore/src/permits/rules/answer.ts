/** Pure: what the nodes answer to a request for permits, and what follows for all of them together. */
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

/** What a refused caller is told. */
export interface Figures {
  readonly used: number;
  readonly waiting: number;
}

/** What one node answered; permits.lua.ts has the replies. */
export interface Answer {
  readonly vote: Vote;
  /** The fencing token of a grant, or the one that a refused proposal has to be above. */
  readonly fencingToken?: number;
  readonly figures?: Figures;
  /** When to ask this node again, in ms; undefined if that is not known. */
  readonly askAgainMs?: number | undefined;
  readonly nodeTimeUs?: number;
}

export function answerOf(reply: NodeReply, resource: string): Answer {
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

function tallyOf(answers: readonly Answer[]): VoteTally {
  const tally = emptyTally();
  for (const { vote } of answers) tally[vote.vote] += 1;
  return tally;
}

/** `open` as long as the nodes that have not answered may decide. */
export function outcomeOf(answers: readonly Answer[], nodeCount: number): ReturnType<typeof acquisitionOutcome> {
  return acquisitionOutcome(tallyOf(answers), nodeCount);
}

/** Why the nodes together did not grant. */
export function whyRefused(answers: readonly Answer[], nodeCount: number): Refusal {
  return refusalOf(tallyOf(answers), nodeCount);
}

/** Whether a node may have granted something that a quorum did not. */
export function mayBeGranted(answers: readonly Answer[], nodeCount: number): boolean {
  const isSure = ({ vote }: Answer): boolean => vote.vote !== "granted" && vote.vote !== "failed";
  return !(answers.length === nodeCount && answers.every(isSure));
}

/** When a quorum may be free, in ms. Nodes of which that is not known count with `unknownMs`. */
export function askAgainMs(answers: readonly Answer[], nodeCount: number, unknownMs: number): number {
  return quorumFreeMs(Array.from({ length: nodeCount }, (_, node) => answers[node]?.askAgainMs ?? unknownMs));
}

/** What the nodes that refused say of the holders and the line; each may know only a part. */
export function figuresOf(answers: readonly Answer[]): Figures {
  const told = answers.flatMap(({ figures }) => figures ?? []);
  const most = (of: (figures: Figures) => number): number => Math.max(0, ...told.map(of));
  return { used: most(({ used }) => used), waiting: most(({ waiting }) => waiting) };
}
