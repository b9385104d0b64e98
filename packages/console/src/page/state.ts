/**
 * The state document of the page: what the server sends and the browser shows. The document contains no secrets: no
 * token of a lock, no password.
 *
 * Addresses of the data:
 * - `GET state?…` answers with the whole document, a `PageState`.
 * - `GET events?…` is a stream of server-sent events. Each event `state` contains the whole document. A browser that
 *   asks with `changes=1` receives one event `state`, and then events `changes` with a `StateChange[]` against the
 *   state before, see `rules/changes.ts`. A slow browser receives fewer events, each relative to the last one that was
 *   sent.
 * - `GET history?scheduler=…&name=…` answers with `{ ticks: TickView[] }`, the details of one schedule.
 * - `POST act?do=…` runs an action.
 *
 * The query of the first two addresses is a `BrowserQuery`. All times are ms since the epoch. A field that is undefined
 * is absent in JSON. Undefined means that a value is not known or does not apply, never 0.
 */
import type { LeaderInfo } from "@x/leader";
import type { TickOutcome } from "@x/leader/scheduler";
import type { Finding } from "@x/redlock-core";
import type { BusyKey, ExclusionFigures, KeyReading } from "@x/workers";
import type { KeyGroups } from "./rules/key-groups.ts";

/** The data of a section, and its quality. */
export interface PageSection<Value> {
  readonly value: Value | undefined;
  /** Why the last look failed. The previous value stays. */
  readonly error: string | undefined;
  /** The time of the last answer. Undefined before the first answer. */
  readonly at: number | undefined;
}

/** Whether the page is live. */
export interface LiveView {
  /** Whether a quorum of the lock nodes has answered the last look. */
  readonly isLive: boolean;
  /** The last time at which a quorum answered. Undefined before the first answer. */
  readonly at: number | undefined;
  /** Why the page is not live, such as `1 of 3 nodes answer, 2 make a quorum`. Undefined if it is live. */
  readonly error: string | undefined;
}

/** The checks of "needs attention". */
export type ProblemCode =
  /** A queue has runnable jobs, and no worker of the queue reports. */
  | "NO_WORKER"
  /** A failed job has stopped its key. */
  | "KEY_HALTED"
  /** Fewer lock nodes answer than make a quorum. */
  | "NO_QUORUM"
  /** An election has had no leader for longer than one lease. */
  | "NO_LEADER"
  /** A worker has lost the lock of a running job in the last 15 min. */
  | "LOCK_LOST"
  /** Jobs have started, and their workers are gone. */
  | "JOBS_STALLED"
  /** The oldest parked job of a key that is not paused waits for longer than 5 min. */
  | "PARKED_LONG"
  /** The last two ticks of a schedule have failed. */
  | "SCHEDULE_FAILING"
  /** A tick was missed in the last 15 min. */
  | "TICK_MISSED"
  /** A lock node does not answer. */
  | "NODE_DOWN"
  /** A lock node is in quarantine. */
  | "NODE_QUARANTINED"
  /** A finding of `redlock.check()` about the lock nodes. */
  | "NODE_FINDING"
  /** A renewal came so late that less than a third of the lease was left. */
  | "RENEWED_LATE"
  /** The workers of a queue have different options. */
  | "WORKERS_DIFFER"
  /** A queue or an outbox cannot be read. */
  | "NOT_READ"
  /** A queue is only watched, so that jobs of a key may overlap. */
  | "QUEUE_WATCHED"
  /** An operator has paused a key. */
  | "KEY_PAUSED"
  /** The oldest job of an outbox waits for longer than 1 min. */
  | "OUTBOX_BACKLOG";

export type Severity = "critical" | "warning" | "notice";

/** The part of the page that a problem is about. A link leads there. */
export interface PagePlace {
  readonly section: "workers" | "queues" | "time" | "locks" | "nodes";
  readonly queue?: string | undefined;
  readonly key?: string | undefined;
  /** The name of the election, schedule, lock, node or outbox. */
  readonly name?: string | undefined;
}

