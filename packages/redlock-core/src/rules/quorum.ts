/**
 * Pure: decides the outcome of a round by its votes. A round sends one request to every node, and counts at most one
 * answer of each.
 */

/** The smallest majority of `nodeCount` nodes: `floor(N/2) + 1`. */
export function quorumOf(nodeCount: number): number {
  return Math.floor(nodeCount / 2) + 1;
}

/** Returns the number of nodes in a bit set. */
export function countOf(nodes: number): number {
  let count = 0;
  for (let rest = nodes; rest !== 0; rest &= rest - 1) count += 1;
  return count;
}

export type Outcome = "won" | "lost" | "open";

/**
 * Decides a round. It is `won` at the quorum-th yes, and `lost` once the nodes that did not say no, or fail, are fewer
 * than a quorum.
 *
 * The comparison uses `nodeCount - quorum`, so that a tie of an even number of nodes is lost instead of open forever.
 */
export function outcome(tally: { readonly yes: number; readonly no: number }, nodeCount: number): Outcome {
  const quorum = quorumOf(nodeCount);
  if (tally.yes >= quorum) return "won";
  return tally.no > nodeCount - quorum ? "lost" : "open";
}

/**
 * Decides an extension. The outcome is `taken` if a quorum reports that another client holds the lock. Any other loss
 * is not decided until all nodes have answered, because the remaining answers may still make the outcome `taken`.
 */
export function extensionOutcome(
  tally: { readonly yes: number; readonly no: number; readonly taken: number },
  nodeCount: number,
): Outcome | "taken" {
  if (tally.taken >= quorumOf(nodeCount)) return "taken";
  const decided = outcome(tally, nodeCount);
  return decided === "lost" && tally.yes + tally.no < nodeCount ? "open" : decided;
}

/** A node's answer to the request for a lock. */
export type VoteKind =
  /** The key was set, and the grant counts. */
  | "granted"
  /** Another holder, or an earlier waiter, has the resource on this node. */
  | "held"
  /** The node has granted a fencing token that is equal to or above this ballot. */
  | "stale"
  /** The ballot is too far ahead of the node's clock. */
  | "ahead"
  /** The key was set, but the node has restarted or lost its data recently and must not vote yet. */
  | "quarantined"
  /** The node did not answer in time, is not connected, or answered with an error. */
  | "failed";

/** The answer of one node, as plain data that is safe to log or to send to another process. */
export interface Vote {
  /** Name of the node, e.g. `10.0.0.1:6379`. */
  readonly node: string;
  readonly vote: VoteKind;
  /** Milliseconds from the request to this answer. */
  readonly tookMs: number;
  /** The resource that was held on this node. */
  readonly resource?: string;
  /**
   * Milliseconds until the holder's key expires on this node. -1 if the key never expires, so that it is not a lock of
   * this library.
   */
  readonly holderTtlMs?: number;
  /** Milliseconds until the node may vote again. */
  readonly quarantineLeftMs?: number;
  /**
   * Message of the error of the node or its connection. A `held` vote has an error if the resource's key has another
   * type (WRONGTYPE).
   */
  readonly error?: string;
}

export type VoteTally = Record<VoteKind, number>;

export function emptyTally(): VoteTally {
  return { granted: 0, held: 0, stale: 0, ahead: 0, quarantined: 0, failed: 0 };
}

/** Returns the outcome of an acquisition with the votes counted in `tally`. */
export function acquisitionOutcome(tally: VoteTally, nodeCount: number): Outcome {
  const no = tally.held + tally.stale + tally.ahead + tally.quarantined + tally.failed;
  return outcome({ yes: tally.granted, no }, nodeCount);
}

export type Refusal =
  /** The resource is free, and only the ballot was wrong: try again immediately with a better ballot. */
  | "ballot"
  /** A quorum answered, and another holder has the resource. */
  | "held"
  /** Too many nodes failed or must not vote: nobody could have won. */
  | "unreachable";

/** Returns why an acquisition was lost. The reason decides the caller's next step. */
export function refusalOf(tally: VoteTally, nodeCount: number): Refusal {
  const quorum = quorumOf(nodeCount);
  if (nodeCount - tally.failed - tally.quarantined < quorum) return "unreachable";
  if (tally.stale + tally.ahead > 0 && tally.held <= nodeCount - quorum) return "ballot";
  return "held";
}

/**
 * Returns the time until a quorum of nodes can be free: the quorum-th smallest of the given times. Each time is the
 * number of milliseconds until the node's key expires, 0 if the node is free, and Infinity if unknown.
 */
export function quorumFreeMs(freeInMs: readonly number[]): number {
  const sorted = freeInMs.toSorted((a, b) => a - b);
  return sorted[quorumOf(freeInMs.length) - 1] ?? Number.POSITIVE_INFINITY;
}

/** Returns the value that a quorum of nodes reaches or exceeds: the quorum-th largest, or 0 with fewer values. */
export function quorumLargest(values: readonly number[], nodeCount: number): number {
  return values.toSorted((a, b) => b - a)[quorumOf(nodeCount) - 1] ?? 0;
}

/**
 * Returns the middle value, or the smaller one of two middle values. A ballot that is too small costs a round trip; a
 * ballot that is too large is refused.
 */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted[Math.floor((sorted.length - 1) / 2)];
  if (middle === undefined) throw new RangeError("median of no values");
  return middle;
}
