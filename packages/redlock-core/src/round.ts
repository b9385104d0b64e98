/**
 * One request to every node in parallel, and a deadline.
 *
 * Guaranteed: `onVote` is called at most once per node, and never after it returned true; a late answer counts for nothing. At the
 * deadline the nodes that did not answer are reported as failed, in one go. What was not yet sent then is never sent.
 */
import type { Engine } from "./engine.ts";
import type { Target } from "./operation.ts";
import { isRefused, operationError, Request } from "./request.ts";

export interface NodeReply {
  readonly kind: "reply";
  /** What the operation's script file says, or an error. */
  readonly value: unknown;
  /** The node's clock in microseconds. */
  readonly nodeTimeUs: number;
  /** Milliseconds until the node may vote, 0: it may. */
  readonly quarantineLeftMs: number;
}

export type Answer = NodeReply | { readonly kind: "error"; readonly message: string; readonly timedOut: boolean };

/** Told exactly once for each node: its answer, also one that came after the decision, `NOT_ASKED`, or why there is none. */
export type Observer = (node: number, answer: Answer) => void;

export interface RoundHandlers {
  readonly timeoutMs: number;
  /** A release must reach the node: what is not yet sent when the round ends is still sent, and again if the node had no script. */
  readonly sendAnyway?: boolean;
  readonly observe?: Observer | undefined;
  only?(node: number): boolean;
  /** The request could not be delivered, its connection broke before an answer, or the node refused it; told also after the end. */
  onUndelivered?(node: number): void;
  /** Returns true when the round is decided: no further answer is then reported. May be called before `startRound` returns. */
  onAnswer(node: number, answer: Answer): boolean;
}

/** Of a node that the request was not sent to. */
export const NOT_ASKED: Answer = { kind: "error", message: "not asked: decided before", timedOut: false };
const KEEP_ALIVE = { keepAlive: true } as const;

export function startRound(engine: Engine, target: Target, text: string, handlers: RoundHandlers): Round {
  const round = new HandledRound(engine, target, handlers);
  round.text = text;
  round.ask(engine.clock.monotonicMs());
  return round;
}

/** A subclass rather than handlers for what is asked all the time. */
export abstract class Round extends Request {
  readonly engine: Engine;
  readonly timeoutMs: number;
  readonly observe: Observer | undefined;
  #cancelDeadline: (() => void) | undefined;
  /** Bits of the nodes that were asked, that answered, and that were asked twice. */
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

  /** Returns true when the round is decided. `error` is undefined where the node replied. */
  protected abstract onVote(
    node: number,
    error: string | undefined,
    timedOut: boolean,
    value: unknown,
    nodeTimeUs: number,
    quarantineLeftMs: number,
  ): boolean;

  get sendAnyway(): boolean {
    return false;
  }

  protected only(_node: number): boolean {
    return true;
  }

  /** As `RoundHandlers.onUndelivered`. */
  protected onUndelivered(_node: number): void {}

  ask(nowMs: number): void {
    const { batchers, options, deadlines, clock } = this.engine;
    const count = batchers.length;
    this.#open = count;
    if (this.observe !== undefined) this.#unobserved = count;
    if (this.timeoutMs === options.nodeTimeout) deadlines.start(this, nowMs);
    else this.#cancelDeadline = clock.schedule(this.timeoutMs, () => this.onDeadline(), KEEP_ALIVE);
    for (let node = 0; node < count; node += 1) {
      if (!this.only(node)) {
        this.#open -= 1;
        if (this.#unobserved > 0) this.#unobserved -= 1;
        continue;
      }
      if (this.#ended && !this.sendAnyway) {
        if (this.#unobserved > 0) this.#observed(node, NOT_ASKED);
        continue;
      }
      this.#asked |= 1 << node;
      batchers[node]?.submit(this);
    }
  }

  override onReply(node: number, value: unknown, nodeTimeUs: number, quarantineLeftMs: number): void {
    if (typeof value === "object" && isRefused(value)) this.onUndelivered(node);
    const error = typeof value === "object" ? operationError(value) : undefined;
    this.#answer(node, error, false, value, nodeTimeUs, quarantineLeftMs);
  }

  override onError(node: number, error: Error): void {
    if (this.#asksAgain(node, error)) return;
    this.onUndelivered(node);
    this.#answer(node, error.message, false, undefined, 0, 0);
  }

  #answer(
    node: number,
    error: string | undefined,
    timedOut: boolean,
    value: unknown,
    nodeTimeUs: number,
    quarantineLeftMs: number,
  ): void {
    const bit = 1 << node;
    if ((this.#answered & bit) !== 0 || (this.#ended && this.#unobserved === 0)) return;
    this.#answered |= bit;
    if (this.#unobserved > 0) this.#observed(node, answerOf(error, timedOut, value, nodeTimeUs, quarantineLeftMs));
    this.#open -= 1;
    if (this.#ended) return;
    if (this.onVote(node, error, timedOut, value, nodeTimeUs, quarantineLeftMs) || this.#open === 0) this.#end();
  }

  /** The script cache was flushed: nothing has run, and the adapter sends the script along. */
  #asksAgain(node: number, error: Error): boolean {
    if (!this.sendAnyway || !error.message.startsWith("NOSCRIPT") || (this.#repeated & (1 << node)) !== 0) return false;
    this.#repeated |= 1 << node;
    this.engine.batchers[node]?.submit(this);
    return true;
  }

  #observed(node: number, answer: Answer): void {
    this.#unobserved -= 1;
    this.observe?.(node, answer);
    if (this.#ended && this.#unobserved === 0) this.#stopClock();
  }

  #end(): void {
    if (this.#ended) return;
    this.#ended = true;
    if (this.#unobserved === 0) this.#stopClock();
    if (this.sendAnyway || (this.#asked & ~this.sentTo) === 0) return;
    this.abandoned = true;
    const { batchers } = this.engine;
    for (let node = 0; node < batchers.length; node += 1) {
      if ((this.#asked & ~this.sentTo & (1 << node)) === 0) continue;
      batchers[node]?.abandoned();
      this.#answer(node, "not asked: decided before", false, undefined, 0, 0);
    }
  }

  #stopClock(): void {
    this.engine.deadlines.stop(this);
    this.#cancelDeadline?.();
  }

  onDeadline(): void {
    const message = `no answer within ${Math.round(this.timeoutMs)} ms`;
    const { batchers } = this.engine;
    for (let node = 0; node < batchers.length; node += 1) {
      const bit = 1 << node;
      if ((this.#asked & bit) === 0 || (this.#answered & bit) !== 0) continue;
      if ((this.sentTo & bit) !== 0) batchers[node]?.suspect();
      this.#answer(node, message, true, undefined, 0, 0);
    }
    this.#end();
  }
}

export function answerOf(
  error: string | undefined,
  timedOut: boolean,
  value: unknown,
  nodeTimeUs: number,
  quarantineLeftMs: number,
): Answer {
  return error === undefined
    ? { kind: "reply", value, nodeTimeUs, quarantineLeftMs }
    : { kind: "error", message: error, timedOut };
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

  protected override only(node: number): boolean {
    return this.#handlers.only?.(node) !== false;
  }

  protected override onVote(
    node: number,
    error: string | undefined,
    timedOut: boolean,
    value: unknown,
    nodeTimeUs: number,
    quarantineLeftMs: number,
  ): boolean {
    return this.#handlers.onAnswer(node, answerOf(error, timedOut, value, nodeTimeUs, quarantineLeftMs));
  }
}
