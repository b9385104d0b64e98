/**
 * Records the jobs that the lane's scripts hand out, and continues a fetch until there is a job. A script stops looking
 * for a job when it has parked many jobs, or when the keys of jobs have to be computed first.
 */
import type { Clock } from "@x/redlock-core";
import { type Instant, readClock } from "@x/redlock-core/kit";
import { type BullClient, fetchAgainReply, fetchArguments, runScript } from "../bullmq/bullmq.ts";
import type { ComposedScript } from "../bullmq/rules/compose.ts";
import { bringsJob, parseRepeatedFetch, type RepeatedFetch } from "../scripts/command-replies.ts";
import type { KeyComputation } from "./key-computation.ts";
import type { LaneReports } from "./lane-reports.ts";
import { TakenJob } from "./taken-job.ts";
import type { TakenJobs } from "./taken-jobs.ts";

/**
 * Longest time for which one fetch parks batches or computes keys.
 *
 * BullMQ's loop starts its fetched jobs one at a time, each after a further fetch has returned, and does not renew
 * their locks before. With many free slots the fetches add up, so each must be short.
 */
const MAX_FETCH_MS = 10;

interface FetchingParts {
  readonly clock: Clock;
  /** The lane's script for BullMQ's fetch. */
  readonly script: ComposedScript;
  readonly takenJobs: TakenJobs;
  readonly reports: LaneReports;
  readonly keys: KeyComputation;
  /** Returns a token for the lock of the next job. Empty if the script must not acquire a lock. */
  readonly newToken: () => string;
}

/** Arguments shared by the fetches that continue a command. */
interface FetchingCommand {
  readonly client: BullClient;
  readonly prefix: unknown;
  readonly lockOptions: () => unknown;
  /** Whether the command is a plain fetch, which neither ends nor moves a job. */
  readonly isPlainFetch: boolean;
}

export class Fetching {
  readonly #parts: FetchingParts;

  constructor(parts: FetchingParts) {
    this.#parts = parts;
  }

  /** Records the job in a reply, if there is one. Returns how to repeat the fetch, if it has to be repeated. */
  recordReply(reply: unknown, sent: Instant, lockToken: string): RepeatedFetch | undefined {
    const taken = parseTakenJob(reply, sent, lockToken);
    if (taken === undefined) return parseRepeatedFetch(reply);
    this.record(taken);
    return undefined;
  }

  /** Stores the record of a job that a reply brought, and reports the jobs that were parked before it. */
  record(taken: TakenJob): void {
    const { takenJobs, reports, keys } = this.#parts;
    const { fencingToken, parked, unknown } = taken;
    takenJobs.add(taken);
    if (fencingToken === undefined) taken.claimLock();
    reports.reportParked(parked);
    // Not awaited: if the computation fails, the next fetch asks for these keys again.
    if (unknown.length > 0) keys.run(unknown).catch(() => {});
  }

  /** Continues a fetch that has found no job yet. Resolves with BullMQ's reply. */
  async continue(first: RepeatedFetch, command: FetchingCommand): Promise<unknown> {
    try {
      return await this.#fetchUntilJob(first, command);
    } catch (error) {
      // The command itself has succeeded and only the fetch after it failed. BullMQ must not repeat the command.
      if (command.isPlainFetch) throw error;
      return 0;
    }
  }

  async #fetchUntilJob(first: RepeatedFetch, { client, prefix, lockOptions }: FetchingCommand): Promise<unknown> {
    const { clock, script, takenJobs, reports, keys, newToken } = this.#parts;
    let again = first;
    const untilMs = clock.monotonicMs() + (takenJobs.isLooping ? MAX_FETCH_MS : Number.POSITIVE_INFINITY);
    do {
      if (again.kind === "again") reports.reportFetch(again);
      else await keys.run(again.jobs);
      const lockToken = newToken();
      const sent = readClock(clock);
      const args = fetchArguments(prefix, lockOptions(), Math.floor(clock.wallMs()));
      const { reply } = reports.unwrapReply(await runScript(client, script, [...args, lockToken]));
      const next = this.recordReply(reply, sent, lockToken);
      if (next === undefined) return reply;
      again = next;
    } while (clock.monotonicMs() < untilMs);
    if (again.kind === "again") reports.reportFetch(again);
    return fetchAgainReply;
  }
}

/** Returns the record of the job in a reply. Undefined if the reply contains no job. */
export function parseTakenJob(reply: unknown, sent: Instant, lockToken: string): TakenJob | undefined {
  return bringsJob(reply) ? new TakenJob(reply, sent, lockToken) : undefined;
}
