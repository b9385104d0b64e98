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

/** When the leader of a term last repeated its record, which it does once per lease. */
export interface LastSign {
  readonly term: number;
  readonly at: number;
}

interface KnownTerms {
  readonly records: readonly TermFacts[];
  /** When the last lease of a term ends that the page saw. */
  readonly leaseEnds: ReadonlyMap<number, number>;
  /** Undefined if the nodes remember no term. */
  readonly lastSign: LastSign | undefined;
  /** The term of the leader. Undefined if nobody leads. */
  readonly current: number | undefined;
  /** The first time at which the page looked. */
  readonly firstLookAt: number;
}

/** After its last sign of life, a leader with the default lease of 15 s leads for two leases at most. */
const LAST_LEASES_MS = 30_000;
/** An election without a leader for this long has ended. */
const ENDED_MS = 3_600_000;

/** Returns the terms, the oldest first. A term ends at the beginning of the next term at the latest. */
export function termsOf({ records, leaseEnds, lastSign, current, firstLookAt }: KnownTerms): readonly TermView[] {
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
    if (leaseEnd !== undefined) return ending(leaseEnd, "lease-ended");
    return ending(
      Math.min(firstLookAt, lastSign?.term === term ? lastSign.at + LAST_LEASES_MS : firstLookAt),
      "unknown",
    );
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
