/** Pure: the options of the module. */
import type { LeaderElectionOptions } from "@x/leader";
import type { SchedulerOptions } from "@x/leader/scheduler";
import type { Redlock } from "@x/redlock-core";
import {
  boolean,
  type Complete,
  DAY_MS,
  integer,
  type Option,
  redlock,
  Schema,
  type ShapeOf,
  shaped,
} from "@x/redlock-core/protocol";

type SchedulerSettings = Omit<SchedulerOptions, "election" | "drainTimeout">;

/** All durations are integer milliseconds. */
export interface CoordinationOptions {
  /** The `Redlock` on whose nodes locks and leases live. The module closes it when the application is closed. */
  readonly redlock: Redlock;
  /**
   * Whether `redlock` stays open when the application is closed, because it is not this application's alone. Default
   * false.
   */
  readonly keepOpen?: boolean | undefined;
  /**
   * How long the shutdown waits for work to end, counted from its start. Then the work's signal aborts, and the
   * shutdown goes on without it. Default 30,000.
   */
  readonly drainTimeout?: number | undefined;
  /** The election in which this application takes part: what `@LeaderCron` and `@OnElected` need. Default: none. */
  readonly election?: LeaderElectionOptions | undefined;
  /** The settings of the scheduler that runs `@LeaderCron`. */
  readonly scheduler?: SchedulerSettings | undefined;
}

/** These options are checked more closely by what they are handed to. */
const plain = <Value extends object>(): Option<Value | undefined> =>
  shaped<Value>("an object", (given) => Object.prototype.toString.call(given) === "[object Object]").optional();

const SHAPE = {
  redlock,
  keepOpen: boolean.default(false),
  drainTimeout: integer({ min: 0, max: DAY_MS }).default(30_000),
  election: plain<LeaderElectionOptions>(),
  scheduler: plain<SchedulerSettings>(),
} satisfies ShapeOf<CoordinationOptions>;

const OPTIONS = new Schema(SHAPE);

export type ResolvedCoordinationOptions = Complete<CoordinationOptions, "election" | "scheduler">;

export function resolveOptions(given: CoordinationOptions): ResolvedCoordinationOptions {
  return OPTIONS.resolve(given);
}
