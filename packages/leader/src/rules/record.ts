/** Pure: reads the nodes' knowledge of an election by majority. */
import type { TermEndReason } from "../errors.ts";
import { isTime } from "./values.ts";

/** Plain facts about the leader. */
export interface LeaderInfo {
  readonly id: string;
  /** The fencing token of the term, which strictly increases from leader to leader. */
  readonly term: number;
  /** The text that the leader proclaimed. */
  readonly value?: string;
  /** Time of the leader's election, by the leader's wall clock. */
  readonly acquiredAt: Date;
  /** Milliseconds until the lease ends without a renewal, by the nodes' clocks. */
  readonly expiresInMs: number;
  /** Whether this election object is the leader. */
  readonly self: boolean;
}

/** The record that a leader writes about its term. */
export interface TermRecord {
  readonly term: number;
  readonly id: string;
  /** Text that distinguishes two election objects with the same ID. */
  readonly instance: string;
  readonly value?: string;
  readonly sinceMs: number;
  /**
   * When and why the term ended, by the leader's wall clock. Written by a leader that ends its term and releases the
   * lock. A leader that lost its term or died writes no end.
   */
  readonly untilMs?: number;
  readonly reason?: TermEndReason;
}

/** Reply of one node to read-record. */
export interface NodeRecord {
  readonly lockValue: string;
  readonly pttlMs: number;
  readonly term: number;
  readonly revision: number;
  readonly token: string;
  readonly record: TermRecord | undefined;
  readonly ended: boolean;
  /** The holder's note from the grant of the lock. A quorum may not have granted the lock to this holder. */
  readonly claim: TermRecord | undefined;
  /** Records of terms, in ascending order of the term. */
  readonly terms: readonly TermRecord[];
}

export interface Held {
  readonly record: TermRecord;
  readonly revision: number;
  readonly expiresInMs: number;
}

/**
 * Returns the note for the lock of an election. A node stores the note together with its grant, so a leader is known
 * from the moment at which it leads.
 */
export function claimOf(claim: {
  readonly id: string;
  readonly instance: string;
  readonly value: string | undefined;
}): string {
  return JSON.stringify(claim);
}

/** Parses a node's reply. Throws `TypeError` if the reply is not from read-record. */
export function parseView(reply: unknown): NodeRecord {
  if (!Array.isArray(reply) || reply.length !== 5) throw new TypeError("unexpected reply to read-record");
  const [lockValue, pttl, leader, terms, note] = reply as readonly unknown[];
  const [term, revision, token, record, ended] = texts(leader);
  return {
    lockValue: String(lockValue),
    pttlMs: Number(pttl),
    term: countOf(term),
    revision: countOf(revision),
    token: token ?? "",
    record: parseRecord(record ?? ""),
    ended: ended === "1",
    claim: parseClaim(String(note), String(lockValue)),
    terms: texts(terms)
      .flatMap((each) => parseRecord(each) ?? [])
      .toSorted((a, b) => a.term - b.term),
  };
}

/**
 * Returns the leader whose lock token at least `quorum` nodes hold now, and how long a quorum keeps the lease.
 * Undefined if there is no such leader, or if the record says that the term has ended.
 */
export function heldNow(views: readonly NodeRecord[], quorum: number): Held | undefined {
  const token = views.find((view) => view.lockValue !== "" && isHeldBy(views, view.lockValue, quorum))?.lockValue;
  if (token === undefined) return undefined;
  const holding = views.filter((view) => view.lockValue === token).toSorted((a, b) => b.pttlMs - a.pttlMs);
  const stored = views.filter((view) => view.token === token).toSorted((a, b) => b.revision - a.revision);
  const record = stored[0]?.record ?? holding.find(({ claim }) => claim !== undefined)?.claim;
  if (record === undefined || stored.some(({ ended }) => ended)) return undefined;
  return { record, revision: stored[0]?.revision ?? 0, expiresInMs: holding[quorum - 1]?.pttlMs ?? 0 };
}

/** Reports whether at least `quorum` nodes hold this lock token now. */
export function isHeldBy(views: readonly NodeRecord[], token: string, quorum: number): boolean {
  return views.filter((view) => view.lockValue === token && view.pttlMs > 0).length >= quorum;
}

/** Returns each term above `after` that any node knows, without duplicates and in order. */
export function termsAfter(views: readonly NodeRecord[], after: number): readonly TermRecord[] {
  const byTerm = new Map<number, TermRecord>();
  for (const record of views.flatMap((view) => view.terms)) if (record.term > after) byTerm.set(record.term, record);
  return [...byTerm.values()].toSorted((a, b) => a.term - b.term);
}

/** Reports whether the last term before `term` ended with a clean resignation. True if `term` is the first term. */
export function endedCleanly(views: readonly NodeRecord[], term: number): boolean {
  const before = views.filter((view) => view.term > 0 && view.term < term);
  const last = Math.max(0, ...before.map((view) => view.term));
  return last === 0 || before.some((view) => view.term === last && view.ended);
}

/** Returns the highest term that any node knows. 0 if no node knows a term. */
export function newestTerm(views: readonly NodeRecord[]): number {
  return Math.max(0, ...views.map((view) => view.term));
}

/** Returns a number that a leader has written. 0 if the number is missing or cannot be from a leader. */
function countOf(text: string | undefined): number {
  const count = Number(text ?? 0);
  return Number.isSafeInteger(count) && count > 0 ? count : 0;
}

function texts(value: unknown): readonly string[] {
  return Array.isArray(value) ? value.map(String) : [];
}

/**
 * Parses a note (see acquire.lua.ts of redlock-core). The note has no time of election, so the time of the node's grant
 * replaces it until the record is written.
 */
function parseClaim(note: string, lockValue: string): TermRecord | undefined {
  const [, token, term, sinceUs, claim = ""] = /^(\S+) (\d+) (\d+) (.*)$/s.exec(note) ?? [];
  if (token !== lockValue) return undefined;
  return parseRecord(claim, { term: Number(term), sinceMs: Math.floor(Number(sinceUs) / 1_000) });
}

function parseRecord(json: string, facts: Partial<TermRecord> = {}): TermRecord | undefined {
  if (json === "") return undefined;
  try {
    const parsed = JSON.parse(json) as Record<string, unknown>;
    const { term, id, instance, value, sinceMs }: Record<string, unknown> = { ...parsed, ...facts };
    if (typeof id !== "string" || !isTime(sinceMs)) return undefined;
    if (typeof term !== "number" || !Number.isSafeInteger(term)) return undefined;
    return { term, id, instance: String(instance), sinceMs, ...(typeof value === "string" ? { value } : {}) };
  } catch {
    return undefined;
  }
}
