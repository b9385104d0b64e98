/**
 * Pure: the jobs that one processor call handles, and the outcome of each.
 *
 * The other jobs of the batch stay in line during the call. The call's outcome for each of them is stored with the job
 * before the processor's own job ends. At its turn each job ends with the stored outcome. A call that fails changes
 * nothing for the other jobs.
 */
import { shaped } from "@x/redlock-core/kit";
import type { Job } from "../../bullmq/public.ts";
import { isMove } from "../../bullmq/rules/move.ts";

export type JobOutcome =
  | { readonly value: unknown }
  | { readonly error: { readonly name: string; readonly message: string; readonly stack: string | undefined } };

const ERROR = shaped<Error>(
  "an Error that does not report to BullMQ that a job was moved",
  (error) => typeof error["message"] === "string" && !isMove(error),
);

// oxlint-disable typescript/no-explicit-any -- BullMQ's own defaults
export class Batch<Data = any, Result = any, Name extends string = string> {
  // oxlint-enable typescript/no-explicit-any
  /** The jobs in order of arrival. The first one is the processor's own job. */
  readonly jobs: readonly Job<Data, Result, Name>[];
  readonly #ends = new Map<string, JobOutcome>();

  constructor(jobs: readonly Job<Data, Result, Name>[]) {
    this.jobs = jobs;
  }

  /**
   * Completes a job of the batch with this value. Jobs without a value of their own complete with the processor's
   * return value.
   */
  complete(job: Job<Data, Result, Name>, value: Result): void {
    this.#ends.set(this.#idOf(job), { value });
  }

  /**
   * Fails a job of the batch. The job is retried according to its options.
   * @throws TypeError for an error that reports to BullMQ that a job was moved.
   */
  fail(job: Job<Data, Result, Name>, error: Error): void {
    const { name, message, stack } = ERROR.of("error", error);
    this.#ends.set(this.#idOf(job), { error: { name, message, stack } });
  }

  /** Returns the outcome of a job, given the value that the processor has returned. */
  outcomeOf(job: Job<Data, Result, Name>, returned: unknown): JobOutcome {
    return this.#ends.get(String(job.id)) ?? { value: returned };
  }

  #idOf(job: Job<Data, Result, Name>): string {
    if (!this.jobs.includes(job)) throw new RangeError("job must be one of batch.jobs");
    return String(job.id);
  }
}

/** Formats an outcome for storage, together with the ID of the job whose call set it. */
export function formatOutcome(outcome: JobOutcome, by: string): string {
  return JSON.stringify({ ...outcome, by });
}

export function parseOutcome(text: string): JobOutcome & { readonly by: string } {
  return JSON.parse(text) as JobOutcome & { readonly by: string };
}

/** Returns the value of an outcome, or throws its error. */
export function valueOf(outcome: JobOutcome): unknown {
  if (!("error" in outcome)) return outcome.value;
  const { name, message, stack } = outcome.error;
  throw Object.assign(new Error(message), { name }, stack === undefined ? {} : { stack });
}
