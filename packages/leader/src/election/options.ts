/** Pure: the options of `run()` and `stop()`. */
import { abortSignal, type Complete, choice, type Option, Schema, type ShapeOf } from "@x/redlock-core/kit";
import { durationOrNoneMs } from "../rules/values.ts";

export interface TaskOptions {
  /** Aborting this signal ends the campaign, or drains the task and resigns. `run()` then resolves. */
  readonly signal?: AbortSignal | undefined;
  /**
   * The action when the task rejects.
   *
   * - `resign` (default): the term is handed over. This candidate pauses for a cooldown that doubles with each failure
   *   in a row. A task that always fails then does not move quickly through all replicas.
   * - `restart`: the task runs again in the same term, after the same cooldown.
   * - `hold`: the leadership is kept without a task, until the term ends.
   */
  readonly onTaskError?: "resign" | "restart" | "hold" | undefined;
  /**
   * The action when the task returns.
   *
   * - `resign` (default): the term is handed over, and the candidate campaigns again after the cooldown.
   * - `hold`: the leadership is kept without a task, until the term ends.
   * - `stop`: the term is handed over, and `run()` resolves.
   */
  readonly onTaskEnd?: "resign" | "hold" | "stop" | undefined;
  /**
   * The time that a task may take to end after its signal aborted, in ms. The lease is renewed for this time, and then
   * expires. Default 30,000.
   */
  readonly drainTimeout?: number | undefined;
}

export type ResolvedTaskOptions = Complete<TaskOptions, "signal">;

export const DEFAULT_DRAIN_TIMEOUT_MS = 30_000;

const OPTIONS = new Schema({
  signal: abortSignal.optional(),
  onTaskError: choice(["resign", "restart", "hold"]).default("resign"),
  onTaskEnd: choice(["resign", "hold", "stop"]).default("resign"),
  drainTimeout: durationOrNoneMs.default(DEFAULT_DRAIN_TIMEOUT_MS),
} satisfies ShapeOf<TaskOptions>);

export function resolveTaskOptions(given: TaskOptions = {}): ResolvedTaskOptions {
  return Object.freeze(OPTIONS.resolve(given));
}

/** The options of `stop()`, of an election and of a scheduler. */
export interface StopOptions {
  /**
   * The time in ms, counted from the call, that work may take to end. A second call may shorten the time. Default: the
   * `drainTimeout` of `run()` or of the scheduler, otherwise 30,000.
   */
  readonly drainTimeout?: number | undefined;
}

export const STOP: Schema<{ readonly drainTimeout: Option<number | undefined> }> = new Schema({
  drainTimeout: durationOrNoneMs.optional(),
} satisfies ShapeOf<StopOptions>);
