/** This file counts the votes of one attempt, as node-redlock reports them. */

import { type Answer, Deadline, isNotAsked, type Observer, type Timed } from "@x/redlock-core/steps";
import type { SharedEngine } from "./shared-engine.ts";
import { type Client, type ExecutionStats, ResourceLockedError } from "./types.ts";

export interface CountRules {
  readonly resourceCount: number;
  /**
   * Returns to how many of the resources a reply without error was applied, or whether to all or none. All is a yes.
   */
  readonly applied: (value: unknown) => number | boolean;
  /** Reports each client that failed. Plain contention is not an error. */
  readonly onError: (error: Error) => void;
}

export class VoteCount implements Timed {
  readonly observe: Observer = (node, answer) => this.#count(node, answer);
  readonly #shared: SharedEngine;
  readonly #rules: CountRules;
  readonly #stats: ExecutionStats;
  readonly #grace = new Deadline(this);
  /** The clients that have not voted, as bits. */
  #open: number;
  #complete: Promise<ExecutionStats> | undefined;
  #onComplete: ((stats: ExecutionStats) => void) | undefined;
  #onSettled: (() => void) | undefined;
  #refusals = 0;

  constructor(shared: SharedEngine, rules: CountRules) {
    const { everyNode, quorum } = shared.engine;
    this.#shared = shared;
    this.#rules = rules;
    this.#open = everyNode;
    this.#stats = {
      membershipSize: shared.clients.length,
      quorumSize: quorum,
      votesFor: new Set(),
      votesAgainst: new Map(),
    };
  }

  /** Resolves when every client has voted; never rejects. */
  get stats(): Promise<ExecutionStats> {
    this.#complete ??=
      this.#open === 0
        ? Promise.resolve(this.#stats)
        : new Promise((resolve) => {
            this.#onComplete = resolve;
          });
    return this.#complete;
  }

  /** The number of clients that answered that the lock is held by another, or not ours. */
  get refusals(): number {
    return this.#refusals;
  }

  /** Calls `run` when every client that answers in time has voted, or at once if they have. */
  whenSettled(run: () => void): void {
    if (this.#isSettled) {
      run();
      return;
    }
    this.#onSettled = run;
    this.#shared.graces.start(this.#grace);
  }

  onDeadline(): void {
    this.#shared.slow |= this.#open;
    this.#settle();
  }

  #settle(): void {
    const run = this.#onSettled;
    this.#onSettled = undefined;
    run?.();
  }

  get #isSettled(): boolean {
    return (this.#open & ~this.#shared.slow) === 0;
  }

  #count(node: number, answer: Answer): void {
    const bit = 1 << node;
    const client = this.#shared.clients[node];
    if (client === undefined || (this.#open & bit) === 0) return;
    this.#open &= ~bit;
    if (answer.kind === "reply") this.#shared.slow &= ~bit;
    if (!isNotAsked(answer)) this.#note(client, this.#objection(node, answer));
    if (this.#open === 0) this.#onComplete?.(this.#stats);
    if (this.#onSettled === undefined || !this.#isSettled) return;
    this.#shared.graces.stop(this.#grace);
    this.#settle();
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
    const told = this.#rules.applied(value);
    const applied = typeof told === "number" ? told : told ? resourceCount : 0;
    if (applied !== resourceCount) {
      return new ResourceLockedError(
        `The operation was applied to: ${applied} of the ${resourceCount} requested resources.`,
        wrongTypeOf(value),
      );
    }
    if (quarantineLeftMs === 0) return undefined;
    return new Error(
      `The node is in quarantine for ${quarantineLeftMs} ms more: it is new, restarted or lost its data.`,
    );
  }
}

/** Returns what an acquisition was refused with, if a key is of another type: see scripts/acquire.lua.ts. */
function wrongTypeOf(value: unknown): ErrorOptions | undefined {
  const told: unknown = Array.isArray(value) ? value[4] : undefined;
  return typeof told === "string" ? { cause: new Error(told) } : undefined;
}
