/**
 * Release: compare-and-delete on every node that may hold a key of ours, also those that never answered.
 *
 * Guaranteed: it never throws, and it never deletes somebody else's key. A node that could not be reached is released again
 * when its connection is ready, as long as the key may live.
 */
import type { Engine } from "./engine.ts";
import { type Operation, releaseOperation, type Target } from "./operation.ts";
import { outcome } from "./quorum.ts";
import { type Answer, type Observer, type RoundHandlers, startRound } from "./round.ts";

export interface ReleaseRequest {
  readonly target: Target;
  readonly token: string;
  /** The longest lease that was asked for: for so long from now a key may live. */
  readonly ttlMs: number;
  /** Per node: whether it may hold a key of ours; the others are not asked. */
  readonly mayHold: (node: number) => boolean;
  readonly observe?: Observer | undefined;
}

/** Resolves true as soon as a quorum of nodes confirms that every key held the token until now, else false. */
export function releaseEverywhere(engine: Engine, request: ReleaseRequest): Promise<boolean> {
  return new Promise((resolve) => {
    new Release(engine, request, resolve).start();
  });
}

class Release implements RoundHandlers {
  readonly timeoutMs: number;
  readonly sendAnyway = true;
  readonly observe: Observer | undefined;
  readonly #engine: Engine;
  readonly #request: ReleaseRequest;
  readonly #resolve: (isConfirmed: boolean) => void;
  readonly #operation: Operation;
  readonly #asked: readonly boolean[];
  #yes = 0;
  #no = 0;

  constructor(engine: Engine, request: ReleaseRequest, resolve: (isConfirmed: boolean) => void) {
    this.timeoutMs = engine.options.nodeTimeout;
    this.observe = request.observe;
    this.#engine = engine;
    this.#request = request;
    this.#resolve = resolve;
    this.#operation = releaseOperation(request.target, request.token);
    this.#asked = engine.nodes.map((_, node) => request.mayHold(node));
  }

  start(): void {
    for (const isAsked of this.#asked) if (!isAsked) this.#no += 1;
    if (this.#no === this.#asked.length) {
      this.#resolve(false);
      return;
    }
    startRound(this.#engine, this.#operation, this);
  }

  only(node: number): boolean {
    return this.#asked[node] === true;
  }

  onUndelivered(node: number): void {
    const untilMs = this.#engine.clock.monotonicMs() + this.#request.ttlMs;
    this.#engine.batchers[node]?.keepUndelivered({ operation: this.#operation, untilMs });
  }

  onAnswer(_node: number, answer: Answer): boolean {
    if (answer.kind === "reply" && answer.value === this.#request.target.resources.length) this.#yes += 1;
    else this.#no += 1;
    const decided = outcome({ yes: this.#yes, no: this.#no }, this.#asked.length);
    if (decided === "open") return false;
    this.#resolve(decided === "won");
    return true;
  }
}
