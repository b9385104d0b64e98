/** This file counts the votes of one attempt, as node-redlock reports them. */

import { deferred } from "@x/redlock-core/kit";
import { type NodeAnswer, type OnAnswer } from "@x/redlock-core/protocol";
import type { SharedEngine } from "./shared-engine.ts";
import { type Client, type ExecutionStats, ResourceLockedError } from "./types.ts";

/**
 * A decided call waits for this time, in ms, for the missing votes. The keys are written over other connections than
 * the client's. Code that reads the keys over the client right after the call would otherwise see some nodes before
 * their vote.
 *
 * A client that is slower than this time is not waited for again until it has answered.
 */
const GRACE_MS = 50;

export class VoteCount {
  /** Resolves when every client has voted. Never rejects. */
  readonly stats: Promise<ExecutionStats>;
  readonly onAnswer: OnAnswer = (node, answer) => this.#count(node, answer);
  readonly #shared: SharedEngine;
  readonly #resourceCount: number;
  readonly #onError: (error: Error) => void;
  readonly #counted: ExecutionStats;
  readonly #onComplete: (stats: ExecutionStats) => void;
  /** The clients that have not voted. */
  readonly #open: Set<Client>;
  #onSettled: (() => void) | undefined;
  #refusals = 0;

  /** `onError` is called for each client that failed. Contention is not an error. */
  constructor(shared: SharedEngine, resourceCount: number, onError: (error: Error) => void) {
    const { clients, quorum } = shared;
    this.#shared = shared;
    this.#resourceCount = resourceCount;
    this.#onError = onError;
    this.#open = new Set(clients);
    this.#counted = {
      membershipSize: clients.length,
      quorumSize: quorum,
      votesFor: new Set(),
      votesAgainst: new Map(),
    };
    const { promise, resolve } = deferred<ExecutionStats>();
    this.stats = promise;
    this.#onComplete = resolve;
  }

  /** The number of clients that answered that the lock is held by another, or not ours. */
  get refusals(): number {
    return this.#refusals;
  }

  /** Resolves when every client that answers in time has voted. */
  async settled(): Promise<void> {
    if (this.#isSettled) return;
    const { clock } = this.#shared.protocol;
    await new Promise<void>((resolve) => {
      const giveUp = (): void => {
        for (const client of this.#open) this.#shared.slow.add(client);
        resolve();
      };
      const cancel = clock.schedule(GRACE_MS, giveUp, { keepAlive: true });
      this.#onSettled = () => {
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
    if (answer.kind !== "not asked") this.#note(client, this.#objection(node, answer));
    if (this.#open.size === 0) this.#onComplete(this.#counted);
    if (this.#isSettled) this.#onSettled?.();
  }

  #note(client: Client, error: Error | undefined): void {
    if (error === undefined) this.#counted.votesFor.add(client);
    else this.#counted.votesAgainst.set(client, error);
    if (error instanceof ResourceLockedError) this.#refusals += 1;
    else if (error !== undefined) this.#onError(error);
  }

  #objection(node: number, answer: Exclude<NodeAnswer, { kind: "not asked" }>): Error | undefined {
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
