/**
 * With `whenBusy: "merge"`, one call of the processor is for the jobs that wait for its key, too (see batch.ts). They
 * stand in line meanwhile. What the call makes of them is stored before its own job ends.
 */
import type { Clock } from "@x/redlock-core";
import { linkSignals, sleep } from "@x/redlock-core/protocol";
import { DelayedError, type Job } from "../bullmq/public.ts";
import { formatOutcome, valueOf } from "../job-run/rules/batch.ts";
import type { Run } from "../job-run/run.ts";
import type { Lane } from "../lane/lane.ts";
import { type InLine, parseGather } from "../scripts/operator-replies.ts";

interface MergingParts {
  readonly lane: Pick<Lane, "operate">;
  readonly clock: Clock;
  /** At most so many jobs are for one call, and it waits so many ms for more. */
  readonly size: number;
  readonly wait: number;
  /** Makes a job of its fields, as BullMQ does. */
  readonly makeJob: (fields: object, jobId: string) => Job;
  /** Ends the wait, when the worker is closed. */
  readonly closing: { readonly signal: AbortSignal; readonly isForced: boolean };
  readonly onError: (error: Error) => void;
}

export class Merging {
  readonly #parts: MergingParts;
  /** The places of the jobs in a run's batch, by their ids. */
  readonly #places = new WeakMap<Run, ReadonlyMap<string, string>>();

  constructor(parts: MergingParts) {
    this.#parts = parts;
  }

  /**
   * Lets the call of this run be for those that wait, too. If these cannot be asked for, it is for its job alone.
   *
   * Rejects if the worker is closed by force meanwhile: then the job is left to the next worker.
   */
  async gather(run: Run, signal: AbortSignal | undefined): Promise<void> {
    const { size, wait, clock, closing, makeJob, onError } = this.#parts;
    if (run.lost !== undefined) return;
    try {
      let others = await this.#inLineBehind(run, size - 1);
      if (wait > 0 && others.length < size - 1) {
        // The run's own signal is not asked for: the job may turn out not to be lost.
        const ends = linkSignals(closing.signal, signal);
        await sleep(clock, wait, ends.signal).catch(() => {});
        ends.unlink();
        if (!closing.isForced) others = await this.#inLineBehind(run, size - 1);
      }
      this.#places.set(run, new Map(others.map(({ id, place }) => [id, place])));
      run.joinedBy(others.map(({ id, fields }) => makeJob(fields, id)));
    } catch (error) {
      onError(error as Error);
    }
    if (closing.isForced) throw new DelayedError(`job ${run.jobId} was not started: its worker is closed by force`);
  }

  /** Stores what the call has made of the others, and returns what it has made of its own job, or throws that. */
  async settle(run: Run, returned: unknown): Promise<unknown> {
    const { jobId, token, batch } = run;
    const [own, ...others] = batch.jobs;
    const places = this.#places.get(run);
    const stored = others.flatMap((job) => [
      String(job.id),
      places?.get(String(job.id)) ?? "",
      formatOutcome(batch.endOf(job, returned), jobId),
    ]);
    if (stored.length > 0 && (await this.#parts.lane.operate("settle", jobId, token, ...stored)) === null) {
      run.loseJobLock();
      throw run.lost ?? new DelayedError(`job ${jobId} is not ours any more`);
    }
    return own === undefined ? returned : valueOf(batch.endOf(own, returned));
  }

  async #inLineBehind({ jobId, token }: Run, most: number): Promise<readonly InLine[]> {
    return parseGather(await this.#parts.lane.operate("gather", jobId, token, most));
  }
}
