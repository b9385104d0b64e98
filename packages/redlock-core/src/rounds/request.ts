/** A request is one operation that nodes are asked for. All nodes of a round get the same request object. */
import type { Target } from "../rules/operation.ts";

/** A node's reply to one operation. */
export interface Reply {
  readonly kind: "reply";
  /** The value that the operation's script file describes, or an error. */
  readonly value: unknown;
  /** The node's clock in microseconds. */
  readonly nodeTimeUs: number;
  /** The milliseconds until the node may vote; 0 if the node may vote now. */
  readonly quarantineLeftMs: number;
}

/** Receives the outcome of a request, once per node. */
export interface Receiver {
  onReply(node: number, reply: Reply): void;
  onError(node: number, error: Error): void;
}

/** What the nodes need to know about a request, apart from its text. */
export type RequestKind = "acquire" | "release" | "other";

export class Request {
  readonly kind: RequestKind;
  readonly target: Target;
  readonly text: string;
  readonly receiver: Receiver;
  /** The nodes whose connection got the request, as bits. From then on a node may execute it, answered or not. */
  sentTo = 0;
  /** Whether the caller has given up. A batcher drops an abandoned request that it has not sent yet. */
  isAbandoned = false;

  constructor(kind: RequestKind, target: Target, text: string, receiver: Receiver) {
    this.kind = kind;
    this.target = target;
    this.text = text;
    this.receiver = receiver;
  }
}

/** Returns the error of one operation in a request that the node did execute. */
export function operationError(value: unknown): string | undefined {
  if (typeof value === "number" && !Number.isSafeInteger(value)) return `replied ${value}, which is not a safe integer`;
  return Array.isArray(value) && value[0] === -1 ? String(value[1]) : undefined;
}

/** Reports whether the node refused to write because it is a replica. */
export function isReadOnly(message: string | undefined): boolean {
  return message?.includes("READONLY ") === true;
}

/**
 * Reports whether the node refused to write (READONLY, NOREPLICAS, MISCONF). WRONGTYPE does not count: another program
 * owns that key.
 */
export function isRefused(value: unknown): boolean {
  return operationError(value)?.startsWith("WRONGTYPE") === false;
}
