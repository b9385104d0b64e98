/**
 * One request to every node in parallel, and a deadline.
 *
 * Guaranteed: `onAnswer` is called at most once per node, and never after it returned true; a late answer counts for nothing. At the
 * deadline the nodes that did not answer are reported as failed, in one go. What was not yet sent then is never sent.
 */
import { isRefused, type NodeReply, operationError, type Question } from "./batcher.ts";
import { Timed } from "./deadlines.ts";
import type { Engine } from "./engine.ts";
import type { Operation } from "./operation.ts";

export type Answer = NodeReply | { readonly kind: "error"; readonly message: string; readonly timedOut: boolean };

/** Told exactly once for each node that is asked: its answer, also one that came after the decision, or why there is none. */
export type Observer = (node: number, answer: Answer) => void;

export interface Round {
  /** Per node: whether the request was handed to the connection, so that the node may execute it. */
  sent(node: number): boolean;
}

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

const NOT_ASKED: Answer = { kind: "error", message: "not asked: decided before", timedOut: false };
const KEEP_ALIVE = { keepAlive: true } as const;

export function startRound(engine: Engine, operation: Operation, handlers: RoundHandlers): Round {
  const round = new RunningRound(engine, handlers);
  round.ask(operation);
  return round;
}

/** Classes rather than closures: a round is made for each acquisition and each release, and closures were a third of their cost. */
class RunningRound extends Timed implements Round {
  readonly #engine: Engine;
  readonly #handlers: RoundHandlers;
  readonly #questions: (RoundQuestion | undefined)[] = [];
  #cancelDeadline: (() => void) | undefined;
  #open: number;
  #unobserved: number;
  #ended = false;

  constructor(engine: Engine, handlers: RoundHandlers) {
    super();
    this.#engine = engine;
    this.#handlers = handlers;
    this.#open = engine.batchers.length;
    this.#unobserved = handlers.observe === undefined ? 0 : this.#open;
    if (handlers.timeoutMs === engine.options.nodeTimeout) engine.deadlines.start(this);
    else this.#cancelDeadline = engine.clock.schedule(handlers.timeoutMs, () => this.onDeadline(), KEEP_ALIVE);
  }

  ask(operation: Operation): void {
    const { batchers } = this.#engine;
    for (let node = 0; node < batchers.length; node += 1) {
      if (this.#handlers.only?.(node) === false) {
        this.#questions.push(undefined);
        this.#open -= 1;
        if (this.#unobserved > 0) this.#unobserved -= 1;
        continue;
      }
      if (this.#ended && this.#handlers.sendAnyway !== true) {
        this.#questions.push(undefined);
        if (this.#unobserved > 0) this.#observed(node, NOT_ASKED);
        continue;
      }
      const question = new RoundQuestion(this, node, operation);
      this.#questions.push(question);
      batchers[node]?.submit(question);
    }
  }

  sent(node: number): boolean {
    return this.#questions[node]?.sent === true;
  }

  answer(question: RoundQuestion, answer: Answer): void {
    if (question.isAnswered || (this.#ended && this.#unobserved === 0)) return;
    question.isAnswered = true;
    if (this.#unobserved > 0) this.#observed(question.node, answer);
    this.#open -= 1;
    if (!this.#ended && (this.#handlers.onAnswer(question.node, answer) || this.#open === 0)) this.#end();
  }

  /** The script cache was flushed: nothing has run, and the adapter sends the script along. */
  asksAgain(question: RoundQuestion, error: Error): boolean {
    if (this.#handlers.sendAnyway !== true || !error.message.startsWith("NOSCRIPT") || question.isRepeated)
      return false;
    question.isRepeated = true;
    this.#engine.batchers[question.node]?.submit(question);
    return true;
  }

  undelivered(question: RoundQuestion): void {
    this.#handlers.onUndelivered?.(question.node);
  }

  #observed(node: number, answer: Answer): void {
    this.#unobserved -= 1;
    this.#handlers.observe?.(node, answer);
    if (this.#ended && this.#unobserved === 0) this.#stopClock();
  }

  #end(): void {
    if (this.#ended) return;
    this.#ended = true;
    if (this.#unobserved === 0) this.#stopClock();
    if (this.#handlers.sendAnyway === true) return;
    for (const question of this.#questions) {
      if (question === undefined || question.sent) continue;
      question.abandoned = true;
      this.#engine.batchers[question.node]?.abandoned();
      this.answer(question, NOT_ASKED);
    }
  }

  #stopClock(): void {
    this.#engine.deadlines.stop(this);
    this.#cancelDeadline?.();
  }

  onDeadline(): void {
    const message = `no answer within ${Math.round(this.#handlers.timeoutMs)} ms`;
    for (const question of this.#questions) {
      if (question !== undefined && !question.isAnswered) {
        if (question.sent) this.#engine.batchers[question.node]?.suspect();
        this.answer(question, { kind: "error", message, timedOut: true });
      }
    }
    this.#end();
  }
}

/** A round's request to one node. */
class RoundQuestion implements Question {
  readonly operation: Operation;
  readonly node: number;
  readonly #round: RunningRound;
  abandoned = false;
  sent = false;
  isAnswered = false;
  isRepeated = false;

  constructor(round: RunningRound, node: number, operation: Operation) {
    this.#round = round;
    this.node = node;
    this.operation = operation;
  }

  onReply(reply: NodeReply): void {
    if (isRefused(reply)) this.#round.undelivered(this);
    this.#round.answer(this, answerOf(reply));
  }

  onError(error: Error): void {
    if (this.#round.asksAgain(this, error)) return;
    this.#round.undelivered(this);
    this.#round.answer(this, { kind: "error", message: error.message, timedOut: false });
  }
}

function answerOf(reply: NodeReply): Answer {
  const message = operationError(reply);
  return message === undefined ? reply : { kind: "error", message, timedOut: false };
}
