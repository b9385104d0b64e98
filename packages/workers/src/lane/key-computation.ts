/** Computes keys with the user's key function, and stores them with the jobs in Redis. */
import { formatPin } from "../rules/entity-key.ts";
import { type KeyFunction, pinOfJob } from "../rules/stored-job.ts";
import type { UnknownKeyJob } from "../scripts/command-replies.ts";

export class KeyComputation {
  readonly #keyOf: KeyFunction;
  readonly #store: (pairs: readonly string[]) => Promise<unknown>;
  #underWay: Promise<void> | undefined;

  /** `store` stores the keys of jobs: an ID, followed by the keys as `formatPin` formats them, for each job. */
  constructor(keyOf: KeyFunction, store: (pairs: readonly string[]) => Promise<unknown>) {
    this.#keyOf = keyOf;
    this.#store = store;
  }

  /**
   * Computes and stores the keys of jobs. Only one computation runs at a time. If one is running already, this call
   * only waits for it; the caller's next fetch asks again for any keys that are still missing.
   */
  async run(jobs: readonly UnknownKeyJob[]): Promise<void> {
    if (this.#underWay !== undefined) {
      await this.#underWay;
      return;
    }
    const pairs = jobs.flatMap((job) => [job.id, formatPin(pinOfJob(job, this.#keyOf))]);
    this.#underWay = this.#store(pairs).then(() => {});
    try {
      await this.#underWay;
    } finally {
      this.#underWay = undefined;
    }
  }
}
