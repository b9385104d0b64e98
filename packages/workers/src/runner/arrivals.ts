/** A job that BullMQ has made goes with what it was taken as: its keys, and the names of their locks. */
import type { Redlock } from "@x/redlock-core";
import { protocolOf } from "@x/redlock-core/protocol";
import type { Job } from "../bullmq/public.ts";
import { JobKeyError, KeyBacklogError } from "../errors.ts";
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

/** If this many jobs come first and none has a key, the option `key` is probably wrong. */
const FIRST_JOBS = 20;

export class Arrivals {
  readonly #parts: ArrivalsParts;
  /** The number of jobs taken, while none of them had a key. */
  #withoutKey: number | undefined = 0;

  constructor(parts: ArrivalsParts) {
    this.#parts = parts;
  }

  /** Attaches its `TakenJob`, if any, to a job that BullMQ has made of the reply to a fetch. Returns the job. */
  take(job: Job, jobId: string): Job {
    const taken = this.#parts.lane.handOut(jobId);
    taken?.attachTo(job);
    if (taken !== undefined) this.#count(taken);
    return job;
  }

  /** Calls `onNoKeys` once if the first jobs have no key: such jobs run without a lock. */
  #count({ pin }: TakenJob): void {
    if (this.#withoutKey === undefined) return;
    this.#withoutKey = pin.kind === "none" ? this.#withoutKey + 1 : undefined;
    if (this.#withoutKey !== FIRST_JOBS) return;
    this.#withoutKey = undefined;
    if (this.#parts.options.withoutKey !== "fail") this.#parts.onNoKeys(FIRST_JOBS);
  }

  /** Throws `TypeError` for a job that did not pass through the lane. */
  of(job: Job): TakenJob {
    const known = takenJobOf(job);
    if (known !== undefined) return known;
    // The user may have made the job himself, of what `moveToCompleted` brought.
    const taken = this.#parts.lane.handOut(String(job.id));
    if (taken === undefined) {
      throw new TypeError(
        "a job reached this ExclusiveWorker without passing through its lane: fetch jobs with this worker",
      );
    }
    taken.attachTo(job);
    return taken;
  }

  /** Throws what the job fails with, if it cannot have keys. */
  keysOf(job: Job, { pin }: TakenJob): readonly string[] {
    if (pin.kind === "keys") return pin.keys;
    if (pin.kind === "fault") throw new JobKeyError(String(job.id), pin.fault);
    if (pin.kind === "dropped") throw new KeyBacklogError(String(job.id), pin.key);
    if (this.#parts.options.withoutKey === "fail") throw new JobKeyError(String(job.id), "is missing");
    return [];
  }

  /** Returns the job's keys, and the names of their locks. None is named like a key of BullMQ's. */
  namesOf(job: Job, taken: TakenJob): { readonly keys: readonly string[]; readonly resources: readonly string[] } {
    const keys = this.keysOf(job, taken);
    const { redlock, options } = this.#parts;
    const { resourceOf, reserved } = options;
    const resources = keys.map((key, index) => resourceOf(key) + slotSuffix(taken.slots?.[index]));
    const lockKeys = resources.map((resource) => lockKeyOf(redlock, job, resource));
    const reservedName = resources.find((_, index) => lockKeys[index]?.startsWith(reserved));
    if (reservedName === undefined) return { keys, resources };
    throw new JobKeyError(String(job.id), `would have a lock named like a key of BullMQ's ("${reservedName}")`);
  }
}

/** Returns the lock's own key. @throws JobKeyError if no lock may have this name */
function lockKeyOf(redlock: Redlock, job: Job, resource: string): string {
  try {
    return protocolOf(redlock).lockKey(resource);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new JobKeyError(String(job.id), `cannot name a lock: ${error.message}`);
  }
}
