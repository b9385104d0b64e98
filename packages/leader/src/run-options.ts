/** Pure: how `run()` treats the task. */
import { abortSignal, integer, oneOf, optionalBoolean, optionalFunction, show } from "./checks.ts";
import { checkKnown, type Known } from "./known.ts";

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

const KNOWN: Known<RunOptions> = {
  signal: true,
  onTaskError: true,
  onTaskEnd: true,
  drainTimeout: true,
  releaseOnDrainTimeout: true,
  onOverrun: true,
  prepare: true,
  stopOn: true,
};

export function resolveRunOptions(given: RunOptions = {}): ResolvedRunOptions {
  checkKnown(given, KNOWN);
  return Object.freeze({
    signal: abortSignal(given.signal),
    onTaskError: oneOf("onTaskError", given.onTaskError, ["resign", "restart", "hold"], "resign"),
    onTaskEnd: oneOf("onTaskEnd", given.onTaskEnd, ["resign", "hold", "stop"], "resign"),
    drainTimeout: integer("drainTimeout", given.drainTimeout ?? DEFAULT_DRAIN_TIMEOUT_MS, 0),
    releaseOnDrainTimeout: optionalBoolean("releaseOnDrainTimeout", given.releaseOnDrainTimeout) ?? false,
    onOverrun: oneOf("onOverrun", given.onOverrun, ["event", "exit"], "event"),
    prepare: optionalFunction("prepare", given.prepare),
    stopOn: signalNames(given.stopOn ?? []),
  });
}

function signalNames(given: unknown): readonly NodeJS.Signals[] {
  const isList = Array.isArray(given) && given.every((name) => typeof name === "string");
  if (!isList) throw new TypeError(`stopOn must be an array of signal names, got ${show(given)}`);
  return [...(given as readonly NodeJS.Signals[])];
}

export function callerSignal(options: { readonly signal?: AbortSignal | undefined }): AbortSignal | undefined {
  checkKnown(options, { signal: true });
  return abortSignal(options.signal);
}
