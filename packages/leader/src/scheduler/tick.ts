import type { LeaderTerm } from "../leader-term.ts";
import { dateOf } from "../rules/values.ts";

/** One firing of a schedule. */
export interface Tick {
  readonly schedule: string;
  /** The time at which it was due. */
  readonly scheduledAt: Date;
  /** The time at which its handler was called, by this process's wall clock. */
  readonly firedAt: Date;
  /**
   * It is the same for this tick in every process and after every failover. It is fit to be a BullMQ `jobId`, with
   * which a tick that runs twice adds one job.
   */
  readonly id: string;
  /** More than a second late: nobody could run it when it was due. */
  readonly catchup: boolean;
  /** 1, or more if an earlier leader started it and did not finish, or died while it waited (`at-least-once`). */
  readonly attempt: number;
  /** The tick before this one that ran, if that is known. */
  readonly lastRunAt?: Date;
  readonly term: LeaderTerm;
  readonly fencingToken: number;
  /** Aborts when the term ends or is asked to, after `maxRunTime`, or by `overlap: "cancelOther"`. */
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
