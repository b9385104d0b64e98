/** What the page shows. Nothing in it is a secret: no token of a lock, no password. */
import type { TickOutcome } from "@x/leader/scheduler";
import type { Finding } from "@x/redlock-core";
import type { BusyKey } from "@x/workers";

/** What is shown of a section, and how good it is. */
export interface Section<Value> {
  readonly value: Value | undefined;
  /** Why the last look at it failed. What was known before stays. */
  readonly error: string | undefined;
  /** The time of the last answer, in ms since the epoch; undefined: there was none yet. */
  readonly at: number | undefined;
}

export interface NodeView {
  readonly node: string;
  /** Why the node does not answer. */
  readonly error: string | undefined;
  /** How far its clock is ahead of the page's, in ms. */
  readonly clockMs: number | undefined;
  readonly tookMs: number;
  readonly quarantineLeftMs: number | undefined;
}

export interface NodesView {
  readonly nodes: readonly NodeView[];
  /** Whether the nodes are the masters of a Cluster, each of which has a part of the locks. */
  readonly isCluster: boolean;
  /** The number of nodes that have to answer. A Cluster needs all of its masters. */
  readonly quorum: number;
  /** The number of nodes that answer. */
  readonly answering: number;
}

export interface LockView {
  readonly resource: string;
  /** Whether a quorum holds it, keeps it for a waiter for a moment, or neither. */
  readonly state: "held" | "reserved" | "contended";
  /** Who has it, as far as it says so: the leader of an election, or the `name` of its `Redlock`. */
  readonly owner: string | undefined;
  /** Tells one holder from the next, and says nothing of its token. */
  readonly holder: string;
  /** The number of nodes that have it. */
  readonly votes: number;
  /** -1: it never ends. */
  readonly remainingMs: number;
  readonly waiters: number;
  /** The time at which the page first saw this holder, in ms since the epoch. */
  readonly seenAt: number;
}

interface LocksView {
  readonly locks: readonly LockView[];
  /** Those that are known, on all pages. */
  readonly total: number;
  /** Those of them that `find` finds. */
  readonly found: number;
  /** Whether all keys of the nodes were looked through since the page was opened. */
  readonly isComplete: boolean;
}

export interface TermView {
  readonly term: number;
  readonly id: string;
  /** The beginning of the term in ms since the epoch, by the leader's clock. */
  readonly since: number;
  /** The time at which its end was seen, in ms since the epoch. */
  readonly until: number | undefined;
}

export interface ElectionView {
  readonly name: string;
  readonly leader:
    | {
        readonly id: string;
        readonly term: number;
        readonly value: string | undefined;
        readonly since: number;
        readonly expiresInMs: number;
      }
    | undefined;
  readonly error: string | undefined;
  /** The latest terms, the oldest first. */
  readonly terms: readonly TermView[];
}

export interface ScheduleView {
  readonly scheduler: string;
  readonly name: string;
  readonly next: number | undefined;
  readonly last: number | undefined;
  /** When the newest tick was due, also one that was triggered. */
  readonly tickAt: number | undefined;
  /** What became of the newest tick, and how late it was, in ms, if that is known. */
  readonly outcome: TickOutcome | undefined;
  readonly lateMs: number | undefined;
  readonly tookMs: number | undefined;
  readonly failure: string | undefined;
  readonly missed: number;
  readonly paused: boolean;
  readonly running: number;
  readonly owner: string | undefined;
  /** What became of its last ticks, the newest first. The address `history` tells more of each. */
  readonly history: readonly TickOutcome[];
}

/** What became of one tick, as the address `history` tells it. */
export interface TickView {
  readonly outcome: TickOutcome;
  /** When it was due, in ms since the epoch. */
  readonly at: number;
  readonly lateMs: number | undefined;
  readonly tookMs: number | undefined;
  readonly attempt: number | undefined;
  readonly error: string | undefined;
  /** Why it was skipped. */
  readonly reason: string | undefined;
  /** How many were missed. */
  readonly count: number | undefined;
}

export interface QueueView {
  readonly name: string;
  /** Jobs that run. */
  readonly active: number;
  /** Jobs that a free slot would take now. */
  readonly runnable: number;
  /** Jobs that wait for their key. */
  readonly parked: number;
  /** Jobs among them whose keys are at the limit of their rate. */
  readonly limited: number;
  readonly busyKeys: number;
  readonly pausedKeys: number;
  readonly longestLine: number;
  readonly error: string | undefined;
  readonly at: number | undefined;
}

export interface KeysView {
  readonly queue: string;
  readonly keys: readonly BusyKey[];
  readonly total: number;
  readonly found: number;
}

/** A page of each table, as one browser wants it. */
export interface Wanted {
  readonly locks: number;
  readonly findLock: string;
  readonly queue: string;
  readonly keys: number;
  readonly findKey: string;
  readonly schedules: number;
}

/** What all browsers are sent alike. */
export interface SharedState {
  readonly actions: boolean;
  readonly nodes: Section<NodesView>;
  readonly findings: Section<readonly Finding[]>;
  readonly elections: readonly ElectionView[];
  readonly queues: readonly QueueView[];
  /** What happened, as the owner of the page told it; the latest first. */
  readonly events: readonly { readonly at: number; readonly text: string }[];
}

/** What one browser is sent alone. */
export interface OwnState {
  /** The time of the server, in ms since the epoch. */
  readonly now: number;
  readonly schedules: Section<{ readonly schedules: readonly ScheduleView[]; readonly total: number }>;
  readonly locks: Section<LocksView>;
  readonly keys: KeysView | undefined;
}

/** What one browser is sent at each look. */
export type PageState = SharedState & OwnState;

/** Ticks of a schedule that the page shows. */
export const SHOWN_TICKS = 20;

/** Rows of one page of a table. */
export const PAGE_ROWS = 25;

/** Characters of a text that the page sends. A longer text ends with an ellipsis in the place of its rest. */
export const LONGEST_TEXT = 500;

/** Returns JSON in which each long text is cut: names and errors of others may have any length. */
export function jsonOf(value: unknown): string {
  return JSON.stringify(value, (_name, each: unknown) =>
    typeof each === "string" && each.length > LONGEST_TEXT ? `${each.slice(0, LONGEST_TEXT)}…` : each,
  );
}
