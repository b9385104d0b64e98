/** What the fetch of a job told goes with the job: its arrival, its keys, and the names of their locks. */
import type { Redlock } from "@x/redlock-core";
import { protocolOf } from "@x/redlock-core/protocol";
import type { Job } from "bullmq";
import { slotSuffix } from "../entity-key.ts";
import { JobKeyError, KeyBacklogError } from "../errors.ts";
import type { Arrival, Lane } from "../lane/lane.ts";
import type { ResolvedExclusiveOptions } from "../options.ts";

/** A job has what its fetch told under this symbol. */
const ARRIVAL = Symbol("arrival");
type Arrived = object & { [ARRIVAL]?: Arrival };

export class Arrivals {
  readonly #lane: Pick<Lane, "arrivalOf">;
  readonly #redlock: Redlock;
  readonly #options: Pick<ResolvedExclusiveOptions, "resourceOf" | "reserved" | "withoutKey">;

  constructor(parts: {
    readonly lane: Pick<Lane, "arrivalOf">;
    readonly redlock: Redlock;
    readonly options: Pick<ResolvedExclusiveOptions, "resourceOf" | "reserved" | "withoutKey">;
  }) {
    this.#lane = parts.lane;
    this.#redlock = parts.redlock;
    this.#options = parts.options;
  }

  /** Returns the job that is to be run, for one that BullMQ has made of the answer to a fetch. */
  take(fresh: Job, jobId: string): Job {
    const arrival = this.#lane.arrivalOf(jobId);
    if (arrival === undefined) return fresh;
    const job = arrival.early === undefined ? fresh : arrival.early.jobFrom(fresh);
    (job as Arrived)[ARRIVAL] = arrival;
    return job;
  }

  /** Throws `TypeError` for a job that did not pass through the lane. */
  of(job: Job): Arrival {
    const known = (job as Arrived)[ARRIVAL];
    if (known !== undefined) return known;
    // The user may have made the job himself, of what `moveToCompleted` brought.
    const arrival = this.#lane.arrivalOf(String(job.id));
    if (arrival === undefined) {
      throw new TypeError(
        "a job reached this ExclusiveWorker without passing through its lane: fetch jobs with this worker",
      );
    }
    (job as Arrived)[ARRIVAL] = arrival;
    return arrival;
  }

  /** Throws what the job fails with, if it cannot have keys. */
  keysOf(job: Job, { pin }: Arrival): readonly string[] {
    if (pin.kind === "keys") return pin.keys;
    if (pin.kind === "fault") throw new JobKeyError(String(job.id), pin.fault);
    if (pin.kind === "dropped") throw new KeyBacklogError(String(job.id), pin.key);
    if (this.#options.withoutKey === "fail") throw new JobKeyError(String(job.id), "is missing");
    return [];
  }

  /** Returns the names of the locks. None may be named like a key of BullMQ's, whose place it would take. */
  resourcesOf(job: Job, keys: readonly string[], { slots }: Arrival): readonly string[] {
    const { resourceOf, reserved } = this.#options;
    const resources = keys.map((key, index) => resourceOf(key) + slotSuffix(slots?.[index]));
    const taken = resources.find((resource) => protocolOf(this.#redlock).lockKey(resource).startsWith(reserved));
    if (taken === undefined) return resources;
    throw new JobKeyError(String(job.id), `would have a lock named like a key of BullMQ's ("${taken}")`);
  }
}
