/**
 * A round sends one request to every node in parallel, with a deadline, and passes the answers to its owner.
 *
 * The owner's `onAnswer` is called at most once per node, and never again after it has returned true: a late answer
 * does not count. At the deadline the nodes that did not answer are reported as failed, all in the same step. From then
 * on the round sends nothing more.
 */

import { Deadline, type Timed } from "../kit/deadlines.ts";
import type { OperationKind, Target } from "../rules/operation.ts";
import { countOf } from "../rules/quorum.ts";
import { isRefused, operationError } from "../scripts/batch.lua.ts";
import type { BatchOperation } from "./batch-request.ts";
import type { Reply, Request } from "./batcher.ts";
import type { RoundEngine } from "./round-engine.ts";

export type Answer = Reply | { readonly kind: "error"; readonly message: string; readonly timedOut: boolean };

/**
 * Called exactly once for each node that is asked, with the node's answer or the reason why no answer arrived. Also
 * called for answers after the decision.
 */
export type AnswerObserver = (node: number, answer: Answer) => void;

/** The owner of a round states the request, and decides the round by the answers. */
export interface RoundOwner extends BatchOperation {
  readonly timeoutMs: number;
  /** Nodes that are asked, as bits. Default: all. */
  readonly nodes?: number | undefined;
  /**
   * Whether the request is sent even after the round is decided, and repeated if the node did not have the script. A
   * request that is not sent by the deadline counts as undelivered.
   */
  readonly isSentAnyway?: boolean;
  readonly observe?: AnswerObserver | undefined;
  /** Counts an answer, possibly before `ask` returns. Returns true if the round is decided. */
  onAnswer(node: number, answer: Answer): boolean;
  /**
   * Called for a node to which nothing was sent in time, which refused to write, or whose connection broke, even after
   * the round's end.
   */
  onUndelivered?(node: number): void;
}

const NOT_ASKED = "not asked: decided before";

export function isNotAsked(answer: Answer): boolean {
  return answer.kind === "error" && answer.message === NOT_ASKED;
}

const KEEP_ALIVE = { keepAlive: true } as const;

export class Round implements Request, Timed {
  /** Nodes that may have executed the request, or may still execute it, as bits. */
  sentTo = 0;
  isAbandoned = false;
  readonly #engine: RoundEngine;
  readonly #owner: RoundOwner;
  readonly #deadline = new Deadline(this);
  /** Cancels the timer of a round whose timeout is not `nodeTimeout`. */
  #cancelTimer: (() => void) | undefined;
  /** Nodes that are asked, that have answered, and that were asked twice, as bits. */
  readonly #asked: number;
  #answered = 0;
  #repeated = 0;
  /** Number of nodes without an answer, and number of answers that the observer still expects. */
  #open: number;
  #unobserved: number;
  #hasEnded = false;

  constructor(engine: RoundEngine, owner: RoundOwner) {
    this.#engine = engine;
    this.#owner = owner;
    this.#asked = owner.nodes ?? engine.everyNode;
    this.#open = countOf(this.#asked);
    this.#unobserved = owner.observe === undefined ? 0 : this.#open;
  }

  get kind(): OperationKind {
    return this.#owner.kind;
  }

  get target(): Target {
    return this.#owner.target;
  }

  get text(): string {
    return this.#owner.text;
  }

  /** Nodes that have answered or failed, as bits. */
  get answeredBy(): number {
    return this.#answered;
  }

  isSentTo(node: number): boolean {
    return (this.sentTo & (1 << node)) !== 0;
  }

  ask(nowMs: number): void {
    if (this.#asked === 0) return;
    const { batchers, options, deadlines, clock } = this.#engine;
    const { timeoutMs } = this.#owner;
    if (timeoutMs === options.nodeTimeout) deadlines.start(this.#deadline, nowMs);
    else this.#cancelTimer = clock.schedule(timeoutMs, () => this.onDeadline(), KEEP_ALIVE);
    for (let node = 0; node < batchers.length; node += 1) {
      if (this.#hasEnded && !this.#owner.isSentAnyway) return;
      if ((this.#asked & (1 << node)) !== 0) batchers[node]?.submit(this);
    }
  }

  onReply(node: number, reply: Reply): void {
    const { value } = reply;
    if (typeof value === "object" && isRefused(value)) this.#owner.onUndelivered?.(node);
    const message = Number.isSafeInteger(value) ? undefined : operationError(value);
    this.#answer(node, message === undefined ? reply : { kind: "error", message, timedOut: false });
  }

  onError(node: number, error: Error): void {
    if (this.#asksAgain(node, error)) return;
    this.#owner.onUndelivered?.(node);
    this.#answer(node, { kind: "error", message: error.message, timedOut: false });
  }

  onDeadline(): void {
    const message = `no answer within ${Math.round(this.#owner.timeoutMs)} ms`;
    const { batchers } = this.#engine;
    this.#abandonUnsent(message, true);
    for (let node = 0; node < batchers.length; node += 1) {
      if ((this.#asked & ~this.#answered & (1 << node)) === 0) continue;
      batchers[node]?.watch.suspect();
      this.#answer(node, { kind: "error", message, timedOut: true });
    }
    this.#end();
  }

  #answer(node: number, answer: Answer): void {
    const bit = 1 << node;
    if ((this.#answered & bit) !== 0) return;
    this.#answered |= bit;
    if (this.#unobserved > 0) {
      this.#unobserved -= 1;
      this.#owner.observe?.(node, answer);
    }
    this.#open -= 1;
    if (!this.#hasEnded && this.#owner.onAnswer(node, answer)) this.#end();
    else if (this.#open === 0) this.#end();
  }

  /**
   * Repeats the request after the script cache was flushed: nothing has run, and the adapter loads the script again.
   */
  #asksAgain(node: number, error: Error): boolean {
    const bit = 1 << node;
    if (!this.#owner.isSentAnyway || this.isAbandoned || (this.#repeated & bit) !== 0) return false;
    if (!error.message.startsWith("NOSCRIPT")) return false;
    this.#repeated |= bit;
    this.sentTo &= ~bit;
    this.#engine.batchers[node]?.submit(this);
    return true;
  }

  #end(): void {
    this.#hasEnded = true;
    if (!this.#owner.isSentAnyway) this.#abandonUnsent(NOT_ASKED, false);
    if (this.#open === 0 || (this.#unobserved === 0 && this.#unsent === 0)) this.#stopClock();
  }

  /** Nodes to which the request has not been sent yet, as bits. */
  get #unsent(): number {
    return this.#asked & ~this.sentTo & ~this.#answered;
  }

  #abandonUnsent(message: string, timedOut: boolean): void {
    if (this.#unsent === 0) return;
    this.isAbandoned = true;
    const { batchers } = this.#engine;
    for (let node = 0; node < batchers.length; node += 1) {
      if ((this.#unsent & (1 << node)) === 0) continue;
      batchers[node]?.onAbandoned();
      if (this.#owner.isSentAnyway) this.#owner.onUndelivered?.(node);
      this.#answer(node, { kind: "error", message, timedOut });
    }
  }

  #stopClock(): void {
    this.#engine.deadlines.stop(this.#deadline);
    this.#cancelTimer?.();
  }
}

/** Starts a round, for callers that read the answers with functions of their own. */
export function startRound(engine: RoundEngine, owner: RoundOwner): Round {
  const round = new Round(engine, owner);
  round.ask(engine.clock.monotonicMs());
  return round;
}
