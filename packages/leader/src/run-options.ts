/** Pure: how `run()` treats the task. */
import {
  abortSignal,
  boolean,
  type Check,
  callback,
  choice,
  listOf,
  Schema,
  type ShapeOf,
  text,
} from "@x/redlock-core/protocol";
import { durationOrNoneMs } from "./checks.ts";

export interface RunOptions {
  /** Ends the campaign, or drains and resigns; `run()` then resolves. */
  readonly signal?: AbortSignal | undefined;
  /**
   * The task rejected. `resign` (default): hand over, and stay out for a cooldown that doubles with each failure in a row, so that
   * a poison task does not walk the fleet at full speed. `restart`: run it again in the same term after that cooldown. `hold`:
   * keep the leadership without a task until the term ends.
   */
  readonly onTaskError?: "resign" | "restart" | "hold" | undefined;
  /** The task returned. `resign` (default): hand over, campaign again after the cooldown. `hold`: as above. `stop`: hand over; `run()` resolves. */
  readonly onTaskEnd?: "resign" | "hold" | "stop" | undefined;
  /** How long a task may take to end after its signal aborted, in ms; the lease is renewed meanwhile. Default 30,000. */
  readonly drainTimeout?: number | undefined;
  /** The task still runs then. `false` (default): the lease is left to run out. `true`: it is released under the running task. */
  readonly releaseOnDrainTimeout?: boolean | undefined;
  /** The task still runs when the lease has ended. `event` (default): `overrun` is emitted. `exit`: and the process exits with code 1. */
  readonly onOverrun?: "event" | "exit" | undefined;
  /** Awaited once before the first campaign, for instance to warm caches. If it rejects, `run()` rejects with the same. */
  readonly prepare?: ((signal: AbortSignal) => Promise<void>) | undefined;
  /** Process signals on which to call `stop()`, for instance `["SIGTERM"]`. Default: none. */
  readonly stopOn?: readonly NodeJS.Signals[] | undefined;
}

export interface ResolvedRunOptions {
  readonly signal: AbortSignal | undefined;
  readonly onTaskError: "resign" | "restart" | "hold";
  readonly onTaskEnd: "resign" | "hold" | "stop";
  readonly drainTimeout: number;
  readonly releaseOnDrainTimeout: boolean;
  readonly onOverrun: "event" | "exit";
  readonly prepare: ((signal: AbortSignal) => Promise<void>) | undefined;
  readonly stopOn: readonly NodeJS.Signals[];
}

export const DEFAULT_DRAIN_TIMEOUT_MS = 30_000;

const OPTIONS = new Schema({
  signal: abortSignal.optional(),
  onTaskError: choice(["resign", "restart", "hold"]).default("resign"),
  onTaskEnd: choice(["resign", "hold", "stop"]).default("resign"),
  drainTimeout: durationOrNoneMs.default(DEFAULT_DRAIN_TIMEOUT_MS),
  releaseOnDrainTimeout: boolean.default(false),
  onOverrun: choice(["event", "exit"]).default("event"),
  prepare: callback<(signal: AbortSignal) => Promise<void>>().optional(),
  // Which signals there are, and can be caught, the system says: see process-signals.ts.
  stopOn: listOf<NodeJS.Signals>("an array of signal names", text() as Check<NodeJS.Signals>).default([]),
} satisfies ShapeOf<RunOptions>);

export function resolveRunOptions(given: RunOptions = {}): ResolvedRunOptions {
  const { stopOn, ...options } = OPTIONS.resolve(given);
  return Object.freeze({ ...options, stopOn: [...stopOn] });
}
