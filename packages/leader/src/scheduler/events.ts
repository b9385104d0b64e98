import type { Known } from "@x/redlock-core/protocol";
import type { Tick } from "./tick.ts";

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
   * - `removed`: its schedule was removed before its turn came.
   * - `expired`: it was triggered more than a day ago.
   * - `term-over`: the term was asked to end, or the scheduler was stopped, before its turn came. An `at-least-once`
   *   tick, and what was triggered, is left to the next leader instead.
   */
  tickSkipped: {
    readonly schedule: string;
    readonly scheduledAt: Date;
    readonly reason: SkipReason;
  };
  /** Ticks older than the window, or more than are caught up; counted up to 1,000 a gap. */
  missed: { readonly schedule: string; readonly count: number };
  /** Something failed and is tried again, or a listener threw. */
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
