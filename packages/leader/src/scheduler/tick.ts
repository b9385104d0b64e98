import type { LeaderTerm } from "../leader-term.ts";
import { dateOf } from "../rules/values.ts";

/** One firing of a schedule. */
export interface Tick {
  readonly schedule: string;
  /** The time at which the tick was due. */
  readonly scheduledAt: Date;
  /** The time at which the handler was called, by this process's wall clock. */
  readonly firedAt: Date;
  /**
   * The ID of the tick, the same in every process and after every failover. As a BullMQ `jobId`, the ID makes a tick
   * that runs twice add one job.
   */
  readonly id: string;
  /** Whether the tick is more than a second late, because no leader could run it when it was due. */
  readonly catchup: boolean;
  /**
   * 1, or more if an earlier leader started the tick and did not finish, or died while the tick waited
   * (`at-least-once`).
   */
  readonly attempt: number;
  /** The previous tick that ran. Undefined if it is not known. */
  readonly lastRunAt?: Date;
  /** The data of a schedule as data, a new value for each tick. Undefined for a schedule in code, and without data. */
  readonly data: unknown;
  readonly term: LeaderTerm;
  readonly fencingToken: number;
  /** Aborts when the term ends or is asked to end, after `maxRunTime`, or by `overlap: "cancelOther"`. */
  readonly signal: AbortSignal;
}

export interface NamedTick {
  readonly name: string;
  readonly atMs: number;
}

export type TickHandler = (tick: Tick) => unknown;

/** `nightly@20261121T030000.000Z` */
export function tickId(schedule: string, atMs: number, suffix = ""): string {
  return `${schedule}@${dateOf(atMs).toISOString().replaceAll(/[-:]/g, "")}${suffix === "" ? "" : `-${suffix}`}`;
}
