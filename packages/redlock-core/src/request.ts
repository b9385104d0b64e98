/** What is asked of one node or more in one operation, and what became of it on each. One object for all nodes: they are made all the time. */
import { Timed } from "./deadlines.ts";
import type { Target } from "./operation.ts";

export abstract class Request extends Timed {
  readonly target: Target;
  text = "";
  /** Bits of the nodes it was handed to the connection of: from then on the node may execute it, answered or not. */
  sentTo = 0;
  /** Set by whoever gave up; what is not yet sent is then dropped. */
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

  /** `value`: what the operation's script file says, or an error; `nodeTimeUs`: the node's clock; `quarantineLeftMs`: 0: it may vote. */
  abstract onReply(node: number, value: unknown, nodeTimeUs: number, quarantineLeftMs: number): void;
  abstract onError(node: number, error: Error): void;
}

/** The error of one operation in a request that the node did execute. */
export function operationError(value: unknown): string | undefined {
  return Array.isArray(value) && value[0] === -1 ? String(value[1]) : undefined;
}

/** The node refused to write (READONLY, NOREPLICAS, MISCONF). A key of another type is not ours. */
export function isRefused(value: unknown): boolean {
  return operationError(value)?.startsWith("WRONGTYPE") === false;
}
