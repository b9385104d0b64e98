/**
 * Ends jobs with the lane's script, in batches. The script that ends a job also releases the job's lock, and may hand
 * out the next job.
 */
import type { Clock } from "@x/redlock-core";
import { type Instant, readClock } from "@x/redlock-core/kit";
import { type BullClient, runScript } from "../bullmq/bullmq.ts";
import { EndBatches, sendRefusedAgain } from "../bullmq/end-batches.ts";
import type { JobEnd } from "../bullmq/job-end.ts";
import type { ComposedScript } from "../bullmq/rules/compose.ts";
import { queueKeys } from "../bullmq/rules/queue-keys.ts";
import { JobCancelledError } from "../errors.ts";
import { parsePin } from "../rules/entity-key.ts";
import { parseEnds, parseRefusedCommand, parseRepeatedFetch } from "../scripts/command-replies.ts";
import { type Fetching, parseTakenJob } from "./fetching.ts";
import type { LaneReports } from "./lane-reports.ts";
import {
  type LaneLocks,
  type LockInstruction,
  settle,
  type TakenJob,
  takenJobOf,
  tokenToRelease,
} from "./taken-job.ts";
import type { TakenJobs } from "./taken-jobs.ts";

interface JobEndsParts {
  readonly clock: Clock;
  /** The lane's script for BullMQ's ends of jobs. */
  readonly script: ComposedScript;
  /** How many ms an end is sent again if a Redis Cluster refuses it. */
  readonly lockDurationMs: number;
  readonly takenJobs: TakenJobs;
  readonly reports: LaneReports;
  readonly fetching: Fetching;
  readonly locks: LaneLocks;
}

/** The end of a job, on its way to Redis. */
interface PendingEnd {
  readonly client: BullClient;
  readonly end: JobEnd;
  readonly instruction: LockInstruction | undefined;
  /** The job's keys as an argument of `moveToFinished`, see `TakenJob.keysArgument`. */
  readonly keys: string;
  /** Token for the lock of the job that the reply may bring. */
  readonly lockToken: string;
  sent: Instant | undefined;
}

export class JobEnds {
  readonly #parts: JobEndsParts;
  readonly #batches: EndBatches<PendingEnd>;

  constructor(parts: JobEndsParts) {
    this.#parts = parts;
    this.#batches = new EndBatches((ends) => this.#sendBatch(ends), {
      onReply: (pending, reply) => this.#onReply(pending, reply),
      onFailure: ({ instruction }) => settle(instruction, false, parts.locks),
    });
  }

  /** Ends a job. Resolves with BullMQ's reply. */
  add(client: BullClient, end: JobEnd): Promise<unknown> {
    const { takenJobs, locks } = this.#parts;
    const { job, jobId, token } = end.facts;
    const taken = takenJobOf(job) ?? takenJobs.findWithToken(jobId, token);
    if (taken !== undefined) takenJobs.forget(taken);
    const instruction = taken?.takeLockInstruction();
    const [keys, lockToken] = [taken?.keysArgument ?? "", locks.newToken()];
    return this.#batches.add({ client, end, instruction, keys, lockToken, sent: undefined });
  }

  /** Settles the lock of an ended job, and records the next job. Returns BullMQ's reply. */
  #onReply(pending: PendingEnd, raw: unknown): unknown {
    const { clock, reports, fetching, locks } = this.#parts;
    const { reply, isLockKept } = reports.unwrapReply(raw);
    const { instruction, lockToken, sent = readClock(clock) } = pending;
    let next: TakenJob | undefined;
    try {
      next = parseTakenJob(reply, sent, lockToken);
    } finally {
      settle(instruction, !isLockKept, locks, next);
    }
    throwIfCancelled(pending.end.facts.jobId, reply);
    if (next !== undefined) fetching.record(next);
    const again = next === undefined ? parseRepeatedFetch(reply) : undefined;
    if (again === undefined) return reply;
    const { client, end } = pending;
    const { prefix } = end.facts;
    return fetching.continue(again, { client, prefix, lockOptions: () => end.lockOptions, isPlainFetch: false });
  }

  /** Sends a batch of ends in one request. Resolves with one reply for each end. */
  async #sendBatch(ends: readonly PendingEnd[]): Promise<readonly unknown[]> {
    const [first] = ends;
    if (first === undefined) return [];
    const { clock, script, lockDurationMs } = this.#parts;
    const { client } = first;
    const { prefix } = first.end.facts;
    const args = [...queueKeys(prefix), prefix, ...ends.flatMap(endArguments)];
    const run = (): Promise<unknown> => {
      const sent = readClock(clock);
      for (const pending of ends) pending.sent = sent;
      return runScript(client, script, args);
    };
    return parseEnds(await sendRefusedAgain(clock, lockDurationMs, run));
  }
}

/** Throws `JobCancelledError` if the command was refused because the job was cancelled. */
export function throwIfCancelled(jobId: string, reply: unknown): void {
  const pin = parsePin(parseRefusedCommand(reply) ?? "");
  if (pin.kind === "cancelled") throw new JobCancelledError(jobId, pin.cancellation);
}

/** Returns the arguments of one end for `eachEnd` in scripts/commands.lua.ts. */
function endArguments({ end, instruction, keys, lockToken }: PendingEnd): (string | number)[] {
  return end.argumentsWith(keys, `${tokenToRelease(instruction)} ${lockToken}`);
}
