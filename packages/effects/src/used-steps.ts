/** Refuses a second effect of a job execution that would share the inbox row of the first one. */
import { quote } from "@x/redlock-core/kit";
import type { Effect } from "./options.ts";

/**
 * Inbox IDs that each job execution has used. BullMQ makes a new job object for each execution, so a later execution of
 * the same job has used none.
 */
export class UsedSteps {
  readonly #used = new WeakMap<object, Set<string>>();

  /**
   * Marks the effect as used, and returns a function that takes that back, for a call that did nothing.
   * @throws RangeError for one that is used
   */
  reserve({ job, id }: Effect): () => void {
    if (job === undefined) return () => undefined;
    const used = this.#used.get(job) ?? new Set();
    this.#used.set(job, used);
    if (used.has(id)) {
      throw new RangeError(
        `step must be different in each call of once for a job, got the same twice for job ${quote(String(job.id))}: the second call would return the first one's result`,
      );
    }
    used.add(id);
    return () => used.delete(id);
  }
}
