/** Counts the votes of one attempt in the form in which node-redlock reports them. */

import { type Deferred, deferred } from "@x/redlock-core/kit";
import { CallDeadline, type NodeAnswer, type OnAnswer } from "@x/redlock-core/protocol";
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
  readonly onAnswer: OnAnswer = (node, answer) => this.#count(node, answer);
  readonly #shared: SharedEngine;
  readonly #resourceCount: number;
  readonly #onError: (error: Error) => void;
  readonly #votesFor = new Set<Client>();
  readonly #votesAgainst = new Map<Client, Error>();
  /** Clients that have not voted. */
  readonly #open: Set<Client>;
  readonly #complete: Deferred<ExecutionStats> = deferred();
  /** Settles when `isSettled` becomes true. Undefined while nobody waits. */
  #waiting: Deferred<void> | undefined;

  /** `onError` is called for each client that failed. Contention is not an error. */
  constructor(shared: SharedEngine, resourceCount: number, onError: (error: Error) => void) {
    this.#shared = shared;
    this.#resourceCount = resourceCount;
    this.#onError = onError;
    this.#open = new Set(shared.clients);
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
    const { slow } = this.#shared;
    for (const client of this.#open) if (!slow.has(client)) return false;
    return true;
  }

  /** Resolves when the votes are settled, at the latest after `GRACE_MS`. */
  async untilSettled(): Promise<void> {
    const { clock, closed } = this.#shared.protocol;
    const grace = new CallDeadline(clock, { timeoutMs: GRACE_MS, closed });
    this.#waiting = deferred();
    await grace.until(this.#waiting.promise);
    grace.dispose();
    for (const client of this.#open) this.#shared.slow.add(client);
  }

  #count(node: number, answer: NodeAnswer): void {
    const { clients, slow, redlock } = this.#shared;
    const client = clients[node];
    if (client === undefined || !this.#open.delete(client)) return;
    if (answer.kind === "answered") slow.delete(client);
    if (answer.kind !== "not asked") this.#record(client, this.#errorOf(node, answer));
    if (this.#waiting !== undefined && this.isSettled) this.#waiting.resolve();
    if (this.#open.size > 0) return;
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
