/**
 * This package publishes messages on `node:diagnostics_channel`, and writes lines to a logger if one was given. It
 * emits a process warning when an `error` listener fails, and for failures that have no listener (listeners.ts). It
 * writes nothing else.
 */
import { type Channel, channel } from "node:diagnostics_channel";
import { Traced } from "@x/redlock-core/protocol";

/** The part of a pino logger that is used. */
export interface LeaderLogger {
  info(facts: object, message: string): void;
  warn(facts: object, message: string): void;
  error(facts: object, message: string): void;
}

/** What all messages about a tick have. `lateMs` is by the wall clock, when its handler was called. */
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

/** What all messages about a candidate have. */
export interface AboutCandidate {
  readonly election: string;
  readonly id: string;
}

/** What all messages about a term have. */
interface AboutTerm extends AboutCandidate {
  readonly term: number;
}

/**
 * The messages, by channel. A channel is named as the event of an election or a scheduler that it tells of. Durations
 * are in milliseconds.
 */
export interface LeaderMessages {
  /** A term began. `vacancyMs` counts from the end of the last leader, if this process saw that. */
  "x.leader.elected": AboutTerm & { waitMs: number; vacancyMs: number | undefined };
  /** A term ended. `drainMs` counts from the request to end until the task had ended. */
  "x.leader.ended": AboutTerm & { reason: string; heldMs: number; drainMs: number | undefined };
  /**
   * A renewal succeeded. `remainingMs` is what is left until the deadline, which it has moved. It is a share of
   * `deadlineMs`, the option `renewDeadline`.
   */
  "x.leader.renewed": AboutTerm & { tookMs: number; remainingMs: number; deadlineMs: number };
  "x.leader.renewFailed": AboutTerm & { error: unknown; remainingMs: number; deadlineMs: number };
  /** The task still runs though its term is over, so another process may soon lead beside it. */
  "x.leader.overrun": AboutTerm & { overrunMs: number };
  /** An observer saw the leader change. `vacancyMs` is how long there was none, as seen from here. */
  "x.leader.leaderChange": {
    election: string;
    leader: string | undefined;
    term: number | undefined;
    vacancyMs: number | undefined;
  };
  /** The task did not end in time. */
  "x.leader.drainTimeout": AboutTerm;
  /** A lock node is down. It is told once until the node answers again. */
  "x.leader.nodeDown": AboutCandidate & { node: string; error: Error };
  /** Nobody is elected, since a quorum of nodes casts no vote. */
  "x.leader.quarantined": AboutCandidate & { quarantineLeftMs: number };
  "x.leader.taskError": AboutTerm & { error: unknown };
  /** An election or a scheduler failed and tries again, or one of its listeners threw. */
  "x.leader.error": AboutCandidate & { error: unknown };
  /** A handler is about to be called. */
  "x.leader.tick": AboutTick;
  "x.leader.tickDone": AboutTick & { tookMs: number };
  "x.leader.tickError": AboutTick & { tookMs: number; error: unknown };
  "x.leader.tickSkipped": { election: string; schedule: string; scheduledAtMs: number; reason: string };
  "x.leader.missed": { election: string; schedule: string; count: number };
}

/** What the messages of the tracing channels have, by the call: `x.leader:term` and `x.leader:tick`. */
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

/** Publishes a message, which is only built if somebody listens. */
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
