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
  Schema,
  type ShapeOf,
  shaped,
} from "@x/redlock-core/kit";
import { redlock } from "@x/redlock-core/protocol";

type SchedulerSettings = Omit<SchedulerOptions, "election" | "drainTimeout">;

/** All durations are integer milliseconds. */
export interface CoordinationOptions {
  /**
   * The `Redlock` whose nodes store locks and leases. The module closes the `Redlock` when the application is closed.
   */
  readonly redlock: Redlock;
  /** Whether `redlock` stays open when the application is closed, because other code also uses it. Default false. */
  readonly keepOpen?: boolean | undefined;
  /**
   * How long the shutdown waits for running work, counted from the start of the shutdown. Afterwards the work's signal
   * aborts, and the shutdown continues without the work. From 0 to a day. Default 30,000.
   */
  readonly drainTimeout?: number | undefined;
  /**
   * The election in which this application takes part. `@LeaderCron`, `@LeaderInterval` and `@OnElected` need an
   * election. Default: none.
   */
  readonly election?: LeaderElectionOptions | undefined;
  /** Settings of the scheduler that runs `@LeaderCron` and `@LeaderInterval` methods. */
  readonly scheduler?: SchedulerSettings | undefined;
}

/** Accepts any object. The class that receives the options checks their values. */
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
