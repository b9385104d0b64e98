/**
 * One request to every node in parallel, and a deadline.
 *
 * Guaranteed: `onAnswer` is called at most once per node, and never after it returned true; a late answer counts for nothing. At the
 * deadline the nodes that did not answer are reported as failed, in one go. What was not yet sent then is never sent.
 */
import type { NodeReply, Operation } from "./batcher.ts";
import type { Engine } from "./engine.ts";

export interface RoundRequest {
  readonly keys: readonly string[];
  readonly args: readonly string[];
  readonly slot: number;
}

export type Answer =
  | { readonly kind: "reply"; readonly reply: NodeReply }
  | { readonly kind: "error"; readonly message: string; readonly timedOut: boolean };

/** Told exactly once for each node that is asked: its answer, also one that came after the decision, or why there is none. */
export type Observer = (node: number, answer: Answer) => void;

export interface Round {
  /** Per node: whether the request was handed to the connection, so that the node may execute it. */
  readonly sent: (node: number) => boolean;
}

const NOT_ASKED: Answer = { kind: "error", message: "not asked: decided before", timedOut: false };

/** `sendAnyway`: what is not yet sent when the round ends is still sent (a release must reach the node). */
export function startRound(
  engine: Engine,
  request: RoundRequest,
  handlers: {
    readonly timeoutMs: number;
    readonly sendAnyway?: boolean;
    readonly only?: (node: number) => boolean;
    /** The request could not be delivered, or its connection broke before an answer; told also after the end. */
    readonly onUndelivered?: (node: number) => void;
    /** Returns true when the round is decided: no further answer is then reported. May be called before `startRound` returns. */
    readonly onAnswer: (node: number, answer: Answer) => boolean;
    readonly observe?: Observer | undefined;
  },
): Round {
  const operations: (Operation | undefined)[] = [];
  const answered: boolean[] = [];
  let ended = false;
  let open = engine.batchers.length;
  let unobserved = handlers.observe === undefined ? 0 : engine.batchers.length;

  const answer = (node: number, given: Answer): void => {
    if (answered[node] === true || (ended && unobserved === 0)) return;
    answered[node] = true;
    if (unobserved > 0) observed(node, given);
    open -= 1;
    if (!ended && (handlers.onAnswer(node, given) || open === 0)) end();
  };
  const observed = (node: number, given: Answer): void => {
    unobserved -= 1;
    handlers.observe?.(node, given);
    if (ended && unobserved === 0) cancelDeadline();
  };
  const end = (): void => {
    if (ended) return;
    ended = true;
    if (unobserved === 0) cancelDeadline();
    if (handlers.sendAnyway === true) return;
    for (const [node, operation] of operations.entries()) {
      if (operation === undefined || operation.sent) continue;
      operation.abandoned = true;
      engine.batchers[node]?.abandoned();
      answer(node, NOT_ASKED);
    }
  };
  const cancelDeadline = engine.clock.schedule(
    handlers.timeoutMs,
    () => {
      for (const [node, operation] of operations.entries()) {
        if (operation === undefined || answered[node] === true) continue;
        answer(node, {
          kind: "error",
          message: `no answer within ${Math.round(handlers.timeoutMs)} ms`,
          timedOut: true,
        });
      }
      end();
    },
    { keepAlive: true },
  );

  for (const [node, batcher] of engine.batchers.entries()) {
    if (handlers.only !== undefined && !handlers.only(node)) {
      operations.push(undefined);
      answered[node] = true;
      open -= 1;
      if (unobserved > 0) unobserved -= 1;
      continue;
    }
    if (ended && handlers.sendAnyway !== true) {
      operations.push(undefined);
      answer(node, NOT_ASKED);
      continue;
    }
    const operation: Operation = {
      keys: request.keys,
      args: request.args,
      slot: request.slot,
      abandoned: false,
      sent: false,
      onReply: (reply) => answer(node, answerOf(reply)),
      onError: (error) => {
        handlers.onUndelivered?.(node);
        answer(node, { kind: "error", message: error.message, timedOut: false });
      },
    };
    operations.push(operation);
    batcher.submit(operation);
  }
  return { sent: (node) => operations[node]?.sent === true };
}

function answerOf(reply: NodeReply): Answer {
  const { value } = reply;
  if (Array.isArray(value) && value[0] === -1) return { kind: "error", message: String(value[1]), timedOut: false };
  return { kind: "reply", reply };
}
