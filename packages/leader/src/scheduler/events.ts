/** Events of ticks, for listeners and for the channels with the same names. */
import { type AllNames, type Emitter, quote } from "@x/redlock-core/kit";
import { Listeners } from "../events/listeners.ts";
import { type AboutCandidate, type AboutTick, channels } from "../kit/diagnostics.ts";
import { dateOf } from "../rules/values.ts";
import type { NamedTick, Tick } from "./tick.ts";

export type SkipReason = "overlap" | "paused" | "attempts" | "removed" | "expired" | "term-over";

/** Events of a scheduler, in the process whose election leads. */
export interface SchedulerEvents {
  /**
   * A handler is about to be called. If listeners run past the end of the term, `tickSkipped` follows instead of the
   * call.
   */
  tickStarted: Tick;
  /** The handler has ended without an error, after `tookMs` ms. */
  tickCompleted: { readonly tick: Tick; readonly tookMs: number };
  /**
   * The handler rejected, after `tookMs` ms. The tick counts as run. Exception: if the term's end has aborted
   * `tick.signal`, an `at-least-once` tick is left to the next leader.
   */
  tickFailed: { readonly tick: Tick; readonly tookMs: number; readonly error: unknown };
  /**
   * The tick was claimed and does not run.
   *
   * - `overlap`: an earlier tick of its schedule still runs.
   * - `paused`: its schedule is paused, perhaps since the tick began to wait.
   * - `attempts`: `maxAttempts` leaders did not finish it.
   * - `removed`: its schedule was removed before it began.
   * - `expired`: the tick was triggered more than a day ago.
   * - `term-over`: the term was asked to end, or the scheduler was stopped, before the tick began. A triggered tick and
   *   an `at-least-once` tick are left to the next leader instead.
   */
  tickSkipped: {
    readonly schedule: string;
    readonly scheduledAt: Date;
    readonly reason: SkipReason;
  };
  /** Ticks were older than the window, or exceeded `maxCatchup`. `count` is at most 1,000 for each gap. */
  ticksMissed: { readonly schedule: string; readonly count: number };
  /**
   * A request failed and is repeated, a listener threw, or the stored state or a clock is wrong. While nodes are down,
   * each message is emitted once in an outage.
   */
  error: unknown;
}

export const SCHEDULER_EVENTS: AllNames<SchedulerEvents> = {
  tickStarted: true,
  tickCompleted: true,
  tickFailed: true,
  tickSkipped: true,
  ticksMissed: true,
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

export function publishTicks(events: Emitter<SchedulerEvents>, { election, candidate }: AboutCandidate): void {
  events.on("tickStarted", (tick) => channels.publish("tickStarted", () => aboutTick(tick)));
  events.on("tickCompleted", ({ tick, tookMs }) =>
    channels.publish("tickCompleted", () => ({ ...aboutTick(tick), tookMs })),
  );
  events.on("tickFailed", ({ tick, ...facts }) =>
    channels.publish("tickFailed", () => ({ ...aboutTick(tick), ...facts })),
  );
  events.on("tickSkipped", ({ scheduledAt, ...facts }) =>
    channels.publish("tickSkipped", () => ({ election, scheduledAtMs: scheduledAt.getTime(), ...facts })),
  );
  events.on("ticksMissed", (facts) => channels.publish("ticksMissed", () => ({ election, ...facts })));
  events.on("error", (error) => channels.publish("error", () => ({ election, candidate, error })));
}

/** Creates the listeners of users. Failures that nobody listens to become warnings. */
export function schedulerListeners(events: Emitter<SchedulerEvents>, election: string): Listeners<SchedulerEvents> {
  return new Listeners({
    events,
    subject: `scheduler of election ${quote(election)}`,
    failures: {
      tickFailed: ({ tick, error }) => ({
        text: `the handler of ${quote(tick.schedule)} failed`,
        error,
        hasStack: true,
      }),
      error: (error) => ({ text: "a request failed, or a listener threw", error }),
    },
  });
}