/** A problem, as `problemsOf` finds it in one state. */
export interface Problem {
  /** Text that is the same for the same problem in the next state. */
  readonly id: string;
  readonly code: ProblemCode;
  readonly severity: Severity;
  /** One sentence without a full stop and without a time: `exports has no worker, and 29,865 jobs can run`. */
  readonly title: string;
  /** What to do, as one sentence. */
  readonly step: string;
  /** A command that does it or shows more, to be copied. */
  readonly command?: string | undefined;
  /** An action of the page that does it. Offer the action only if `PageState.actions` is true. */
  readonly action?: ActionView | undefined;
  readonly place: PagePlace;
  /** When the problem began, if the data say so. */
  readonly since?: number | undefined;
}

/** An action of the page: `POST act?do=…` with these parameters. */
export interface ActionView {
  readonly do: string;
  readonly label: string;
  /** The effect as a sentence, for the question before the action. */
  readonly effect: string;
  readonly parameters: Readonly<Record<string, string>>;
}

/** A problem on the page. The most severe problems come first, and the solved ones last. */
export interface ProblemView extends Problem {
  /** When the problem began, or when the page first saw it. */
  readonly since: number;
  /** When the page first saw no such problem any more. A solved problem stays for 5 min. */
  readonly solvedAt: number | undefined;
}

