/**
 * Reports immediately why a candidate gets no votes: a node that is down, or a quorum in quarantine.
 *
 * Each occurrence is reported once. A node that answers and goes down again is reported again. A reported node may not
 * be needed: a minority that is down does not prevent an election.
 */
import type { RedlockEvents, Vote } from "@x/redlock-core";
import type { Standing } from "../term/standing.ts";

/** The nodes of one quarantine end their quarantines within this time, each by its own clock. */
const SAME_QUARANTINE_MS = 1_000;

export class NodeWatch {
  readonly #standing: Standing<unknown>;
  readonly #down = new Set<string>();
  #quarantineEndMs = Number.NEGATIVE_INFINITY;

  constructor(standing: Standing<unknown>) {
    this.#standing = standing;
  }

  /** Listens for nodes that go down. Returns a function that ends the listening. */
  start(): () => void {
    return this.#standing.redlock.on("nodeChanged", (message) => this.#changed(message));
  }

  /** Records the votes of a refused attempt, and reports the cause. */
  refused(votes: readonly Vote[]): void {
    const { redlock } = this.#standing;
    for (const { node, vote } of votes) if (vote !== "failed") this.#down.delete(node);
    const failed = decisiveFailures(votes, redlock);
    for (const { node, error } of failed) this.#tellDown(node, error ?? "no answer");
    const leftMs = quarantineLeftMs(votes, redlock);
    if (leftMs !== undefined) this.#tellQuarantine(leftMs);
    else if (failed.length === 0) this.#standing.lastError = undefined;
  }

  #changed({ node, state, error }: RedlockEvents["nodeChanged"]): void {
    if (state === "ready") this.#down.delete(node);
    if (state === "down") this.#tellDown(node, error?.message ?? "not connected");
  }

  #tellDown(node: string, reason: string): void {
    if (this.#down.has(node)) return;
    this.#down.add(node);
    const error = new Error(`node ${node}: ${reason}`);
    this.#standing.lastError = error;
    this.#standing.events.emit("nodeFailed", { node, error });
  }

  #tellQuarantine(leftMs: number): void {
    const endMs = this.#standing.clock.monotonicMs() + leftMs;
    if (endMs <= this.#quarantineEndMs + SAME_QUARANTINE_MS) return;
    this.#quarantineEndMs = endMs;
    const quarantineLeftMs = Math.ceil(leftMs);
    this.#standing.lastError = new Error(`nodes may vote again in ${quarantineLeftMs} ms: a leader is possible then`);
    this.#standing.events.emit("quarantined", { quarantineLeftMs });
  }
}

interface Electorate {
  readonly nodeCount: number;
  readonly quorum: number;
}

/** Returns the failed votes if too few other nodes are left for a quorum. Empty otherwise. */
export function decisiveFailures(votes: readonly Vote[], { nodeCount, quorum }: Electorate): readonly Vote[] {
  const failed = votes.filter((vote) => vote.vote === "failed");
  return nodeCount - failed.length < quorum ? failed : [];
}

/**
 * Returns the milliseconds until a quorum may vote again. Undefined if the nodes do not vote for another reason than a
 * quarantine.
 */
export function quarantineLeftMs(votes: readonly Vote[], { nodeCount, quorum }: Electorate): number | undefined {
  const told = votes.map((vote) => {
    if (vote.vote === "failed") return Number.POSITIVE_INFINITY;
    return vote.vote === "quarantined" ? (vote.quarantineLeftMs ?? 0) : 0;
  });
  const silent = Array.from({ length: nodeCount - votes.length }, () => 0);
  const leftMs = [...told, ...silent].toSorted((a, b) => a - b)[quorum - 1] ?? 0;
  return leftMs > 0 && Number.isFinite(leftMs) ? leftMs : undefined;
}
