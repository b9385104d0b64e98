/**
 * A release is a compare-and-delete on every node that may hold a key with the lock's token, including nodes that never
 * answered.
 *
 * A release never throws, and never deletes the key of another holder. If a node could not be reached, the release is
 * sent again when the connection is ready, as long as the key may live.
 */

import { type Answer, type AnswerObserver, Round, type RoundOwner } from "../rounds/round.ts";
import { releaseText, type Target } from "../rules/operation.ts";
import { countOf, outcome } from "../rules/quorum.ts";
import type { Engine } from "./engine.ts";

export interface ReleaseRequest {
  readonly target: Target;
  readonly token: string;
  /** Longest lease that was requested. A key may live this long from now. Default: `ttlMs`. */
  readonly longestTtlMs?: number;
  readonly ttlMs: number;
  /** Nodes that may hold a key with the token, as bits. The other nodes are not asked. */
  readonly mayHoldOn: number;
  readonly observe?: AnswerObserver | undefined;
}

/** Resolves with true as soon as a quorum confirms that every key held the token until now, otherwise with false. */
export function releaseEverywhere(engine: Engine, request: ReleaseRequest): Promise<boolean> {
  return new Promise((resolve) => startRelease(engine, request, engine.clock.monotonicMs(), resolve));
}

/** Releases the keys, and calls `onEnd` in the step that decides whether a quorum confirmed. */
export function startRelease(
  engine: Engine,
  request: ReleaseRequest,
  nowMs: number,
  onEnd: (isConfirmed: boolean) => void,
): void {
  if (request.mayHoldOn === 0) onEnd(false);
  else new Release(engine, request, nowMs, onEnd).start(nowMs);
}

class Release implements RoundOwner {
  readonly kind = "release";
  readonly isSentAnyway = true;
  readonly target: Target;
  readonly text: string;
  readonly timeoutMs: number;
  readonly nodes: number;
  readonly observe: AnswerObserver | undefined;
  readonly #engine: Engine;
  readonly #round: Round;
  readonly #untilMs: number;
  readonly #onEnd: (isConfirmed: boolean) => void;
  readonly #tally: { yes: number; no: number };

  constructor(engine: Engine, request: ReleaseRequest, nowMs: number, onEnd: (isConfirmed: boolean) => void) {
    const { target, token, mayHoldOn } = request;
    this.target = target;
    this.text = releaseText(target.keys.length, token);
    this.timeoutMs = engine.options.nodeTimeout;
    this.nodes = mayHoldOn;
    this.observe = request.observe;
    this.#engine = engine;
    this.#untilMs = nowMs + (request.longestTtlMs ?? request.ttlMs);
    this.#onEnd = onEnd;
    this.#tally = { yes: 0, no: engine.nodes.length - countOf(mayHoldOn) };
    this.#round = new Round(engine, this);
  }

  start(nowMs: number): void {
    this.#round.ask(nowMs);
  }

  onAnswer(_node: number, answer: Answer): boolean {
    const isDeleted = answer.kind === "reply" && answer.value === this.target.keys.length;
    this.#tally[isDeleted ? "yes" : "no"] += 1;
    const decided = outcome(this.#tally, this.#engine.nodes.length);
    if (decided === "open") return false;
    this.#onEnd(decided === "won");
    return true;
  }

  onUndelivered(node: number): void {
    const { kind, target, text } = this;
    this.#engine.batchers[node]?.keepUndelivered({ kind, target, text, untilMs: this.#untilMs });
  }
}
