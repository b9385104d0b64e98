/**
 * What keeps a candidate from its nodes, told at once: a node that is down, a quorum in quarantine.
 *
 * Guaranteed: each occurrence is told once; a node that has answered since counts anew. Not guaranteed: that a node which is told of is
 * needed: a minority that is down keeps nobody from leading.
 */
import type { Redlock, RedlockEvents, Vote } from "@x/redlock-core";
import { protocolOf } from "@x/redlock-core/protocol";
import { decisiveFailures, quarantineLeftMs } from "./votes.ts";

export interface NodeListener {
  down(node: string, error: Error): void;
  /** A quorum may vote again in `leftMs`. */
  quarantined(leftMs: number): void;
  /** A quorum votes, though not for us. */
  answered(): void;
}

/** Nodes tell the end of one quarantine in turn, each by its own clock. */
const SAME_QUARANTINE_MS = 1_000;

export class NodeWatch {
  readonly #redlock: Redlock;
  readonly #listener: NodeListener;
  readonly #down = new Set<string>();
  #quarantineEndMs = Number.NEGATIVE_INFINITY;

  constructor(redlock: Redlock, listener: NodeListener) {
    this.#redlock = redlock;
    this.#listener = listener;
  }

  /** Begins to listen for nodes that go down; returns a function that ends that. */
  start(): () => void {
    return this.#redlock.on("node", (message) => this.#changed(message));
  }

  /** An attempt was refused. */
  refused(votes: readonly Vote[]): void {
    for (const { node, vote } of votes) if (vote !== "failed") this.#down.delete(node);
    const failed = decisiveFailures(votes, this.#redlock);
    for (const { node, error } of failed) this.#tellDown(node, error ?? "no answer");
    const leftMs = quarantineLeftMs(votes, this.#redlock);
    if (leftMs !== undefined) this.#tellQuarantine(leftMs);
    else if (failed.length === 0) this.#listener.answered();
  }

  #changed({ node, state, error }: RedlockEvents["node"]): void {
    if (state === "ready") this.#down.delete(node);
    if (state === "down") this.#tellDown(node, error ?? "not connected");
  }

  #tellDown(node: string, reason: string): void {
    if (this.#down.has(node)) return;
    this.#down.add(node);
    this.#listener.down(node, new Error(`node ${node}: ${reason}`));
  }

  #tellQuarantine(leftMs: number): void {
    const endMs = protocolOf(this.#redlock).clock.monotonicMs() + leftMs;
    if (endMs <= this.#quarantineEndMs + SAME_QUARANTINE_MS) return;
    this.#quarantineEndMs = endMs;
    this.#listener.quarantined(leftMs);
  }
}
