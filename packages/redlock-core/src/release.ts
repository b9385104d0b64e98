/**
 * Release: compare-and-delete on every node that may hold a key of ours, also those that never answered.
 *
 * Guaranteed: it never throws, and it never deletes somebody else's key. A node that could not be reached is released again
 * when its connection is ready, as long as the key may live.
 */
import type { Engine } from "./engine.ts";
import { releaseText, type Target } from "./operation.ts";
import { type Observer, Round } from "./round.ts";

export interface ReleaseRequest {
  readonly target: Target;
  readonly token: string;
  /** The longest lease that was asked for: for so long from now a key may live. */
  readonly longestTtlMs?: number;
  readonly ttlMs: number;
  /** Per node: whether it may hold a key of ours; the others are not asked. */
  mayHold(node: number): boolean;
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
  /** Bits of the nodes that are asked. */
  #askedNodes = 0;
  #askedCount = 0;
  #yes = 0;
  #no = 0;

  constructor(engine: Engine, request: ReleaseRequest, nowMs: number, onEnd: (isConfirmed: boolean) => void) {
    super(engine, request.target, engine.options.nodeTimeout, request.observe);
    this.#onEnd = onEnd;
    this.#untilMs = nowMs + (request.longestTtlMs ?? request.ttlMs);
    this.text = releaseText(request.target.keys.length, request.token);
    const count = engine.nodes.length;
    for (let node = 0; node < count; node += 1) {
      if (request.mayHold(node)) {
        this.#askedNodes |= 1 << node;
        this.#askedCount += 1;
      } else {
        this.#no += 1;
      }
    }
  }

  override get isRelease(): boolean {
    return true;
  }

  override get sendAnyway(): boolean {
    return true;
  }

  start(nowMs: number): void {
    if (this.#askedCount === 0) this.#onEnd(false);
    else this.ask(nowMs);
  }

  protected override only(node: number): boolean {
    return (this.#askedNodes & (1 << node)) !== 0;
  }

  protected override onUndelivered(node: number): void {
    const { target, text } = this;
    this.engine.batchers[node]?.keepUndelivered({ target, text, untilMs: this.#untilMs });
  }

  protected override onVote(_node: number, error: string | undefined, _timedOut: boolean, value: unknown): boolean {
    if (error === undefined && value === this.target.keys.length) this.#yes += 1;
    else this.#no += 1;
    const { nodes, quorum } = this.engine;
    if (this.#yes < quorum && this.#no <= nodes.length - quorum) return false;
    this.#onEnd(this.#yes >= quorum);
    return true;
  }
}
