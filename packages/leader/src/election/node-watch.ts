/**
 * A candidate is told at once what keeps it from its nodes: a node that is down, or a quorum in quarantine.
 *
 * Each occurrence is told once, and a node that has answered since counts anew. It is not guaranteed that a node which
 * is told of is needed: a minority that is down keeps nobody from leading.
 */
import type { RedlockEvents, Vote } from "@x/redlock-core";
import { mayVoteAgain } from "../events/log.ts";
import type { Standing } from "../term/standing.ts";

/** The nodes of one quarantine end it one after the other, each by its own clock, within this time. */
const SAME_QUARANTINE_MS = 1_000;

export class NodeWatch {
  readonly #standing: Standing<unknown>;
  readonly #down = new Set<string>();
  #quarantineEndMs = Number.NEGATIVE_INFINITY;

  constructor(standing: Standing<unknown>) {
    this.#standing = standing;
  }

  /** Begins to listen for nodes that go down, and returns a function that ends that. */
  start(): () => void {
    return this.#standing.redlock.on("node", (message) => this.#changed(message));
  }

  /** Notes the votes of an attempt that was refused. */
  refused(votes: readonly Vote[]): void {
    const { redlock } = this.#standing;
    for (const { node, vote } of votes) if (vote !== "failed") this.#down.delete(node);
    const failed = decisiveFailures(votes, redlock);
    for (const { node, error } of failed) this.#tellDown(node, error ?? "no answer");
    const leftMs = quarantineLeftMs(votes, redlock);
    if (leftMs !== undefined) this.#tellQuarantine(leftMs);
    else if (failed.length === 0) this.#standing.lastError = undefined;
  }

  #changed({ node, state, error }: RedlockEvents["node"]): void {
    if (state === "ready") this.#down.delete(node);
    if (state === "down") this.#tellDown(node, error ?? "not connected");
  }

  #tellDown(node: string, reason: string): void {
    if (this.#down.has(node)) return;
    this.#down.add(node);
    const error = new Error(`node ${node}: ${reason}`);
    this.#standing.lastError = error;
    this.#standing.events.emit("nodeDown", { node, error });
  }

  #tellQuarantine(leftMs: number): void {
    const endMs = this.#standing.clock.monotonicMs() + leftMs;
    if (endMs <= this.#quarantineEndMs + SAME_QUARANTINE_MS) return;
    this.#quarantineEndMs = endMs;
    const quarantineLeftMs = Math.ceil(leftMs);
    this.#standing.lastError = new Error(mayVoteAgain(quarantineLeftMs));
    this.#standing.events.emit("quarantined", { quarantineLeftMs });
  }
}

interface Electorate {
  readonly nodeCount: number;
  readonly quorum: number;
}

/** Returns the votes that failed, if there are so many that no quorum is left. */
export function decisiveFailures(votes: readonly Vote[], { nodeCount, quorum }: Electorate): readonly Vote[] {
  const failed = votes.filter((vote) => vote.vote === "failed");
  return nodeCount - failed.length < quorum ? failed : [];
}

/**
 * Returns the milliseconds until a quorum may vote again. The result is undefined if it is not their quarantine that
 * keeps the nodes from voting.
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
