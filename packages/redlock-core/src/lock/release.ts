/**
 * A release is a compare-and-delete on every node that may hold a key of ours, also on those that never answered.
 *
 * It never throws, and never deletes somebody else's key. If a node could not be reached, the key is released again
 * when the connection is ready, as long as the key may live.
 */
import type { Engine } from "../rounds/engine.ts";
import { type Answer, type Observer, Round } from "../rounds/round.ts";
import { releaseText, type Target } from "../rules/operation.ts";
import { countOf } from "../rules/quorum.ts";

export interface ReleaseRequest {
  readonly target: Target;
  readonly token: string;
  /** The longest lease that was asked for. A key may live for so long from now. */
  readonly longestTtlMs?: number;
  readonly ttlMs: number;
  /** The nodes that may hold a key of ours, as bits; the others are not asked. */
  readonly mayHoldOn: number;
  readonly observe?: Observer | undefined;
}

/** Resolves true as soon as a quorum of nodes confirms that every key held the token until now, else false. */
export function releaseEverywhere(engine: Engine, request: ReleaseRequest): Promise<boolean> {
  return new Promise((resolve) => startRelease(engine, request, engine.clock.monotonicMs(), resolve));
}

export function startRelease(
  engine: Engine,
  request: ReleaseRequest,
  nowMs: number,
  onEnd: (isConfirmed: boolean) => void,
): void {
  new Release(engine, request, nowMs, onEnd).start(nowMs);
}

class Release extends Round {
  readonly #onEnd: (isConfirmed: boolean) => void;
  readonly #untilMs: number;
  /** The nodes that are asked, as bits. */
  readonly #askedNodes: number;
  #yes = 0;
  #no: number;

  constructor(engine: Engine, request: ReleaseRequest, nowMs: number, onEnd: (isConfirmed: boolean) => void) {
    super(engine, request.target, engine.options.nodeTimeout, request.observe);
    this.#onEnd = onEnd;
    this.#untilMs = nowMs + (request.longestTtlMs ?? request.ttlMs);
    this.text = releaseText(request.target.keys.length, request.token);
    this.#askedNodes = request.mayHoldOn;
    this.#no = engine.nodes.length - countOf(this.#askedNodes);
  }

  override get isRelease(): boolean {
    return true;
  }

  override get sendAnyway(): boolean {
    return true;
  }

  start(nowMs: number): void {
    if (this.#askedNodes === 0) this.#onEnd(false);
    else this.ask(nowMs);
  }

  protected override get nodesToAsk(): number {
    return this.#askedNodes;
  }

  protected override onUndelivered(node: number): void {
    const { target, text } = this;
    this.engine.batchers[node]?.keepUndelivered({ target, text, isRelease: true, untilMs: this.#untilMs });
  }

  protected override onVote(_node: number, answer: Answer): boolean {
    if (answer.kind === "reply" && answer.value === this.target.keys.length) this.#yes += 1;
    else this.#no += 1;
    const { nodes, quorum } = this.engine;
    if (this.#yes < quorum && this.#no <= nodes.length - quorum) return false;
    this.#onEnd(this.#yes >= quorum);
    return true;
  }
}
