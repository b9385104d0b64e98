/** Counts the votes of one attempt in the form in which node-redlock reports them. */

import { type Deferred, deferred } from "@x/redlock-core/kit";
import { Deadline, type NodeAnswer, type OnAnswer, type Timed } from "@x/redlock-core/protocol";
import type { SharedEngine } from "./shared-engine.ts";
import { type Client, type ExecutionStats, ResourceLockedError } from "./types.ts";

export class VoteCount implements Timed {
  readonly onAnswer: OnAnswer = (node, answer) => this.#count(node, answer);
  readonly #shared: SharedEngine;
  readonly #resourceCount: number;
  readonly #onError: (error: Error) => void;
  readonly #votesFor = new Set<Client>();
  readonly #votesAgainst = new Map<Client, Error>();
  readonly #grace = new Deadline(this);
  /** Clients that have not voted, as bits by position. */
  #open: number;
  readonly #complete: Deferred<ExecutionStats> = deferred();
  /** Settles when `isSettled` becomes true. Undefined while nobody waits. */
  #waiting: Deferred<void> | undefined;

  /** `onError` is called for each client that failed. Contention is not an error. */
  constructor(shared: SharedEngine, resourceCount: number, onError: (error: Error) => void) {
    this.#shared = shared;
    this.#resourceCount = resourceCount;
    this.#onError = onError;
    this.#open = (1 << shared.clients.length) - 1;
  }

  /** Resolves when every client has voted. Never rejects. */
  get stats(): Promise<ExecutionStats> {
    return this.#complete.promise;
  }

  /** Number of clients that reported that the lock is held by another, or not held by the caller. */
  get refusals(): number {
    return [...this.#votesAgainst.values()].filter((error) => error instanceof ResourceLockedError).length;
  }

  /** Whether every client that is not slow has voted. */
  get isSettled(): boolean {
    return (this.#open & ~this.#shared.slow) === 0;
  }

  /** Resolves when the votes are settled, at the latest after `GRACE_MS`. */
  untilSettled(): Promise<void> {
    this.#waiting = deferred();
    this.#shared.graces.start(this.#grace);
    return this.#waiting.promise;
  }

  onDeadline(): void {
    this.#shared.slow |= this.#open;
    this.#waiting?.resolve();
  }

  #count(node: number, answer: NodeAnswer): void {
    const { clients, redlock } = this.#shared;
    const [client, bit] = [clients[node], 1 << node];
    if (client === undefined || (this.#open & bit) === 0) return;
    this.#open &= ~bit;
    if (answer.kind === "answered") this.#shared.slow &= ~bit;
    if (answer.kind !== "not asked") this.#record(client, this.#errorOf(node, answer));
    if (this.#waiting !== undefined && this.isSettled) {
      this.#shared.graces.stop(this.#grace);
      this.#waiting.resolve();
    }
    if (this.#open !== 0) return;
    const [votesFor, votesAgainst] = [this.#votesFor, this.#votesAgainst];
    this.#complete.resolve({ membershipSize: clients.length, quorumSize: redlock.quorum, votesFor, votesAgainst });
  }

  #record(client: Client, error: Error | undefined): void {
    if (error === undefined) this.#votesFor.add(client);
    else this.#votesAgainst.set(client, error);
    if (error !== undefined && !(error instanceof ResourceLockedError)) this.#onError(error);
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
