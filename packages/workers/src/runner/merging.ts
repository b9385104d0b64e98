/**
 * Implements `whenBusy: "merge"`: one processor call also handles the jobs that wait for its key (see batch.ts). These
 * jobs stay in line during the call. Their outcomes are stored before the call's own job ends.
 */
import type { Clock } from "@x/redlock-core";
import { linkSignals, sleep } from "@x/redlock-core/kit";
import { DelayedError, type Job } from "../bullmq/public.ts";
import { formatOutcome, valueOf } from "../job-run/rules/batch.ts";
import type { Run } from "../job-run/run.ts";
import type { Lane } from "../lane/lane.ts";
import { type InLine, parseGather } from "../scripts/operator-replies.ts";

interface MergingParts {
  readonly lane: Pick<Lane, "operate">;
  readonly clock: Clock;
  /** `size` is the maximum number of jobs in one call. `wait` is how many milliseconds the call waits for more jobs. */
  readonly size: number;
  readonly wait: number;
  /** Creates a job from its fields, as BullMQ does. */
  readonly makeJob: (fields: object, jobId: string) => Job;
  /** The worker's close, which ends the wait for more jobs. */
  readonly closing: { readonly signal: AbortSignal; readonly isForced: boolean };
  readonly onError: (error: Error) => void;
}

export class Merging {
  readonly #parts: MergingParts;
  /** Places of the jobs in the batch of each run, by job ID. */
  readonly #places = new WeakMap<Run, ReadonlyMap<string, string>>();

  constructor(parts: MergingParts) {
    this.#parts = parts;
  }

  /**
   * Adds the jobs in line for the same key to this run's batch, so that one processor call handles all of them. If they
   * cannot be fetched, the call handles only its own job.
   *
   * Rejects if the worker is closed with force in the meantime. The job is then left to the next worker.
   */
  async gather(run: Run, signal: AbortSignal | undefined): Promise<void> {
    const { size, wait, clock, closing, makeJob, onError } = this.#parts;
    if (run.lost !== undefined) return;
    try {
      let others = await this.#fetchJobsInLine(run, size - 1);
      if (wait > 0 && others.length < size - 1) {
        // Without the run's own signal, because a noticed loss of the job may still be revoked.
        const ends = linkSignals(closing.signal, signal);
        await sleep(clock, wait, ends.signal).catch(() => {});
        ends.unlink();
        if (!closing.isForced) others = await this.#fetchJobsInLine(run, size - 1);
      }
      this.#places.set(run, new Map(others.map(({ id, place }) => [id, place])));
      run.addToBatch(others.map(({ id, fields }) => makeJob(fields, id)));
    } catch (error) {
      onError(error as Error);
    }
    if (closing.isForced)
      throw new DelayedError(`job ${run.jobId} was not started, because its worker was closed with force`);
  }

  /** Stores the outcomes of the other jobs. Returns the outcome of the run's own job, or throws its error. */
  async storeOutcomes(run: Run, returned: unknown): Promise<unknown> {
    const { jobId, token, batch } = run;
    const [own, ...others] = batch.jobs;
    const places = this.#places.get(run);
    const stored = others.flatMap((job) => [
      String(job.id),
      places?.get(String(job.id)) ?? "",
      formatOutcome(batch.outcomeOf(job, returned), jobId),
    ]);
    if (stored.length > 0 && (await this.#parts.lane.operate("settle", jobId, token, ...stored)) === null) {
      run.markJobLockLost();
      throw run.lost ?? new DelayedError(`job ${jobId} no longer belongs to this worker`);
    }
    return own === undefined ? returned : valueOf(batch.outcomeOf(own, returned));
  }

  async #fetchJobsInLine({ jobId, token }: Run, most: number): Promise<readonly InLine[]> {
    return parseGather(await this.#parts.lane.operate("gather", jobId, token, most));
  }
}
