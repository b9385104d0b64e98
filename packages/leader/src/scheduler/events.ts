/** What becomes of ticks, told to listeners, and on channels of the same names. */
import type { Emitter, Known } from "@x/redlock-core/protocol";
import { type AboutCandidate, type AboutTick, publish } from "../kit/diagnostics.ts";
import { dateOf } from "../rules/values.ts";
import type { NamedTick, Tick } from "./tick.ts";

export type SkipReason = "overlap" | "paused" | "attempts" | "removed" | "expired" | "term-over";

/** Events of a scheduler, in the process whose election leads. */
export interface SchedulerEvents {
  /** A handler is about to be called. It is not (`tickSkipped`) if listeners take longer than the term lasts. */
  tick: Tick;
  /** The handler has ended, after `tookMs`. */
  tickDone: { readonly tick: Tick; readonly tookMs: number };
  /** It rejected; the tick counts as run. */
  tickError: { readonly tick: Tick; readonly tookMs: number; readonly error: unknown };
  /**
   * The tick is claimed or dealt with, and does not run.
   *
   * - `overlap`: an earlier one of its schedule still runs.
   * - `paused`: its schedule is paused, perhaps since the tick began to wait.
   * - `attempts`: `maxAttempts` leaders did not finish it.
   * - `removed`: its schedule was removed before it began.
   * - `expired`: it was triggered more than a day ago.
   * - `term-over`: the term was asked to end, or the scheduler was stopped, before it began. An `at-least-once`
   *   tick, and what was triggered, is left to the next leader instead.
   */
  tickSkipped: {
    readonly schedule: string;
    readonly scheduledAt: Date;
    readonly reason: SkipReason;
  };
  /** Ticks older than the window, or more than are caught up; counted up to 1,000 a gap. */
  missed: { readonly schedule: string; readonly count: number };
  /**
   * Something failed and is tried again, or a listener threw. While nodes are away, each message comes once; it comes
   * again in the next outage.
   */
  error: unknown;
}

export const SCHEDULER_EVENTS: Known<SchedulerEvents> = {
  tick: true,
  tickDone: true,
  tickError: true,
  tickSkipped: true,
  missed: true,
  error: true,
};

export function tellSkipped(events: Emitter<SchedulerEvents>, { name, atMs }: NamedTick, reason: SkipReason): void {
  events.emit("tickSkipped", { schedule: name, scheduledAt: dateOf(atMs), reason });
}

export function aboutTick({ schedule, id, scheduledAt, firedAt, term, attempt }: Tick): AboutTick {
  return {
    election: term.election,
    schedule,
    tickId: id,
    scheduledAtMs: scheduledAt.getTime(),
    lateMs: firedAt.getTime() - scheduledAt.getTime(),
    term: term.term,
    fencingToken: term.fencingToken,
    attempt,
  };
}

export function publishTicks(events: Emitter<SchedulerEvents>, { election, id }: AboutCandidate): void {
  events.on("tick", (tick) => publish("x.leader.tick", () => aboutTick(tick)));
  events.on("tickDone", ({ tick, tookMs }) => publish("x.leader.tickDone", () => ({ ...aboutTick(tick), tookMs })));
  events.on("tickError", ({ tick, ...facts }) =>
    publish("x.leader.tickError", () => ({ ...aboutTick(tick), ...facts })),
  );
  events.on("tickSkipped", ({ scheduledAt, ...facts }) =>
    publish("x.leader.tickSkipped", () => ({ election, scheduledAtMs: scheduledAt.getTime(), ...facts })),
  );
  events.on("missed", (facts) => publish("x.leader.missed", () => ({ election, ...facts })));
  events.on("error", (error) => publish("x.leader.error", () => ({ election, id, error })));
}