export interface NodeView {
  readonly node: string;
  /** Why the node does not answer. */
  readonly error: string | undefined;
  /** Since when the node has not answered, as the page saw it. */
  readonly downSince: number | undefined;
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
  /** The longest `remainingMs` that the page has seen for this holder: the length of the lease, for a bar. */
  readonly leaseMs: number;
  readonly waiters: number;
  /** The time at which the page first saw this holder. */
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

/** A semaphore or a read-write lock of `@x/semaphore`. */
export interface SemaphoreView {
  readonly name: string;
  readonly kind: "semaphore" | "read-write lock";
  /** Permits that are held. A reader holds one permit of a read-write lock, and a writer all of them. */
  readonly used: number;
  /** All permits. Undefined before the first request of a version that stores the number. */
  readonly permits: number | undefined;
  /** Callers that hold permits. */
  readonly leases: number;
  /** The time until the first lease ends unless it is extended, in ms. Undefined without a lease. */
  readonly endsInMs: number | undefined;
  /** Processes with callers that wait. A process that died is counted for up to 10 s. */
  readonly waiters: number;
}

interface SemaphoresView {
  /** At most 25: most waiters first, then the fullest. */
  readonly semaphores: readonly SemaphoreView[];
  readonly total: number;
}

/** One worker of one queue, from its last report. A worker reports every 10 s. */
export interface WorkerView {
  readonly queue: string;
  /** The version of `@x/workers`. Undefined for a version that does not report it. */
  readonly version: string | undefined;
  /** Jobs that the worker runs at the same time. Undefined: not reported. */
  readonly slots: number | undefined;
  /** Jobs that ran when the worker reported. Undefined: not reported. */
  readonly busy: number | undefined;
  /** Counts since the worker started. Undefined: not reported. */
  readonly completed: number | undefined;
  readonly failed: number | undefined;
  readonly stalled: number | undefined;
  readonly locksLost: number | undefined;
  /** When a lock was last lost. Undefined if none was. */
  readonly lockLostAt: number | undefined;
  readonly reportedAt: number;
  /** Whether the worker has not reported for 30 s. A worker that closed is not listed at all. */
  readonly isGone: boolean;
}

/** A process: its workers, and the elections that it leads. */
export interface ProcessView {
  /** Host and process ID, as `host:pid`. */
  readonly at: string;
  /** Sorted by queue. */
  readonly workers: readonly WorkerView[];
  /** Names of the elections whose leader has this process as its ID. */
  readonly leads: readonly string[];
  readonly reportedAt: number;
  /** Whether all workers of the process are gone. A process that is gone is listed for 15 min. */
  readonly isGone: boolean;
}

export interface TermView {
  readonly term: number;
  readonly id: string;
  /** The beginning of the term, by the leader's clock. */
  readonly since: number;
  /** The end of the term. Undefined if the term is current. */
  readonly until: number | undefined;
  /**
   * How `until` is known:
   * - a `TermEndReason`: the leader recorded the end of its term, and why.
   * - `lease-ended`: the leader recorded no end, and its lease ended then.
   * - `unknown`: nobody watched. The term ended between `since` and `until`, which is two leases after the last sign of
   *   life, or the beginning of the next term; draw this part hatched.
   *
   * Undefined if the term is current.
   */
  readonly end: string | undefined;
}

export interface ElectionView {
  readonly name: string;
  /**
   * - `led`: there is a leader.
   * - `gap`: there is no leader, and there has been one in the last hour or a candidate waits.
   * - `ended`: there has been no leader for an hour. Such an election is shown without its actions, and disappears when
   *   the nodes forget it.
   * - `unknown`: the nodes have not answered.
   */
  readonly state: "led" | "gap" | "ended" | "unknown";
  readonly leader:
    | (Pick<LeaderInfo, "id" | "term" | "expiresInMs"> & {
        readonly value: string | undefined;
        readonly since: number;
      })
    | undefined;
  /** Since when there has been no leader. Undefined if there is a leader, or never was one. */
  readonly leaderlessSince: number | undefined;
  /** The length of the lease: the longest that the page has seen. */
  readonly leaseMs: number | undefined;
  readonly error: string | undefined;
  /** The latest 40 terms, the oldest first. Between two terms nobody led. */
  readonly terms: readonly TermView[];
}

/** A tick in the time line. */
export interface TickMark {
  readonly outcome: TickOutcome;
  /** When the tick was due. */
  readonly at: number;
}

export interface ScheduleView {
  /** The scheduler's name, for actions and `history`. */
  readonly scheduler: string;
  /** The name of the election. Undefined for a scheduler that was passed to the page. */
  readonly election: string | undefined;
  readonly name: string;
  /** When the next tick is due. A time in the past means that the tick is due now. */
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
  /** The last ticks, the newest first, `SHOWN_TICKS` at most. The address `history` returns the details. */
  readonly history: readonly TickMark[];
}

/** The details of one tick, as returned by the address `history`. */
export interface TickView {
  readonly outcome: TickOutcome;
  /** When the tick was due. */
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

/** A key that does not go on by itself: a failed job or an operator has stopped it. */
export interface StoppedKey {
  readonly key: string;
  /** The failed job. Undefined if only an operator has paused the key. */
  readonly jobId: string | undefined;
  readonly reason: string;
  readonly since: number;
  readonly until: number | undefined;
  readonly parked: number;
}

/** Points of a chart, one per `STEP_MS`, the newest first, 61 at most. */
export interface SeriesView {
  /** The time of the newest point. */
  readonly at: number;
  /** Jobs that ended in each step, without error and with an error. Undefined: no worker reported. */
  readonly completed: readonly (number | null)[];
  readonly failed: readonly (number | null)[];
  /** Jobs that could run, and jobs that were parked, at each point. */
  readonly runnable: readonly (number | null)[];
  readonly parked: readonly (number | null)[];
}

export interface QueueView {
  readonly name: string;
  /** Whether the whole queue is paused. */
  readonly isPaused: boolean;
  /** Jobs that run: BullMQ's lock of each exists. */
  readonly running: number;
  /** Jobs that have started, and whose workers are gone. */
  readonly stalled: number;
  /** Jobs that a free slot would start now. */
  readonly runnable: number;
  /** Jobs that wait for their key. Limited jobs and jobs of paused keys are included. */
  readonly parked: number;
  /** Parked jobs whose keys are at their rate limit. */
  readonly limited: number;
  /** Parked jobs whose keys are paused or halted. */
  readonly stopped: number;
  readonly busyKeys: number;
  /** Keys that do not go on, because of an operator or a failed job, and the part of them that a failed job stopped. */
  readonly pausedKeys: number;
  readonly haltedKeys: number;
  /** Keys that a failed job has stopped, at most 10, the longest line first. */
  readonly halted: readonly StoppedKey[];
  /** Keys that an operator has paused, at most 10, the longest line first. */
  readonly paused: readonly StoppedKey[];
  /** The key whose first job in line was added first, without keys that are paused, halted or limited. */
  readonly oldest: { readonly key: string; readonly since: number } | undefined;
  readonly longestLine: number;
  /** Workers that report, and workers that have not reported for 30 s. Undefined: not known. */
  readonly workers: number | undefined;
  readonly goneWorkers: number | undefined;
  /** Slots of the workers that report, and how many of them are busy. Undefined: not reported. */
  readonly slots: number | undefined;
  readonly busySlots: number | undefined;
  /** When a worker of this queue last reported, also one that is gone. Undefined: never, or forgotten. */
  readonly reportedAt: number | undefined;
  /** The figures of a watched queue. Undefined: the queue is exclusive. */
  readonly watched: Pick<ExclusionFigures, "ended" | "overlaps" | "outOfOrder" | "watchedSinceMs"> | undefined;
  /** What differs between the options of the workers, as sentences. */
  readonly differences: readonly string[];
  readonly series: SeriesView | undefined;
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

/** A row of the table of keys. */
export interface KeyRow extends BusyKey {
  /** The state in the words of the guide `docs/workers/stuck-key.md`. */
  readonly state: "running" | "stalled" | "waits" | "limited" | "halted" | "paused";
  /** The state with its facts, as a short text: `job 4711 runs`, `halted after job 4711`. */
  readonly why: string;
}

export interface KeysView {
  readonly queue: string;
  readonly keys: readonly KeyRow[];
  readonly total: number;
  /** Number of keys whose names contain the search text, and that are in the chosen group. */
  readonly found: number;
  /** All keys of the queue in groups. Undefined until the queue has been read, or if the query names no queue. */
  readonly groups: KeyGroups | undefined;
}

/** A mark on the time line. */
export interface MarkView {
  readonly at: number;
  /** The source: `note` and `fault` come from `page.note()`, `note` also from an action, and `page` from the page. */
  readonly kind: "note" | "fault" | "page";
  readonly text: string;
}

/** The page of each table that one browser wants. Each field is a parameter of the query. */
export interface BrowserQuery {
  readonly locks: number;
  readonly findLock: string;
  readonly queue: string;
  readonly keys: number;
  readonly findKey: string;
  /** The chosen group of keys, see `filterOf` in `rules/key-groups.ts`. Empty: all. */
  readonly keyGroup: string;
  readonly schedules: number;
  /** The opened key of `queue`. Empty: none. */
  readonly key: string;
}

/** The part of the state that all browsers receive. */
export interface SharedState {
  readonly actions: boolean;
  readonly live: LiveView;
  readonly problems: readonly ProblemView[];
  readonly nodes: PageSection<NodesView>;
  readonly semaphores: SemaphoresView;
  readonly findings: PageSection<readonly Finding[]>;
  /** Undefined: no queue, or not read yet. Processes that are gone come last. */
  readonly processes: readonly ProcessView[] | undefined;
  readonly elections: readonly ElectionView[];
  readonly queues: readonly QueueView[];
  readonly outboxes: readonly OutboxView[];
  /** The latest 50 marks, the latest first. */
  readonly events: readonly MarkView[];
}

/** The part of the state that differs between browsers. */
export interface OwnState {
  /** The time of the server. */
  readonly now: number;
  readonly schedules: PageSection<{ readonly schedules: readonly ScheduleView[]; readonly total: number }>;
  readonly locks: PageSection<LocksView>;
  readonly keys: KeysView | undefined;
  /** The opened key, read as one snapshot. Undefined if none is open. */
  readonly key: PageSection<KeyReading> | undefined;
}

/** The state that a browser receives at each look. */
export type PageState = SharedState & OwnState;

/** Ticks of a schedule that the page shows. */
export const SHOWN_TICKS = 20;

/** Rows of one page of a table. */
export const PAGE_ROWS = 25;

/** The time between two points of a chart, in ms, and the most points. */
export const STEP_MS = 15_000;
export const MOST_POINTS = 61;

/** The most characters of a text that the page sends. The rest of a longer text becomes an ellipsis. */
export const LONGEST_TEXT = 500;

/** Returns JSON in which each long text is cut: names and errors from Redis may have any length. */
export function jsonOf(value: unknown): string {
  return JSON.stringify(value, (_name, each: unknown) =>
    typeof each === "string" && each.length > LONGEST_TEXT ? `${each.slice(0, LONGEST_TEXT)}…` : each,
  );
}
