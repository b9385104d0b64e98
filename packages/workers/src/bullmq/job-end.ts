/**
 * The end of a job, as BullMQ's worker tells it, is made for a script that takes many of them. Only this file and
 * bullmq.ts know BullMQ's internals.
 *
 * It relies on `moveToFinishedArgs`, by which BullMQ makes the arguments of the command. BullMQ must do nothing with
 * them but to send them, and to read in them when the job has ended. That is checked when a worker is constructed.
 */
import { UnsupportedBullMQError } from "../errors.ts";

/** A `JobEnd` stands in place of the array of arguments of BullMQ's `moveToFinished`. */
export class JobEnd {
  readonly jobId: string;
  /** The prefix of the queue's keys. */
  readonly prefix: string;
  /** The token of BullMQ's lock of the job. */
  readonly token: string;
  /** The JSON of what BullMQ packs, without the token. */
  readonly options: string;
  /**
   * The texts that `eachEnd` in scripts/commands.lua.ts reads: id, time, property, value, state, whether to fetch,
   * options, token.
   */
  readonly told: readonly (string | number)[];
  /** The names and values of fields of the job to be set. */
  readonly fields: readonly string[];
  /** BullMQ reads here when the job has ended, behind 14 keys and the id. */
  readonly 15: number;

  constructor(facts: Pick<JobEnd, "jobId" | "prefix" | "token" | "options" | "told" | "fields"> & { endedMs: number }) {
    this.jobId = facts.jobId;
    this.prefix = facts.prefix;
    this.token = facts.token;
    this.options = facts.options;
    this.told = facts.told;
    this.fields = facts.fields;
    this[15] = facts.endedMs;
  }

  /** Whether the job has completed, and the next one is fetched. */
  get isFollowed(): boolean {
    const [, , , , state, doesFetch] = this.told;
    return state === "completed" && doesFetch === 1;
  }

  /** The lock options for a fetch of its own that follows the end. */
  get lockOptions(): string {
    return JSON.stringify({ ...(JSON.parse(this.options) as object), token: this.token });
  }
}

/**
 * The keys of a queue that a fetch is given, in BullMQ's order. The script for many ends has the same, to fetch with;
 * BullMQ's end has those of its one job between the last two.
 */
const KEY_NAMES = [
  "wait",
  "active",
  "prioritized",
  "events",
  "stalled",
  "limiter",
  "delayed",
  "paused",
  "meta",
  "pc",
  "marker",
];
export const QUEUE_KEY_COUNT: number = KEY_NAMES.length;

export function queueKeys(prefix: string): string[] {
  return KEY_NAMES.map((name) => `${prefix}${name}`);
}

interface EndTarget {
  moveToFinishedArgs?: unknown;
  getKeepJobs(shouldRemove: unknown, workerKeepJobs: unknown): unknown;
  readonly queue: {
    readonly keys: Readonly<Record<string, string>>;
    readonly closing?: unknown;
    readonly opts: {
      readonly removeOnComplete?: unknown;
      readonly removeOnFail?: unknown;
      readonly name?: string;
      readonly limiter?: unknown;
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
  target.moveToFinishedArgs = (
    job: EndingJob,
    value: string | undefined,
    property: string,
    shouldRemove: unknown,
    state: "completed" | "failed",
    token: string,
    endedMs: number,
    fetchNext = true,
    fields: Readonly<Record<string, string | undefined>> = {},
  ): JobEnd => {
    const { opts, keys, closing } = target.queue;
    const jobId = job.id ?? "";
    const workerKeepJobs = state === "completed" ? opts.removeOnComplete : opts.removeOnFail;
    const options = JSON.stringify({
      name: opts.name,
      keepJobs: target.getKeepJobs(shouldRemove, workerKeepJobs),
      limiter: opts.limiter,
      lockDuration: opts.lockDuration,
      attempts: job.opts.attempts,
      maxMetricsSize: opts.metrics?.maxDataPoints || "",
      fpof: job.opts.failParentOnFailure === true,
      cpof: job.opts.continueParentOnFailure === true,
      idof: job.opts.ignoreDependencyOnFailure === true,
      rdof: job.opts.removeDependencyOnFailure === true,
    });
    const doesFetch = fetchNext && closing === undefined ? 1 : 0;
    return new JobEnd({
      jobId,
      prefix: keys[""] ?? "",
      token,
      options,
      endedMs,
      told: [jobId, endedMs, property, value ?? "null", state, doesFetch, options, token],
      fields: Object.entries(fields).flatMap(([name, field]) => (field === undefined ? [] : [name, field])),
    });
  };
}
