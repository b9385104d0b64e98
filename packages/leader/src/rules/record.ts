/** Pure: what the nodes know of an election, read by majority. */
import { isTime } from "./values.ts";

/** The plain facts about who leads. */
export interface LeaderInfo {
  readonly id: string;
  /** The fencing token of the term, which strictly increases from leader to leader. */
  readonly term: number;
  /** The text that the leader proclaimed. */
  readonly value?: string;
  /** The time of its election, by its own wall clock. */
  readonly acquiredAt: Date;
  /** The milliseconds until the lease ends unless it is renewed, by the nodes' clocks. */
  readonly expiresInMs: number;
  /** Whether it is this election object of this process. */
  readonly self: boolean;
}

/** What a leader writes about its term. */
export interface TermRecord {
  readonly term: number;
  readonly id: string;
  /** This text tells two objects of one id apart. */
  readonly instance: string;
  readonly value?: string;
  readonly sinceMs: number;
}

/** One node's reply to read-record. */
export interface NodeView {
  readonly lockValue: string;
  readonly pttlMs: number;
  readonly term: number;
  readonly revision: number;
  readonly token: string;
  readonly record: TermRecord | undefined;
  readonly ended: boolean;
  /** What the grant of the lock says of its holder, who may not have been granted by a quorum. */
  readonly claim: TermRecord | undefined;
  /** The terms, in ascending order. */
  readonly terms: readonly TermRecord[];
}

export interface Held {
  readonly record: TermRecord;
  readonly revision: number;
  readonly expiresInMs: number;
}

/**
 * Returns the note of a lock that makes a leader. Each node keeps it from its grant on, so that no step lies between
 * leading and being known to lead.
 */
export function claimOf(claim: {
  readonly id: string;
  readonly instance: string;
  readonly value: string | undefined;
}): string {
  return JSON.stringify(claim);
}

/** Parses a node's reply, and throws `TypeError` if it is not one of ours. */
export function parseView(reply: unknown): NodeView {
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
 * Returns the leader whose lock token is on at least `quorum` nodes now, with the lease that a quorum still gives it.
 */
export function heldNow(views: readonly NodeView[], quorum: number): Held | undefined {
  const token = views.find((view) => view.lockValue !== "" && isHeldBy(views, view.lockValue, quorum))?.lockValue;
  if (token === undefined) return undefined;
  const holding = views.filter((view) => view.lockValue === token).toSorted((a, b) => b.pttlMs - a.pttlMs);
  const stored = views.filter((view) => view.token === token).toSorted((a, b) => b.revision - a.revision);
  const record = stored[0]?.record ?? holding.find(({ claim }) => claim !== undefined)?.claim;
  if (record === undefined || stored.some(({ ended }) => ended)) return undefined;
  return { record, revision: stored[0]?.revision ?? 0, expiresInMs: holding[quorum - 1]?.pttlMs ?? 0 };
}

/** Tells whether at least `quorum` nodes hold this lock token now. */
export function isHeldBy(views: readonly NodeView[], token: string, quorum: number): boolean {
  return views.filter((view) => view.lockValue === token && view.pttlMs > 0).length >= quorum;
}

/** Returns every term above `after` that any node knows, once each, in order. */
export function termsAfter(views: readonly NodeView[], after: number): readonly TermRecord[] {
  const byTerm = new Map<number, TermRecord>();
  for (const record of views.flatMap((view) => view.terms)) if (record.term > after) byTerm.set(record.term, record);
  return [...byTerm.values()].toSorted((a, b) => a.term - b.term);
}

/** Tells whether the last term before `term` ended with a clean resignation. It is true, too, if there was none. */
export function endedCleanly(views: readonly NodeView[], term: number): boolean {
  const before = views.filter((view) => view.term > 0 && view.term < term);
  const last = Math.max(0, ...before.map((view) => view.term));
  return last === 0 || before.some((view) => view.term === last && view.ended);
}

/** Returns the highest term that any node knows, or 0 if there is none. */
export function newestTerm(views: readonly NodeView[]): number {
  return Math.max(0, ...views.map((view) => view.term));
}

/** Returns a number that a leader has written. 0 for a missing one, and for one that cannot be from a leader. */
function countOf(text: string | undefined): number {
  const count = Number(text ?? 0);
  return Number.isSafeInteger(count) && count > 0 ? count : 0;
}

function texts(value: unknown): readonly string[] {
  return Array.isArray(value) ? value.map(String) : [];
}

/**
 * Parses a note (see acquire.lua.ts of redlock-core). Until its record is there, a term began when the node granted it,
 * by the clock of the node.
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
