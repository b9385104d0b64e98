/** Counts the votes of one attempt in the form in which node-redlock reports them. */
import type { LockSteps, NodeAnswer, OnAnswer } from "@x/redlock-core/protocol";
import type { SharedEngine } from "./shared-engine.ts";
import { type ExecutionStats, ResourceLockedError } from "./types.ts";

/** The call whose votes are counted. */
interface Voting {
  readonly shared: SharedEngine;
  readonly steps: LockSteps;
  readonly onVoteAgainst: (error: Error) => void;
}

export class Votes {
  readonly onAnswer: OnAnswer = (node, answer) => this.#count(node, answer);
  readonly #call: Voting;
  readonly #isCounted: boolean;
  readonly #stats: ExecutionStats;
  #open: number;
  #onComplete: ((stats: ExecutionStats) => void) | undefined;

  /** Only an attempt that counts reports contention. */
  constructor(call: Voting, isCounted = true) {
    const { clients, redlock } = call.shared;
    this.#call = call;
    this.#isCounted = isCounted;
    this.#open = clients.length;
    const [votesFor, votesAgainst]: [ExecutionStats["votesFor"], ExecutionStats["votesAgainst"]] = [
      new Set(),
      new Map(),
    ];
    this.#stats = { membershipSize: clients.length, quorumSize: redlock.quorum, votesFor, votesAgainst };
  }

  /** Resolves when every client has voted. Never rejects. Called once. */
  untilComplete(): Promise<ExecutionStats> {
    if (this.#open === 0) return Promise.resolve(this.#stats);
    return new Promise((resolve) => {
      this.#onComplete = resolve;
    });
  }

  #count(node: number, answer: NodeAnswer): void {
    const { shared, onVoteAgainst } = this.#call;
    const client = shared.clients[node];
    const error = this.#errorOf(node, answer);
    if (client !== undefined && error !== undefined) {
      this.#stats.votesAgainst.set(client, error);
      if (this.#isCounted || !(error instanceof ResourceLockedError)) onVoteAgainst(error);
    } else if (client !== undefined && answer.kind === "answered") this.#stats.votesFor.add(client);
    this.#open -= 1;
    if (this.#open === 0) this.#onComplete?.(this.#stats);
  }

  /** Returns the error of a vote against the call. */
  #errorOf(node: number, answer: NodeAnswer): Error | undefined {
    if (answer.kind === "not asked") return undefined;
    const { shared, steps } = this.#call;
    if (answer.kind === "failed") {
      const { state, lastError } = shared.protocol.nodes[node] ?? {};
      return state === "down" ? new Error("Connection is closed.", { cause: lastError }) : new Error(answer.error);
    }
    const { applied, wrongType } = answer;
    if (applied === steps.resourceCount) return undefined;
    return new ResourceLockedError(
      `The operation was applied to: ${applied} of the ${steps.resourceCount} requested resources.`,
      wrongType === undefined ? undefined : { cause: new Error(wrongType) },
    );
  }
}
