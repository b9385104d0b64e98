/**
 * A round sends one request to every node in parallel, with a deadline.
 *
 * `onVote` is called at most once per node, and never after it returned true; a late answer counts for nothing. At
 * the deadline the nodes that did not answer are reported as failed, all at once. From then on the round sends
 * nothing more.
 */

import type { Target } from "../rules/operation.ts";
import { countOf } from "../rules/quorum.ts";
import type { Engine } from "./engine.ts";
import { isRefused, operationError, type Reply, Request } from "./request.ts";

export type Answer = Reply | { readonly kind: "error"; readonly message: string; readonly timedOut: boolean };

/**
 * An observer is called exactly once for each node that is asked. It gets the node's answer, even one that came after
 * the decision, or the reason why there is none.
 */
export type Observer = (node: number, answer: Answer) => void;

export interface RoundHandlers {
  readonly timeoutMs: number;
  /**
   * Whether the request is sent even after the round is decided, and again if the node had no script. What is not sent
   * at the deadline is undelivered.
   */
  readonly sendAnyway?: boolean;
  readonly observe?: Observer | undefined;
  readonly only?: (node: number) => boolean;
  /** Reports a node to which nothing was sent in time, which refused, or whose connection broke; also after the end. */
  onUndelivered?(node: number): void;
  /** Takes an answer, maybe before `startRound` returns. Returns true when the round is decided. */
  onAnswer(node: number, answer: Answer): boolean;
}

const NOT_ASKED = "not asked: decided before";

export function isNotAsked(answer: Answer): boolean {
  return answer.kind === "error" && answer.message === NOT_ASKED;
}

const KEEP_ALIVE = { keepAlive: true } as const;

export function startRound(engine: Engine, target: Target, text: string, handlers: RoundHandlers): Round {
  const round = new HandledRound(engine, target, handlers);
  round.text = text;
  round.ask(engine.clock.monotonicMs());
  return round;
}

/** Requests that are made all the time extend this class, which costs less than handlers. */
export abstract class Round extends Request {
  readonly engine: Engine;
  readonly timeoutMs: number;
  readonly observe: Observer | undefined;
  #cancelDeadline: (() => void) | undefined;
  /** The nodes that were asked, that answered, and that were asked twice, as bits. */
  #asked = 0;
  #answered = 0;
  #repeated = 0;
  #open = 0;
  #unobserved = 0;
  #ended = false;

  constructor(engine: Engine, target: Target, timeoutMs: number, observe: Observer | undefined) {
    super(target);
    this.engine = engine;
    this.timeoutMs = timeoutMs;
    this.observe = observe;
  }

  /** Takes a vote, and returns true when the round is decided. */
  protected abstract onVote(node: number, answer: Answer): boolean;

  get sendAnyway(): boolean {
    return false;
  }

  /** The nodes that are asked, as bits. */
  protected get nodesToAsk(): number {
    return this.engine.everyNode;
  }

  protected get isObserved(): boolean {
    return this.observe !== undefined;
  }

  protected observed(node: number, answer: Answer): void {
    this.observe?.(node, answer);
  }

  /** See `RoundHandlers.onUndelivered`. */
  protected onUndelivered(_node: number): void {}

  ask(nowMs: number): void {
    const { batchers, options, deadlines, clock } = this.engine;
    this.#asked = this.nodesToAsk;
    if (this.#asked === 0) return;
    this.#open = countOf(this.#asked);
    if (this.isObserved) this.#unobserved = this.#open;
    if (this.timeoutMs === options.nodeTimeout) deadlines.start(this, nowMs);
    else this.#cancelDeadline = clock.schedule(this.timeoutMs, () => this.onDeadline(), KEEP_ALIVE);
    for (let node = 0; node < batchers.length; node += 1) {
      if (this.#ended && !this.sendAnyway) return;
      if ((this.#asked & (1 << node)) !== 0) batchers[node]?.submit(this);
    }
  }

  override onReply(node: number, reply: Reply): void {
    const { value } = reply;
    if (typeof value === "object" && isRefused(value)) this.onUndelivered(node);
    const message = Number.isSafeInteger(value) ? undefined : operationError(value);
    this.#answer(node, message === undefined ? reply : { kind: "error", message, timedOut: false });
  }

  override onError(node: number, error: Error): void {
    if (this.#asksAgain(node, error)) return;
    this.onUndelivered(node);
    this.#answer(node, { kind: "error", message: error.message, timedOut: false });
  }

  #answer(node: number, answer: Answer): void {
    const bit = 1 << node;
    if ((this.#answered & bit) !== 0) return;
    this.#answered |= bit;
    if (this.#unobserved > 0) {
      this.#unobserved -= 1;
      this.observed(node, answer);
    }
    this.#open -= 1;
    if (!this.#ended && this.onVote(node, answer)) this.#end();
    else if (this.#open === 0) this.#end();
  }

  /** Asks again after the script cache was flushed. Nothing has run, and the adapter sends the script along. */
  #asksAgain(node: number, error: Error): boolean {
    const bit = 1 << node;
    if (!this.sendAnyway || this.abandoned || (this.#repeated & bit) !== 0) return false;
    if (!error.message.startsWith("NOSCRIPT")) return false;
    this.#repeated |= bit;
    this.sentTo &= ~bit;
    this.engine.batchers[node]?.submit(this);
    return true;
  }

  #end(): void {
    this.#ended = true;
    if (!this.sendAnyway) this.#abandonUnsent(NOT_ASKED, false);
    if (this.#open === 0 || (this.#unobserved === 0 && this.#unsent === 0)) this.#stopClock();
  }

  /** The nodes to which the request still waits to be sent, as bits. */
  get #unsent(): number {
    return this.#asked & ~this.sentTo & ~this.#answered;
  }

  #abandonUnsent(message: string, timedOut: boolean): void {
    if (this.#unsent === 0) return;
    this.abandoned = true;
    const { batchers } = this.engine;
    for (let node = 0; node < batchers.length; node += 1) {
      if ((this.#unsent & (1 << node)) === 0) continue;
      batchers[node]?.abandoned();
      if (this.sendAnyway) this.onUndelivered(node);
      this.#answer(node, { kind: "error", message, timedOut });
    }
  }

  #stopClock(): void {
    this.engine.deadlines.stop(this);
    this.#cancelDeadline?.();
  }

  onDeadline(): void {
    const message = `no answer within ${Math.round(this.timeoutMs)} ms`;
    const { batchers } = this.engine;
    this.#abandonUnsent(message, true);
    for (let node = 0; node < batchers.length; node += 1) {
      if ((this.#asked & ~this.#answered & (1 << node)) === 0) continue;
      batchers[node]?.suspect();
      this.#answer(node, { kind: "error", message, timedOut: true });
    }
    this.#end();
  }
}

class HandledRound extends Round {
  readonly #handlers: RoundHandlers;

  constructor(engine: Engine, target: Target, handlers: RoundHandlers) {
    super(engine, target, handlers.timeoutMs, handlers.observe);
    this.#handlers = handlers;
  }

  override get sendAnyway(): boolean {
    return this.#handlers.sendAnyway === true;
  }

  protected override onUndelivered(node: number): void {
    this.#handlers.onUndelivered?.(node);
  }

  protected override get nodesToAsk(): number {
    const { only } = this.#handlers;
    if (only === undefined) return super.nodesToAsk;
    let nodes = 0;
    for (let node = 0; node < this.engine.nodes.length; node += 1) if (only(node)) nodes |= 1 << node;
    return nodes;
  }

  protected override onVote(node: number, answer: Answer): boolean {
    return this.#handlers.onAnswer(node, answer);
  }
}
