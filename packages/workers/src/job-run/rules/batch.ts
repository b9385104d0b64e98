/**
 * Pure: the jobs of one call, and what the call makes of each.
 *
 * The others stand in line while the call runs, as they came. What it makes of them is stored with them before the job
 * that runs ends. Each ends so when it is its turn. A call that does not end well has changed nothing.
 */
import { shaped } from "@x/redlock-core/protocol";
import type { Job } from "../../bullmq/public.ts";
import { isMove } from "../../bullmq/rules/move.ts";

/** What a call has made of a job. */
export type Outcome =
  | { readonly value: unknown }
  | { readonly error: { readonly name: string; readonly message: string; readonly stack: string | undefined } };

const ERROR = shaped<Error>(
  "an Error, and none by which BullMQ is told that a job was moved",
  (error) => typeof error["message"] === "string" && !isMove(error),
);

// oxlint-disable typescript/no-explicit-any -- BullMQ's own defaults
export class Batch<Data = any, Result = any, Name extends string = string> {
  // oxlint-enable typescript/no-explicit-any
  /** The jobs in the order in which they came; the first one is the processor's job. */
  readonly jobs: readonly Job<Data, Result, Name>[];
  readonly #ends = new Map<string, Outcome>();

  constructor(jobs: readonly Job<Data, Result, Name>[]) {
    this.jobs = jobs;
  }

  /** Completes a job of the batch with this value. The others complete with what the processor returns. */
  complete(job: Job<Data, Result, Name>, value: Result): void {
    this.#ends.set(this.#idOf(job), { value });
  }

  /**
   * Fails a job of the batch, which is retried as its options say.
   * @throws TypeError for an error by which BullMQ is told that a job was moved.
   */
  fail(job: Job<Data, Result, Name>, error: Error): void {
    const { name, message, stack } = ERROR.of("error", error);
    this.#ends.set(this.#idOf(job), { error: { name, message, stack } });
  }

  /** Returns what becomes of a job, when the processor has returned this. */
  endOf(job: Job<Data, Result, Name>, returned: unknown): Outcome {
    return this.#ends.get(String(job.id)) ?? { value: returned };
  }

  #idOf(job: Job<Data, Result, Name>): string {
    if (!this.jobs.includes(job)) throw new RangeError("job must be one of batch.jobs");
    return String(job.id);
  }
}

/** Returns the text in which an outcome is stored, with the job whose call it was. */
export function formatOutcome(outcome: Outcome, by: string): string {
  return JSON.stringify({ ...outcome, by });
}

export function parseOutcome(text: string): Outcome & { readonly by: string } {
  return JSON.parse(text) as Outcome & { readonly by: string };
}

/** Returns the value of an outcome, or throws its error. */
export function valueOf(outcome: Outcome): unknown {
  if (!("error" in outcome)) return outcome.value;
  const { name, message, stack } = outcome.error;
  throw Object.assign(new Error(message), { name }, stack === undefined ? {} : { stack });
}
