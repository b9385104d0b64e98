/** A request is one operation that nodes are asked for, and what became of it on each: one object for all nodes. */
import { Timed } from "../kit/deadlines.ts";
import type { Target } from "../rules/operation.ts";

/** A reply says what a node did of one operation. */
export interface Reply {
  readonly kind: "reply";
  /** The value that the operation's script file describes, or an error. */
  readonly value: unknown;
  /** The node's clock in microseconds. */
  readonly nodeTimeUs: number;
  /** The milliseconds until the node may vote; 0 if it may vote now. */
  readonly quarantineLeftMs: number;
}

export abstract class Request extends Timed {
  readonly target: Target;
  text = "";
  /** The nodes to whose connection it was handed, as bits. From then on a node may execute it, answered or not. */
  sentTo = 0;
  /** Whether its caller has given up; what is not yet sent is then dropped. */
  abandoned = false;

  constructor(target: Target) {
    super();
    this.target = target;
  }

  get isAcquisition(): boolean {
    return false;
  }

  get isRelease(): boolean {
    return false;
  }

  sent(node: number): boolean {
    return (this.sentTo & (1 << node)) !== 0;
  }

  abstract onReply(node: number, reply: Reply): void;
  abstract onError(node: number, error: Error): void;
}

/** Returns the error of one operation in a request that the node did execute. */
export function operationError(value: unknown): string | undefined {
  if (typeof value === "number" && !Number.isSafeInteger(value)) return `replied ${value}, which is no safe integer`;
  return Array.isArray(value) && value[0] === -1 ? String(value[1]) : undefined;
}

/**
 * Tells whether the node refused to write (READONLY, NOREPLICAS, MISCONF). A key of another type is not ours, so that
 * is no refusal.
 */
export function isRefused(value: unknown): boolean {
  return operationError(value)?.startsWith("WRONGTYPE") === false;
}
