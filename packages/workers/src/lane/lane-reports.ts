/** Passes the reports in the replies of the lane's scripts to the worker: parked jobs, faults, and limited keys. */
import { type CommandReply, type RepeatedFetch, unwrapReply } from "../scripts/command-replies.ts";

export interface LaneEvents {
  /** Reports the number of jobs that a script has parked. */
  onParked(parked: number): void;
  /** Reports that a script could not judge a job or could not pass a key on. */
  onFault(fault: string): void;
  /**
   * Reports that the rate of a key makes its jobs wait until `untilMs` (ms since the epoch). Called once per `untilMs`.
   */
  onLimited(key: string, untilMs: number): void;
}

/** Largest number of limited keys that are remembered, so that each limit is reported once. */
const MAX_REPORTED_LIMITS = 10_000;

export class LaneReports {
  readonly #events: LaneEvents;
  /** End of the limit that was last reported for each key, in ms since the epoch. */
  readonly #limits = new Map<string, number>();

  constructor(events: LaneEvents) {
    this.#events = events;
  }

  /** Separates BullMQ's reply from the reports around it, and passes the reports on. */
  unwrapReply(raw: unknown): CommandReply {
    const unwrapped = unwrapReply(raw);
    if (unwrapped.fault !== undefined) this.#events.onFault(unwrapped.fault);
    for (const [key, untilMs] of unwrapped.limited) this.#reportLimit(key, untilMs);
    return unwrapped;
  }

  /** Passes on the reports of a fetch that found no job yet. */
  reportFetch({ parked, fault }: RepeatedFetch & { readonly kind: "again" }): void {
    this.reportParked(parked);
    if (fault !== undefined) this.#events.onFault(fault);
  }

  reportParked(parked: number): void {
    if (parked > 0) this.#events.onParked(parked);
  }

  #reportLimit(key: string, untilMs: number): void {
    if (this.#limits.get(key) === untilMs) return;
    // Reinserted at the end, so that the first entry is the oldest.
    this.#limits.delete(key);
    this.#limits.set(key, untilMs);
    const [oldest] = this.#limits.keys();
    if (this.#limits.size > MAX_REPORTED_LIMITS && oldest !== undefined) this.#limits.delete(oldest);
    this.#events.onLimited(key, untilMs);
  }
}
