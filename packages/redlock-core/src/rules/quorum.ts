/**
 * Pure: which votes decide a round. A round asks every node once; each answers at most once.
 */

/** The smallest majority of `nodeCount` nodes: `floor(N/2) + 1`. */
export function quorumOf(nodeCount: number): number {
  return Math.floor(nodeCount / 2) + 1;
}

/** Counts nodes that are given as bits. */
export function countOf(nodes: number): number {
  let count = 0;
  for (let rest = nodes; rest !== 0; rest &= rest - 1) count += 1;
  return count;
}

export type Outcome = "won" | "lost" | "open";

/**
 * Decides a round: it is `won` at the quorum-th yes. It is `lost` as soon as so many nodes said no, or failed, that
 * the rest cannot make a quorum.
 *
 * The rule is written against `nodeCount - quorum`, so that a tie of an even number of nodes is lost and never hangs.
 */
export function outcome(tally: { readonly yes: number; readonly no: number }, nodeCount: number): Outcome {
  const quorum = quorumOf(nodeCount);
  if (tally.yes >= quorum) return "won";
  return tally.no > nodeCount - quorum ? "lost" : "open";
}

/**
 * Decides an extension. It is `taken` when a quorum says that the lock is not ours. Otherwise it is not lost before all
 * nodes have answered, because the rest may say that it is taken.
 */
export function extensionOutcome(
  tally: { readonly yes: number; readonly no: number; readonly taken: number },
  nodeCount: number,
): Outcome | "taken" {
  if (tally.taken >= quorumOf(nodeCount)) return "taken";
  const decided = outcome(tally, nodeCount);
  return decided === "lost" && tally.yes + tally.no < nodeCount ? "open" : decided;
}

/** How one node answered the request for a lock. */
export type VoteKind =
  /** The key was set and the node counts. */
  | "granted"
  /** Another holder, or an earlier waiter, has the resource on this node. */
  | "held"
  /** The node stores a fencing token that is not below our ballot. */
  | "stale"
  /** Our ballot lies too far in the node's future. */
  | "ahead"
  /** The key was set, but the node restarted or lost its data so recently that it may not vote. */
  | "quarantined"
  /** The node did not answer in time, is not connected, or answered with an error. */
  | "failed";

/** A vote says how one node answered. It is plain data, safe to log or to send to another process. */
export interface Vote {
  /** The name of the node, e.g. `10.0.0.1:6379`. */
  readonly node: string;
  readonly vote: VoteKind;
  /** The milliseconds from the request to this answer. */
  readonly tookMs: number;
  /** The resource that was held there. */
  readonly resource?: string;
  /** The milliseconds until the holder's key expires there. With -1 the key has no expiry, so it is no lock of ours. */
  readonly holderTtlMs?: number;
  /** The milliseconds until the node may vote again. */
  readonly quarantineLeftMs?: number;
  /**
   * The message of the node's or the connection's error. A `held` vote has one if the resource's key is of another
   * type (WRONGTYPE).
   */
  readonly error?: string;
}

export type VoteTally = Record<VoteKind, number>;

export function emptyTally(): VoteTally {
  return { granted: 0, held: 0, stale: 0, ahead: 0, quarantined: 0, failed: 0 };
}

/** Returns the outcome of an acquisition whose votes so far are in `tally`. */
export function acquisitionOutcome(tally: VoteTally, nodeCount: number): Outcome {
  const no = tally.held + tally.stale + tally.ahead + tally.quarantined + tally.failed;
  return outcome({ yes: tally.granted, no }, nodeCount);
}

export type Refusal =
  /** Nobody holds the resource, and only our ballot was wrong: ask again at once with a better one. */
  | "ballot"
  /** A quorum could be asked, and somebody else has the resource. */
  | "held"
  /** Too many nodes failed or may not vote: nobody could have won. */
  | "unreachable";

/** Returns why a lost acquisition was lost, which decides what the caller does next. */
export function refusalOf(tally: VoteTally, nodeCount: number): Refusal {
  const quorum = quorumOf(nodeCount);
  if (nodeCount - tally.failed - tally.quarantined < quorum) return "unreachable";
  if (tally.stale + tally.ahead > 0 && tally.held <= nodeCount - quorum) return "ballot";
  return "held";
}

/**
 * Returns after how long a quorum of nodes could be free: the quorum-th smallest of the nodes' times. Each is the
 * milliseconds until the node's key expires, 0 if the node is free now, and Infinity if that is unknown.
 */
export function quorumFreeMs(freeInMs: readonly number[]): number {
  const sorted = freeInMs.toSorted((a, b) => a - b);
  return sorted[quorumOf(freeInMs.length) - 1] ?? Number.POSITIVE_INFINITY;
}

/** Returns the value that a quorum of nodes reaches or exceeds: the quorum-th largest, or 0 if too few nodes report. */
export function quorumLargest(values: readonly number[], nodeCount: number): number {
  return values.toSorted((a, b) => b - a)[quorumOf(nodeCount) - 1] ?? 0;
}

/**
 * Returns the middle value; of two, the smaller. A ballot that is too small costs a round trip, and one that is too
 * large is refused.
 */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted[Math.floor((sorted.length - 1) / 2)];
  if (middle === undefined) throw new RangeError("median of no values");
  return middle;
}
