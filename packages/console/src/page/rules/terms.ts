/** Pure: the terms of an election, with the gaps in which nobody led. */
import type { ElectionView, TermView } from "../state.ts";

/** The record of a term, as the leader wrote it. */
export interface TermFacts {
  readonly term: number;
  readonly id: string;
  readonly sinceMs: number;
  /** When and why the term ended. Undefined if the leader wrote no end. */
  readonly untilMs: number | undefined;
  readonly reason: string | undefined;
}

interface Known {
  readonly records: readonly TermFacts[];
  /** When the last lease of a term ends that the page saw. */
  readonly leaseEnds: ReadonlyMap<number, number>;
  /** The term of the leader. Undefined if nobody leads. */
  readonly current: number | undefined;
  /** The first time at which the page looked. */
  readonly firstLookAt: number;
}

/** An election without a leader for this long has ended. */
const ENDED_MS = 3_600_000;

/** Returns the terms, the oldest first. A term of which no end is known ends at the beginning of the next at the latest. */
export function termsOf({ records, leaseEnds, current, firstLookAt }: Known): readonly TermView[] {
  const sorted = records.toSorted((one, other) => one.term - other.term);
  return sorted.map(({ term, id, sinceMs, untilMs, reason }, at) => {
    const facts = { term, id, since: sinceMs };
    if (term === current) return { ...facts, until: undefined, end: undefined };
    const next = sorted[at + 1]?.sinceMs ?? Number.POSITIVE_INFINITY;
    const ending = (ms: number, end: string): TermView => ({
      ...facts,
      until: Math.max(sinceMs, Math.min(ms, next)),
      end,
    });
    if (untilMs !== undefined) return ending(untilMs, reason ?? "unknown");
    const leaseEnd = leaseEnds.get(term);
    return leaseEnd === undefined ? ending(firstLookAt, "unknown") : ending(leaseEnd, "lease-ended");
  });
}

/** Returns since when nobody leads. Undefined if somebody leads, or if nobody has led. */
export function leaderlessSince(terms: readonly TermView[]): number | undefined {
  return terms.at(-1)?.until;
}

/** Returns the state of an election whose nodes have answered. */
export function stateOf(terms: readonly TermView[], isLed: boolean, now: number): ElectionView["state"] {
  if (isLed) return "led";
  const since = leaderlessSince(terms);
  return since === undefined || now - since >= ENDED_MS ? "ended" : "gap";
}
