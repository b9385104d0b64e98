/** The votes of one attempt, as node-redlock reports them. */
import { quorumOf } from "../quorum.ts";
import { type Answer, NOT_ASKED, type Observer } from "../round.ts";
import type { SharedEngine } from "./shared-engine.ts";
import { type Client, type ExecutionStats, ResourceLockedError } from "./types.ts";

/**
 * How long a decided call waits for the votes that are still out. The keys are written over connections of our own, so code
 * that reads them over the client right after the call would otherwise see some clients before the vote. A client that is
 * slower than this is not waited for again until it has answered.
 */
const GRACE_MS = 50;

export interface CountRules {
  readonly resourceCount: number;
  /** Of a reply without error, to how many resources it was applied; all is a yes. */
  readonly applied: (value: unknown) => number;
  /** Told of each client that failed. Plain contention is not an error. */
  readonly onError: (error: Error) => void;
}

export class VoteCount {
  /** Resolves when every client has voted; never rejects. */
  readonly stats: Promise<ExecutionStats>;
  readonly observe: Observer = (node, answer) => this.#count(node, answer);
  readonly #shared: SharedEngine;
  readonly #rules: CountRules;
  readonly #stats: ExecutionStats;
  readonly #open: Set<number>;
  #complete: (stats: ExecutionStats) => void = () => undefined;
  #onVote: () => void = () => undefined;
  #refusals = 0;

  constructor(shared: SharedEngine, rules: CountRules) {
    this.#shared = shared;
    this.#rules = rules;
    this.#open = new Set(shared.clients.keys());
    this.#stats = {
      membershipSize: shared.clients.length,
      quorumSize: quorumOf(shared.clients.length),
      votesFor: new Set(),
      votesAgainst: new Map(),
    };
    this.stats = new Promise((resolve) => {
      this.#complete = resolve;
    });
  }

  /** Clients that answered that the lock is held by another, or not ours. */
  get refusals(): number {
    return this.#refusals;
  }

  /** Resolves when every client has voted that answers in time. */
  async settle(): Promise<void> {
    const { clock } = this.#shared.engine;
    if (!this.#isWorthWaiting()) return;
    let cancel: () => void = () => undefined;
    await new Promise<void>((resolve) => {
      this.#onVote = () => {
        if (!this.#isWorthWaiting()) resolve();
      };
      cancel = clock.schedule(
        GRACE_MS,
        () => {
          for (const node of this.#open) this.#shared.slow.add(node);
          resolve();
        },
        { keepAlive: true },
      );
    });
    cancel();
  }

  #isWorthWaiting(): boolean {
    return [...this.#open].some((node) => !this.#shared.slow.has(node));
  }

  #count(node: number, answer: Answer): void {
    const { clients, slow } = this.#shared;
    const client = clients[node];
    if (client === undefined || !this.#open.delete(node)) return;
    if (answer.kind === "reply") slow.delete(node);
    if (answer !== NOT_ASKED) this.#note(client, this.#objection(node, answer));
    if (this.#open.size === 0) this.#complete(this.#stats);
    this.#onVote();
  }

  #note(client: Client, error: Error | undefined): void {
    if (error === undefined) this.#stats.votesFor.add(client);
    else this.#stats.votesAgainst.set(client, error);
    if (error instanceof ResourceLockedError) this.#refusals += 1;
    else if (error !== undefined) this.#rules.onError(error);
  }

  #objection(node: number, answer: Answer): Error | undefined {
    if (answer.kind === "error") {
      const { state, lastError } = this.#shared.engine.nodes[node] ?? {};
      return state === "down" ? new Error("Connection is closed.", { cause: lastError }) : new Error(answer.message);
    }
    const { value, quarantineLeftMs } = answer;
    const { resourceCount } = this.#rules;
    const applied = this.#rules.applied(value);
    if (applied !== resourceCount) {
      return new ResourceLockedError(
        `The operation was applied to: ${applied} of the ${resourceCount} requested resources.`,
      );
    }
    if (quarantineLeftMs === 0) return undefined;
    return new Error(
      `The node is in quarantine for ${quarantineLeftMs} ms more: it is new, restarted or lost its data.`,
    );
  }
}
