/**
 * This package publishes messages on `node:diagnostics_channel`. A process warning is emitted when an `error` listener
 * fails, and for failures without a listener (listeners.ts). The package writes nothing else.
 */
import { Channels, type LogLines, Traced } from "@x/redlock-core/kit";
import { type TermEndReason, wasAskedFor } from "../errors.ts";

/** Fields of each message about a tick. `lateMs` is the delay of the handler's call, by the wall clock. */
export interface AboutTick {
  readonly election: string;
  readonly schedule: string;
  readonly tickId: string;
  readonly scheduledAtMs: number;
  readonly lateMs: number;
  readonly term: number;
  readonly fencingToken: number;
  readonly attempt: number;
}

/** Fields of each message about a candidate. */
export interface AboutCandidate {
  readonly election: string;
  /** The `id` of the election object. */
  readonly candidate: string;
}

/** Fields of each message about a term. */
interface AboutTerm extends AboutCandidate {
  readonly term: number;
}

/**
 * The messages on the channels `x.leader.elected` and so on, by the name of the event. Durations are in milliseconds.
 */
export interface LeaderMessages {
  /**
   * A term began. `vacancyMs` counts from the end of the previous term. Undefined if this process did not see the end.
   */
  elected: AboutTerm & { waitMs: number; vacancyMs: number | undefined };
  /** A term ended. `drainMs` counts from the request to end until the task had ended. */
  ended: AboutTerm & { reason: TermEndReason; heldMs: number; drainMs: number | undefined };
  /**
   * A renewal succeeded. `remainingMs` is the time until the new deadline. `deadlineMs` is the option `renewDeadline`,
   * the greatest possible `remainingMs`.
   */
  renewed: AboutTerm & { tookMs: number; remainingMs: number; deadlineMs: number };
  renewFailed: AboutTerm & { error: unknown; remainingMs: number; deadlineMs: number };
  /** The task still runs although its term is over, so another process may lead while the task runs. */
  overrun: AboutTerm & { overrunMs: number };
  /** An observer saw a new leader. `vacancyMs` is the time without a leader, as this observer saw it. */
  leaderChanged: {
    election: string;
    leader: string | undefined;
    term: number | undefined;
    vacancyMs: number | undefined;
  };
  /** The task did not end in time. */
  drainTimedOut: AboutTerm;
  /** A lock node is down. Published once until the node answers again. */
  nodeFailed: AboutCandidate & { node: string; error: Error };
  /** A quorum of nodes casts no vote, so no candidate is elected. */
  quarantined: AboutCandidate & { quarantineLeftMs: number };
  taskFailed: AboutTerm & { error: unknown };
  /** An election or a scheduler failed and tries again, or one of its listeners threw. */
  error: AboutCandidate & { error: unknown };
  /** A handler is about to be called. */
  tickStarted: AboutTick;
  tickCompleted: AboutTick & { tookMs: number };
  tickFailed: AboutTick & { tookMs: number; error: unknown };
  tickSkipped: { election: string; schedule: string; scheduledAtMs: number; reason: string };
  ticksMissed: { election: string; schedule: string; count: number };
}

/** Fields of the messages of the tracing channels, by call: `x.leader:term` and `x.leader:tick`. */
export interface LeaderTraces {
  /** The task of a term, from its call to its end. */
  term: AboutTerm & { readonly fencingToken: number };
  /** The handler of a tick, from its call to its end. */
  tick: AboutTick;
}

export const traces: { readonly [Call in keyof LeaderTraces]: Traced<LeaderTraces[Call]> } = {
  term: new Traced("x.leader:term"),
  tick: new Traced("x.leader:tick"),
};

/** Reasons for which a tick that was claimed is lost. */
const LOST_TICKS: ReadonlySet<string> = new Set(["attempts", "expired", "term-over"]);

const LINES: LogLines<LeaderMessages> = {
  elected: ["info", "elected leader"],
  ended: [({ reason }) => (wasAskedFor(reason) ? "info" : "warn"), "leadership ended"],
  leaderChanged: ["info", "leader changed"],
  renewed: ["debug", "term renewed"],
  renewFailed: ["warn", "renewal failed"],
  overrun: [({ overrunMs }) => (overrunMs >= 1 ? "error" : "warn"), "task runs on without its lease"],
  drainTimedOut: ["warn", "task did not end in time"],
  nodeFailed: ["warn", "lock node is down"],
  quarantined: ["warn", "no leader is possible until the nodes vote again"],
  taskFailed: ["error", "task failed"],
  error: ["warn", "failed and is tried again, or a listener threw"],
  tickStarted: ["debug", "tick started"],
  tickCompleted: ["debug", "tick completed"],
  tickFailed: ["error", "tick failed"],
  tickSkipped: [({ reason }) => (LOST_TICKS.has(reason) ? "warn" : "debug"), "tick skipped"],
  ticksMissed: ["warn", "ticks missed"],
};

export const channels: Channels<LeaderMessages> = new Channels("x.leader", LINES);
