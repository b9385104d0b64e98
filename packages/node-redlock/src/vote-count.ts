/** Counts the votes of one attempt in the form in which node-redlock reports them. */

import { deferred } from "@x/redlock-core/kit";
import { type NodeAnswer, type OnAnswer } from "@x/redlock-core/protocol";
import type { SharedEngine } from "./shared-engine.ts";
import { type Client, type ExecutionStats, ResourceLockedError } from "./types.ts";

/**
 * How long a decided call waits for the missing votes, in ms. The keys are written over other connections than the
 * client's. Without this wait, code that reads the keys over the client right after the call could read from nodes that
 * have not voted yet.
 *
 * If a client is slower, later calls do not wait for it until it has answered.
 */
const GRACE_MS = 50;

export class VoteCount {
  /** Resolves when every client has voted. Never rejects. */
  readonly stats: Promise<ExecutionStats>;
  readonly onAnswer: OnAnswer = (node, answer) => this.#count(node, answer);
  readonly #shared: SharedEngine;
  readonly #resourceCount: number;
  readonly #onError: (error: Error) => void;
  readonly #stats: ExecutionStats;
  readonly #onComplete: (stats: ExecutionStats) => void;
  /** Clients that have not voted. */
  readonly #open: Set<Client>;
  #onAllVotes: (() => void) | undefined;
  #refusals = 0;

  /** `onError` is called for each client that failed. Contention is not an error. */
  constructor(shared: SharedEngine, resourceCount: number, onError: (error: Error) => void) {
    const { clients, quorum } = shared;
    this.#shared = shared;
    this.#resourceCount = resourceCount;
    this.#onError = onError;
    this.#open = new Set(clients);
    this.#stats = {
      membershipSize: clients.length,
      quorumSize: quorum,
      votesFor: new Set(),
      votesAgainst: new Map(),
    };
    const { promise, resolve } = deferred<ExecutionStats>();
    this.stats = promise;
    this.#onComplete = resolve;
  }

  /** Number of clients that reported that the lock is held by another, or not held by the caller. */
  get refusals(): number {
    return this.#refusals;
  }

  /** Resolves when every client that is not slow has voted, at the latest after `GRACE_MS`. */
  async settled(): Promise<void> {
    if (this.#isSettled) return;
    const { clock } = this.#shared.protocol;
    await new Promise<void>((resolve) => {
      const giveUp = (): void => {
        for (const client of this.#open) this.#shared.slow.add(client);
        resolve();
      };
      const cancel = clock.schedule(GRACE_MS, giveUp, { keepAlive: true });
      this.#onAllVotes = () => {
        cancel();
        resolve();
      };
    });
  }

  get #isSettled(): boolean {
    for (const client of this.#open) if (!this.#shared.slow.has(client)) return false;
    return true;
  }

  #count(node: number, answer: NodeAnswer): void {
    const client = this.#shared.clients[node];
    if (client === undefined || !this.#open.delete(client)) return;
    if (answer.kind === "answered") this.#shared.slow.delete(client);
    if (answer.kind !== "not asked") this.#record(client, this.#errorOf(node, answer));
    if (this.#open.size === 0) this.#onComplete(this.#stats);
    if (this.#isSettled) this.#onAllVotes?.();
  }

  #record(client: Client, error: Error | undefined): void {
    if (error === undefined) this.#stats.votesFor.add(client);
    else this.#stats.votesAgainst.set(client, error);
    if (error instanceof ResourceLockedError) this.#refusals += 1;
    else if (error !== undefined) this.#onError(error);
  }

  #errorOf(node: number, answer: Exclude<NodeAnswer, { kind: "not asked" }>): Error | undefined {
    if (answer.kind === "failed") {
      const { state, lastError } = this.#shared.protocol.nodes[node] ?? {};
      return state === "down" ? new Error("Connection is closed.", { cause: lastError }) : new Error(answer.error);
    }
    const { applied, quarantineLeftMs, wrongType } = answer;
    if (applied !== this.#resourceCount) {
      return new ResourceLockedError(
        `The operation was applied to: ${applied} of the ${this.#resourceCount} requested resources.`,
        wrongType === undefined ? undefined : { cause: new Error(wrongType) },
      );
    }
    if (quarantineLeftMs === 0) return undefined;
    return new Error(
      `The node is in quarantine for ${quarantineLeftMs} ms more: it is new, restarted or lost its data.`,
    );
  }
}
