/**
 * Pure: what the nodes' answers mean together.
 *
 * A value that was written to a quorum is found by any later quorum of nodes that keep their data. With `unknown` nodes (silent, or with
 * their data lost) a value seen on `k` nodes may have been on a quorum iff `k ≥ 1` and `k + unknown ≥ quorum`.
 */

export interface Majority {
  readonly nodeCount: number;
  readonly quorum: number;
}

/** May a quorum have stored what `seen` nodes show? */
export function mayBeStored(seen: number, unknown: number, quorum: number): boolean {
  return seen > 0 && seen + unknown >= quorum;
}

/** The highest of the nodes' values that may be on a quorum, where a node with a higher one counts for all lower ones. */
export function highestStored(values: readonly number[], unknown: number, quorum: number): number | undefined {
  return values.toSorted((a, b) => b - a).find((_, index) => mayBeStored(index + 1, unknown, quorum));
}

/** One node's answer to a claim. */
export type ClaimAnswer = "ok" | "paused" | { readonly taken: number };

export type ClaimOutcome =
  | { readonly kind: "claimed" }
  /** Stored as dealt with, and not to be run. */
  | { readonly kind: "paused" }
  /** Dealt with up to a later tick already. */
  | { readonly kind: "taken"; readonly accountedMs: number }
  /** Too few answers: try again. */
  | { readonly kind: "open" };

/** Idempotent: the same term may claim the same tick again until it knows. */
export function claimOutcome(answers: readonly ClaimAnswer[], { nodeCount, quorum }: Majority): ClaimOutcome {
  const taken = answers.flatMap((answer) => (typeof answer === "object" ? [answer.taken] : []));
  const stored = answers.length - taken.length;
  if (stored >= quorum) return answers.includes("paused") ? { kind: "paused" } : { kind: "claimed" };
  if (taken.length > nodeCount - quorum) return { kind: "taken", accountedMs: Math.max(...taken) };
  return { kind: "open" };
}
