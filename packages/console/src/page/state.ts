/** The data that the page shows. The data contains no secrets: no token of a lock, no password. */
import type { TickOutcome } from "@x/leader/scheduler";
import type { Finding } from "@x/redlock-core";
import type { BusyKey } from "@x/workers";

/** The data of a section, and its quality. */
export interface Section<Value> {
  readonly value: Value | undefined;
  /** Why the last look failed. The previous value stays. */
  readonly error: string | undefined;
  /** The time of the last answer, in ms since the epoch. Undefined before the first answer. */
  readonly at: number | undefined;
}

export interface NodeView {
  readonly node: string;
  /** Why the node does not answer. */
  readonly error: string | undefined;
  /** How far the node's clock is ahead of the page's clock, in ms. */
  readonly clockMs: number | undefined;
  readonly tookMs: number;
  readonly quarantineLeftMs: number | undefined;
}

export interface NodesView {
  readonly nodes: readonly NodeView[];
  /** Whether the nodes are the masters of a Cluster, each with a part of the locks. */
  readonly isCluster: boolean;
  /** The number of nodes that must answer. A Cluster needs all of its masters. */
  readonly quorum: number;
  /** The number of nodes that answer. */
  readonly answering: number;
}

export interface LockView {
  readonly resource: string;
  /** Whether a quorum holds the lock, reserves the lock briefly for a waiter, or neither. */
  readonly state: "held" | "reserved" | "contended";
  /** The holder, if known: the leader of an election, or the `name` of a `Redlock`. */
  readonly owner: string | undefined;
  /** A hash that differs between holders and reveals nothing about the token. */
  readonly holder: string;
  /** The number of nodes that store the lock. */
  readonly votes: number;
  /** The time left in ms. -1 if the lock never expires. */
  readonly remainingMs: number;
  readonly waiters: number;
  /** The time at which the page first saw this holder, in ms since the epoch. */
  readonly seenAt: number;
}

interface LocksView {
  readonly locks: readonly LockView[];
  /** Number of known locks, on all pages. */
  readonly total: number;
  /** Number of locks whose names contain the search text. */
  readonly found: number;
  /** Whether all keys of the nodes have been read since the page was opened. */
  readonly isComplete: boolean;
}

export interface TermView {
  readonly term: number;
  readonly id: string;
  /** The beginning of the term in ms since the epoch, by the leader's clock. */
  readonly since: number;
  /** The time at which the end of the term was seen, in ms since the epoch. */
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
  /** When the newest tick was due. The tick may have been triggered. */
  readonly tickAt: number | undefined;
  /** The outcome of the newest tick, and the tick's lateness in ms, if known. */
  readonly outcome: TickOutcome | undefined;
  readonly lateMs: number | undefined;
  readonly tookMs: number | undefined;
  readonly failure: string | undefined;
  readonly missed: number;
  readonly paused: boolean;
  readonly running: number;
  readonly owner: string | undefined;
  /** The outcomes of the last ticks, the newest first. The address `history` returns the details. */
  readonly history: readonly TickOutcome[];
}

/** The details of one tick, as returned by the address `history`. */
export interface TickView {
  readonly outcome: TickOutcome;
  /** When the tick was due, in ms since the epoch. */
  readonly at: number;
  readonly lateMs: number | undefined;
  readonly tookMs: number | undefined;
  readonly attempt: number | undefined;
  readonly error: string | undefined;
  /** Why the tick was skipped. */
  readonly reason: string | undefined;
  /** How many ticks were missed. */
  readonly count: number | undefined;
}

export interface QueueView {
  readonly name: string;
  /** Jobs that run. */
  readonly active: number;
  /** Jobs that a free slot would start now. */
  readonly runnable: number;
  /** Jobs that wait for their key. */
  readonly parked: number;
  /** Parked jobs whose keys are at their rate limit. */
  readonly limited: number;
  readonly busyKeys: number;
  readonly pausedKeys: number;
  readonly longestLine: number;
  readonly error: string | undefined;
  readonly at: number | undefined;
}

export interface OutboxView {
  readonly name: string;
  /** Jobs that wait for their relay, counted up to 100,000. */
  readonly rows: number;
  /** Age of the oldest of these jobs, in ms. */
  readonly oldestMs: number;
  /** Jobs per second by which `rows` has grown between the last two looks. Negative if it has shrunk. */
  readonly growth: number | undefined;
  readonly error: string | undefined;
  readonly at: number | undefined;
}

export interface KeysView {
  readonly queue: string;
  readonly keys: readonly BusyKey[];
  readonly total: number;
  readonly found: number;
}

/** The page of each table that one browser wants. */
export interface Wanted {
  readonly locks: number;
  readonly findLock: string;
  readonly queue: string;
  readonly keys: number;
  readonly findKey: string;
  readonly schedules: number;
}

/** The part of the state that all browsers receive. */
export interface SharedState {
  readonly actions: boolean;
  readonly nodes: Section<NodesView>;
  readonly findings: Section<readonly Finding[]>;
  readonly elections: readonly ElectionView[];
  readonly queues: readonly QueueView[];
  readonly outboxes: readonly OutboxView[];
  /** Notes by the owner of the page, the latest first. */
  readonly events: readonly { readonly at: number; readonly text: string }[];
}

/** The part of the state that differs between browsers. */
export interface OwnState {
  /** The time of the server, in ms since the epoch. */
  readonly now: number;
  readonly schedules: Section<{ readonly schedules: readonly ScheduleView[]; readonly total: number }>;
  readonly locks: Section<LocksView>;
  readonly keys: KeysView | undefined;
}

/** The state that a browser receives at each look. */
export type PageState = SharedState & OwnState;

/** Ticks of a schedule that the page shows. */
export const SHOWN_TICKS = 20;

/** Rows of one page of a table. */
export const PAGE_ROWS = 25;

/** The most characters of a text that the page sends. The rest of a longer text becomes an ellipsis. */
export const LONGEST_TEXT = 500;

/** Returns JSON in which each long text is cut: names and errors from Redis may have any length. */
export function jsonOf(value: unknown): string {
  return JSON.stringify(value, (_name, each: unknown) =>
    typeof each === "string" && each.length > LONGEST_TEXT ? `${each.slice(0, LONGEST_TEXT)}…` : each,
  );
}
