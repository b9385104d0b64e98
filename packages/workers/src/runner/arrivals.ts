/** Connects each BullMQ job to its `TakenJob`, and derives the job's keys and the names of their locks. */
import type { Redlock } from "@x/redlock-core";
import { protocolOf } from "@x/redlock-core/protocol";
import type { Job } from "../bullmq/public.ts";
import { JobCancelledError, JobKeyError, KeyBacklogError } from "../errors.ts";
import type { Lane } from "../lane/lane.ts";
import { type TakenJob, takenJobOf } from "../lane/taken-job.ts";
import type { ResolvedExclusiveOptions } from "../options.ts";
import { slotSuffix } from "../rules/entity-key.ts";

interface ArrivalsParts {
  readonly lane: Pick<Lane, "handOut">;
  readonly redlock: Redlock;
  readonly onNoKeys: (jobs: number) => void;
  readonly options: Pick<ResolvedExclusiveOptions, "resourceOf" | "reserved" | "withoutKey">;
}

/** If the first jobs have no key, up to this number, the option `key` is probably wrong. */
const FIRST_JOBS = 20;

export class Arrivals {
  readonly #parts: ArrivalsParts;
  /** Number of jobs so far, all without a key. Undefined after the first job with a key, and after the warning. */
  #withoutKey: number | undefined = 0;

  constructor(parts: ArrivalsParts) {
    this.#parts = parts;
  }

  /** Attaches the `TakenJob` to a job that BullMQ has created from a fetch, if there is one. Returns the job. */
  attachTakenJob(job: Job, jobId: string): Job {
    const taken = this.#parts.lane.handOut(jobId);
    taken?.attachTo(job);
    if (taken !== undefined) this.#countWithoutKey(taken);
    return job;
  }

  /** Calls `onNoKeys` once if the first jobs have no key, because such jobs run without a lock. */
  #countWithoutKey({ pin }: TakenJob): void {
    if (this.#withoutKey === undefined) return;
    this.#withoutKey = pin.kind === "none" ? this.#withoutKey + 1 : undefined;
    if (this.#withoutKey !== FIRST_JOBS) return;
    this.#withoutKey = undefined;
    if (this.#parts.options.withoutKey !== "fail") this.#parts.onNoKeys(FIRST_JOBS);
  }

  /** Returns the `TakenJob` of a job. Throws `TypeError` if the job did not pass through the lane. */
  takenJobFor(job: Job): TakenJob {
    const known = takenJobOf(job);
    if (known !== undefined) return known;
    // The user may have created this job object from the reply of `moveToCompleted`.
    const taken = this.#parts.lane.handOut(String(job.id));
    if (taken === undefined) {
      throw new TypeError(
        "a job reached this ExclusiveWorker without passing through its lane: fetch jobs with this worker",
      );
    }
    taken.attachTo(job);
    return taken;
  }

  /** Returns the job's keys. Throws the error with which the job fails if it cannot have keys. */
  keysOf(job: Job, { pin }: TakenJob): readonly string[] {
    if (pin.kind === "keys") return pin.keys;
    if (pin.kind === "fault") throw new JobKeyError(String(job.id), pin.fault);
    if (pin.kind === "cancelled") throw new JobCancelledError(String(job.id), pin.cancellation);
    if (pin.kind === "dropped") throw new KeyBacklogError(String(job.id), pin.key);
    if (this.#parts.options.withoutKey === "fail") throw new JobKeyError(String(job.id), "is missing");
    return [];
  }

  /**
   * Returns the job's keys and the names of their locks. Throws `JobKeyError` if a lock would have the name of a BullMQ
   * key.
   */
  namesOf(job: Job, taken: TakenJob): { readonly keys: readonly string[]; readonly resources: readonly string[] } {
    const keys = this.keysOf(job, taken);
    const { redlock, options } = this.#parts;
    const { resourceOf, reserved } = options;
    const resources = keys.map((key, index) => resourceOf(key) + slotSuffix(taken.slots?.[index]));
    const lockKeys = resources.map((resource) => lockKeyOf(redlock, job, resource));
    const reservedName = resources.find((_, index) => lockKeys[index]?.startsWith(reserved));
    if (reservedName === undefined) return { keys, resources };
    throw new JobKeyError(String(job.id), `would give its lock the name of a BullMQ key ("${reservedName}")`);
  }
}

/**
 * Returns the lock's Redis key.
 * @throws JobKeyError if no lock can have this name.
 */
function lockKeyOf(redlock: Redlock, job: Job, resource: string): string {
  try {
    return protocolOf(redlock).keys.lockKey(resource);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new JobKeyError(String(job.id), `cannot name a lock: ${error.message}`);
  }
}
