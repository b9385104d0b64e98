/** Pure: how `run()` treats the task. */
import { abortSignal, type Complete, choice, type Option, Schema, type ShapeOf } from "@x/redlock-core/protocol";
import { durationOrNoneMs } from "../rules/values.ts";

export interface TaskOptions {
  /** This signal ends the campaign, or drains and resigns; `run()` then resolves. */
  readonly signal?: AbortSignal | undefined;
  /**
   * What follows when the task rejects.
   *
   * - `resign` (default): the term is handed over. This candidate stays out for a cooldown that doubles with each
   *   failure in a row. So a poison task does not walk the fleet at full speed.
   * - `restart`: the task is run again in the same term, after that cooldown.
   * - `hold`: the leadership is kept without a task, until the term ends.
   */
  readonly onTaskError?: "resign" | "restart" | "hold" | undefined;
  /**
   * What follows when the task returns.
   *
   * - `resign` (default): the term is handed over, and the candidate campaigns again after the cooldown.
   * - `hold`: the leadership is kept without a task, until the term ends.
   * - `stop`: the term is handed over, and `run()` resolves.
   */
  readonly onTaskEnd?: "resign" | "hold" | "stop" | undefined;
  /**
   * How long a task may take to end after its signal aborted, in ms. The lease is renewed meanwhile, and then left to
   * run out. Default 30,000.
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
  /** How long work may take to end from now on, in ms. Default: what was given before, else 30,000. */
  readonly drainTimeout?: number | undefined;
}

export const STOP: Schema<{ readonly drainTimeout: Option<number | undefined> }> = new Schema({
  drainTimeout: durationOrNoneMs.optional(),
} satisfies ShapeOf<StopOptions>);
