/** The records of the jobs that this worker has taken and not yet ended. */
import type { TakenJob } from "./taken-job.ts";

export class TakenJobs {
  /** The records by job ID. If a lost job was taken again, the newer record. */
  readonly #byId = new Map<string, TakenJob>();
  #isLooping = false;

  /** Whether BullMQ's loop does the fetching. */
  get isLooping(): boolean {
    return this.#isLooping;
  }

  /** See `Lane.markLoopStarted`. */
  markLoopStarted(): void {
    this.#isLooping = true;
  }

  add(taken: TakenJob): void {
    this.#byId.set(taken.jobId, taken);
  }

  find(jobId: string): TakenJob | undefined {
    return this.#byId.get(jobId);
  }

  /** Returns the record of a job, unless its run is known to have another token. */
  findWithToken(jobId: string, token: string): TakenJob | undefined {
    const taken = this.#byId.get(jobId);
    return taken?.canHaveToken(token) === true ? taken : undefined;
  }

  /** See `Lane.handOut`. */
  handOut(jobId: string): TakenJob | undefined {
    const taken = this.#byId.get(jobId);
    if (!this.#isLooping && taken !== undefined) this.forget(taken);
    return taken;
  }

  /** Drops the record of a job that this worker ends now or may never end. */
  forget(taken: TakenJob): void {
    if (this.#byId.get(taken.jobId) === taken) this.#byId.delete(taken.jobId);
  }
}
