/**
 * The end of a job, as BullMQ's worker tells it, is made for a script that takes many of them.
 *
 * It relies on `moveToFinishedArgs`, by which BullMQ makes the arguments of the command. BullMQ must do nothing with
 * them but to send them, and to read in them when the job has ended. That is checked when a worker is constructed.
 */
import { UnsupportedBullMQError } from "../errors.ts";

interface EndFacts {
  /** The job, as whoever ends it has it. */
  readonly job: object;
  readonly jobId: string;
  /** The prefix of the queue's keys. */
  readonly prefix: string;
  /** The token of BullMQ's lock of the job. */
  readonly token: string;
  /** The JSON of what BullMQ packs, without the token. */
  readonly options: string;
  readonly endedMs: number;
  readonly property: string;
  readonly value: string;
  readonly state: "completed" | "failed";
  readonly doesFetch: 0 | 1;
  /** The names and values of fields of the job to be set. */
  readonly fields: readonly string[];
}

/** A `JobEnd` stands in place of the array of arguments of BullMQ's `moveToFinished`. */
export class JobEnd {
  readonly facts: EndFacts;

  constructor(facts: EndFacts) {
    this.facts = facts;
  }

  /** BullMQ reads here when the job has ended, behind 14 keys and the id. */
  get 15(): number {
    return this.facts.endedMs;
  }

  /** Returns the arguments of one end for `eachEnd` in scripts/commands.lua.ts. `finish` also gets the last two. */
  argumentsWith(keys: string, last: string): (string | number)[] {
    const { jobId, endedMs, property, value, state, doesFetch, options, token, fields } = this.facts;
    const args = [jobId, endedMs, property, value, state, doesFetch, options, token, keys, last, fields.length];
    return fields.length === 0 ? args : [...args, ...fields];
  }

  /** The lock options for a fetch of its own that follows the end. */
  get lockOptions(): string {
    const { options, token } = this.facts;
    return JSON.stringify({ ...(JSON.parse(options) as object), token });
  }
}

interface KeepJobs {
  readonly count?: unknown;
  readonly age?: unknown;
  readonly limit?: unknown;
}

interface EndTarget {
  moveToFinishedArgs?: unknown;
  getKeepJobs(shouldRemove: unknown, workerKeepJobs: unknown): KeepJobs;
  readonly queue: {
    readonly keys: Readonly<Record<string, string>>;
    readonly closing?: unknown;
    readonly opts: {
      readonly removeOnComplete?: unknown;
      readonly removeOnFail?: unknown;
      readonly name?: string;
      readonly limiter?: { readonly max?: unknown; readonly duration?: unknown } | null;
      readonly lockDuration?: number;
      readonly metrics?: { readonly maxDataPoints?: number };
    };
  };
}

interface EndingJob {
  readonly id?: string;
  readonly opts: {
    readonly attempts?: number;
    readonly failParentOnFailure?: boolean;
    readonly continueParentOnFailure?: boolean;
    readonly ignoreDependencyOnFailure?: boolean;
    readonly removeDependencyOnFailure?: boolean;
  };
}

/** Makes what ends a job of this worker a `JobEnd` from now on. */
export function replaceEndArguments(worker: object): void {
  const target = worker as EndTarget;
  if (typeof target.moveToFinishedArgs !== "function" || typeof target.getKeepJobs !== "function") {
    throw new UnsupportedBullMQError(["the worker's backend does not make the arguments of an end as known"]);
  }
  const packed = new EndOptions(target);
  target.moveToFinishedArgs = (
    job: EndingJob,
    value: string | undefined,
    property: string,
    shouldRemove: unknown,
    state: "completed" | "failed",
    token: string,
    endedMs: number,
    fetchNext = true,
    fields?: Readonly<Record<string, string | undefined>>,
  ): JobEnd => {
    const { keys, closing } = target.queue;
    return new JobEnd({
      job,
      jobId: job.id ?? "",
      prefix: keys[""] ?? "",
      token,
      options: packed.of(job, shouldRemove, state),
      endedMs,
      property,
      value: value ?? "null",
      state,
      doesFetch: fetchNext && closing === undefined ? 1 : 0,
      fields: fields === undefined ? NO_FIELDS : fieldsOf(fields),
    });
  };
}

/**
 * `EndOptions` makes the JSON of what BullMQ packs for an end. Nearly all ends of a worker have the same, and to make
 * it takes 2 µs. So the last one is kept, with the facts that it was made of: options may be changed at any time.
 */
class EndOptions {
  readonly #target: EndTarget;
  #facts: Readonly<Record<string, unknown>> = {};
  #json = "";

  constructor(target: EndTarget) {
    this.#target = target;
  }

  of({ opts: ofJob }: EndingJob, shouldRemove: unknown, state: "completed" | "failed"): string {
    const { opts } = this.#target.queue;
    const { limiter } = opts;
    const workerKeepJobs = state === "completed" ? opts.removeOnComplete : opts.removeOnFail;
    const keepJobs = this.#target.getKeepJobs(shouldRemove, workerKeepJobs);
    // Without a spread, which would cost each end some 10 µs.
    const facts = {
      name: opts.name,
      count: keepJobs.count,
      age: keepJobs.age,
      limit: keepJobs.limit,
      isLimited: limiter,
      max: limiter?.max,
      duration: limiter?.duration,
      lockDuration: opts.lockDuration,
      attempts: ofJob.attempts,
      maxMetricsSize: opts.metrics?.maxDataPoints || "",
      fpof: ofJob.failParentOnFailure === true,
      cpof: ofJob.continueParentOnFailure === true,
      idof: ofJob.ignoreDependencyOnFailure === true,
      rdof: ofJob.removeDependencyOnFailure === true,
    };
    if (isSame(facts, this.#facts)) return this.#json;
    const {
      count: _count,
      age: _age,
      limit: _limit,
      isLimited: _is,
      max: _max,
      duration: _duration,
      ...packed
    } = facts;
    this.#facts = facts;
    this.#json = JSON.stringify({ ...packed, keepJobs, limiter });
    return this.#json;
  }
}

function isSame(one: Readonly<Record<string, unknown>>, other: Readonly<Record<string, unknown>>): boolean {
  for (const name in one) if (one[name] !== other[name]) return false;
  return true;
}

const NO_FIELDS: readonly string[] = [];

function fieldsOf(fields: Readonly<Record<string, string | undefined>>): readonly string[] {
  return Object.entries(fields).flatMap(([name, field]) => (field === undefined ? [] : [name, field]));
}
