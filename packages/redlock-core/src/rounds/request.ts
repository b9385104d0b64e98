/** A request asks nodes to perform one operation. All nodes of a round receive the same request object. */
import type { Target } from "../rules/operation.ts";

/** Reply of a node to one operation. */
export interface Reply {
  readonly kind: "reply";
  /** Value described by the operation's script file, or an error. */
  readonly value: unknown;
  /** Clock of the node in microseconds. */
  readonly nodeTimeUs: number;
  /** Milliseconds until the node may vote. 0 if the node may vote now. */
  readonly quarantineLeftMs: number;
}

/** Receives the outcome of a request, once per node. */
export interface Receiver {
  onReply(node: number, reply: Reply): void;
  onError(node: number, error: Error): void;
}

/** Kind of a request. Nodes need to know nothing else about it, apart from its text. */
export type RequestKind = "acquire" | "release" | "other";

export class Request {
  readonly kind: RequestKind;
  readonly target: Target;
  readonly text: string;
  readonly receiver: Receiver;
  /**
   * Nodes to whose connection the request was passed, as bits. From then on a node may execute the request, even
   * without an answer.
   */
  sentTo = 0;
  /** Whether the caller has given up. A batcher drops an abandoned request that is not sent yet. */
  isAbandoned = false;

  constructor(kind: RequestKind, target: Target, text: string, receiver: Receiver) {
    this.kind = kind;
    this.target = target;
    this.text = text;
    this.receiver = receiver;
  }
}

/** Returns the error of one operation in a request that the node has executed. */
export function operationError(value: unknown): string | undefined {
  if (typeof value === "number" && !Number.isSafeInteger(value)) return `replied ${value}, which is not a safe integer`;
  return Array.isArray(value) && value[0] === -1 ? String(value[1]) : undefined;
}

/** Reports whether the node refused to write because it is a replica. */
export function isReadOnly(message: string | undefined): boolean {
  return message?.includes("READONLY ") === true;
}

/**
 * Reports whether the node refused to write (READONLY, NOREPLICAS, MISCONF). WRONGTYPE does not count, because another
 * program owns the key.
 */
export function isRefused(value: unknown): boolean {
  return operationError(value)?.startsWith("WRONGTYPE") === false;
}
