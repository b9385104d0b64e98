/**
 * Replaces the arguments with which BullMQ ends a job by a `JobEnd`, so that one script can end many jobs.
 *
 * This file relies on `moveToFinishedArgs`, with which BullMQ builds the arguments of the command. BullMQ must only
 * send these arguments and read the end time from them. The constructor of a worker checks that the method exists.
 */
import { UnsupportedBullMQError } from "../errors.ts";

interface EndFacts {
  readonly job: object;
  readonly jobId: string;
  readonly prefix: string;
  /** Token of BullMQ's lock of the job. */
  readonly token: string;
  /** The options that BullMQ packs for the script, as JSON without the token. */
  readonly options: string;
  readonly endedMs: number;
  readonly property: string;
  readonly value: string;
  readonly state: "completed" | "failed";
  readonly doesFetch: 0 | 1;
  /** Names and values of the job's fields to set, in turn. */
  readonly fields: readonly string[];
}

/** The end of a job. BullMQ passes it on instead of the array of arguments for `moveToFinished`. */
export class JobEnd {
  readonly facts: EndFacts;

  constructor(facts: EndFacts) {
    this.facts = facts;
  }

  /** When the job ended. BullMQ reads this index of the arguments, which follows 14 keys and the ID. */
  get 15(): number {
    return this.facts.endedMs;
  }

  /**
   * Returns the arguments of this end for `eachEnd` in scripts/commands.lua.ts, which passes the last two to `finish`.
   */
  argumentsWith(keys: string, last: string): (string | number)[] {
    const { jobId, endedMs, property, value, state, doesFetch, options, token, fields } = this.facts;
    const args = [jobId, endedMs, property, value, state, doesFetch, options, token, keys, last, fields.length];
    return fields.length === 0 ? args : [...args, ...fields];
  }

  /** Lock options for a separate fetch after this end. */
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

/** Replaces the arguments of a job's end by a `JobEnd`, for all jobs of this worker. */
export function replaceEndArguments(worker: object): void {
  const target = worker as EndTarget;
  if (typeof target.moveToFinishedArgs !== "function" || typeof target.getKeepJobs !== "function") {
    throw new UnsupportedBullMQError(["the worker's backend makes the arguments of a job's end in an unknown way"]);
  }
  const endOptions = new EndOptions(target);
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
      options: endOptions.pack(job, shouldRemove, state),
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
 * Builds the JSON of the options that BullMQ packs for an end. Nearly all ends of a worker have the same options, and
 * building the JSON takes 2 µs. The last JSON is therefore kept together with the values it was built from, because
 * options can change at any time.
 */
class EndOptions {
  readonly #target: EndTarget;
  #facts: Readonly<Record<string, unknown>> = {};
  #json = "";

  constructor(target: EndTarget) {
    this.#target = target;
  }

  pack({ opts: jobOptions }: EndingJob, shouldRemove: unknown, state: "completed" | "failed"): string {
    const { opts } = this.#target.queue;
    const { limiter } = opts;
    const workerKeepJobs = state === "completed" ? opts.removeOnComplete : opts.removeOnFail;
    const keepJobs = this.#target.getKeepJobs(shouldRemove, workerKeepJobs);
    // An object literal, because a spread would cost each end about 10 µs.
    const facts = {
      name: opts.name,
      count: keepJobs.count,
      age: keepJobs.age,
      limit: keepJobs.limit,
      isLimited: limiter,
      max: limiter?.max,
      duration: limiter?.duration,
      lockDuration: opts.lockDuration,
      attempts: jobOptions.attempts,
      maxMetricsSize: opts.metrics?.maxDataPoints || "",
      fpof: jobOptions.failParentOnFailure === true,
      cpof: jobOptions.continueParentOnFailure === true,
      idof: jobOptions.ignoreDependencyOnFailure === true,
      rdof: jobOptions.removeDependencyOnFailure === true,
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
