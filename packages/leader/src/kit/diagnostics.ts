/**
 * This package publishes messages on `node:diagnostics_channel`, and writes lines to the `logger` option. A process
 * warning is emitted when an `error` listener fails, and for failures without a listener (listeners.ts). The package
 * writes nothing else.
 */
import { type Channel, channel } from "node:diagnostics_channel";
import { Traced } from "@x/redlock-core/kit";

/** The methods of a pino logger that this package calls. */
export interface LeaderLogger {
  info(facts: object, message: string): void;
  warn(facts: object, message: string): void;
  error(facts: object, message: string): void;
}

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
 * The messages, by channel. The name of a channel ends with the name of the event that it publishes. Durations are in
 * milliseconds.
 */
export interface LeaderMessages {
  /**
   * A term began. `vacancyMs` counts from the end of the previous term. Undefined if this process did not see the end.
   */
  "x.leader.elected": AboutTerm & { waitMs: number; vacancyMs: number | undefined };
  /** A term ended. `drainMs` counts from the request to end until the task had ended. */
  "x.leader.ended": AboutTerm & { reason: string; heldMs: number; drainMs: number | undefined };
  /**
   * A renewal succeeded. `remainingMs` is the time until the new deadline. `deadlineMs` is the option `renewDeadline`,
   * the greatest possible `remainingMs`.
   */
  "x.leader.renewed": AboutTerm & { tookMs: number; remainingMs: number; deadlineMs: number };
  "x.leader.renewFailed": AboutTerm & { error: unknown; remainingMs: number; deadlineMs: number };
  /** The task still runs although its term is over, so another process may lead while the task runs. */
  "x.leader.overrun": AboutTerm & { overrunMs: number };
  /** An observer saw a new leader. `vacancyMs` is the time without a leader, as this observer saw it. */
  "x.leader.leaderChanged": {
    election: string;
    leader: string | undefined;
    term: number | undefined;
    vacancyMs: number | undefined;
  };
  /** The task did not end in time. */
  "x.leader.drainTimedOut": AboutTerm;
  /** A lock node is down. Published once until the node answers again. */
  "x.leader.nodeFailed": AboutCandidate & { node: string; error: Error };
  /** A quorum of nodes casts no vote, so no candidate is elected. */
  "x.leader.quarantined": AboutCandidate & { quarantineLeftMs: number };
  "x.leader.taskFailed": AboutTerm & { error: unknown };
  /** An election or a scheduler failed and tries again, or one of its listeners threw. */
  "x.leader.error": AboutCandidate & { error: unknown };
  /** A handler is about to be called. */
  "x.leader.tickStarted": AboutTick;
  "x.leader.tickCompleted": AboutTick & { tookMs: number };
  "x.leader.tickFailed": AboutTick & { tookMs: number; error: unknown };
  "x.leader.tickSkipped": { election: string; schedule: string; scheduledAtMs: number; reason: string };
  "x.leader.ticksMissed": { election: string; schedule: string; count: number };
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

const channels = new Map<string, Channel>();

/** Publishes a message. Builds the message only if the channel has subscribers. */
export function publish<Name extends keyof LeaderMessages>(name: Name, message: () => LeaderMessages[Name]): void {
  const target = channelOf(name);
  if (target.hasSubscribers) target.publish(message());
}

/** Reports whether a channel has subscribers. */
export function isPublished(name: keyof LeaderMessages): boolean {
  return channelOf(name).hasSubscribers;
}

function channelOf(name: keyof LeaderMessages): Channel {
  const target = channels.get(name) ?? channel(name);
  channels.set(name, target);
  return target;
}
