/**
 * What the package reports: messages on `node:diagnostics_channel`, and lines to a logger if one was given. Nothing else
 * is written anywhere, but a warning of the process when an `error` listener fails.
 */
import { type Channel, channel } from "node:diagnostics_channel";

/** The part of a pino logger that is used. */
export interface LeaderLogger {
  debug(facts: object, message: string): void;
  info(facts: object, message: string): void;
  warn(facts: object, message: string): void;
  error(facts: object, message: string): void;
}

/** Messages by channel. Durations in milliseconds. */
export interface LeaderMessages {
  /** A term began. `vacancy`: since the last leader was seen to end, if this process saw that. */
  "x.leader.elected": { election: string; id: string; term: number; waited: number; vacancy: number | undefined };
  /** A term ended. `drained`: from the request to end until the task had ended. */
  "x.leader.lost": {
    election: string;
    id: string;
    term: number;
    reason: string;
    heldFor: number;
    drained: number | undefined;
  };
  /** A renewal succeeded. `remaining`: what was left of the deadline when the answer came: the early warning. */
  "x.leader.renewed": { election: string; id: string; term: number; took: number; remaining: number };
  "x.leader.renew-failed": { election: string; id: string; term: number; error: unknown; remaining: number };
  /** The task still ran when the lease had ended: another may lead beside it. */
  "x.leader.overrun": { election: string; id: string; term: number; by: number };
  /** An observer saw the leader change. `vacancy`: how long there was none, as seen from here. */
  "x.leader.change": {
    election: string;
    leader: string | undefined;
    term: number | undefined;
    vacancy: number | undefined;
  };
  /** The scheduler ran, skipped or missed a tick. */
  "x.leader.tick": {
    election: string;
    schedule: string;
    scheduledAt: number;
    term: number;
    outcome: "run" | "failed" | "skipped" | "missed";
    took: number | undefined;
    late: number | undefined;
    count: number;
  };
}

const channels = new Map<string, Channel>();

/** Builds the message only if somebody listens. */
export function publish<Name extends keyof LeaderMessages>(name: Name, message: () => LeaderMessages[Name]): void {
  const target = channels.get(name) ?? channel(name);
  channels.set(name, target);
  if (target.hasSubscribers) target.publish(message());
}
