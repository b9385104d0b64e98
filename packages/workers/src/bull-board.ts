/**
 * Shows an `ExclusiveQueue` in Bull Board. BullMQ lists jobs that wait for their key as delayed, so a
 * dashboard would show a time in some minutes. This adapter lists them as waiting, with their key and the reason.
 */
import { BullMQAdapter } from "@bull-board/api/bullMQAdapter";
import type { JobCounts, JobStatus, QueueAdapterOptions, QueueJobOptions } from "@bull-board/api/typings/app";
import { shaped } from "@x/redlock-core/kit";
import type { Job } from "./bullmq/public.ts";
import type { ExclusiveQueue } from "./exclusive-queue.ts";

/**
 * Maximum number of parked jobs that are looked for, so that the cost of a page is bounded. Further parked jobs are
 * listed as delayed, with their reason.
 */
const MOST_PARKED = 10_000;
/** Number of IDs of delayed jobs that are read at a time. */
const CHUNK = 500;
/** Number of keys that the description names: the keys with the longest lines. */
const NAMED_KEYS = 5;

/** An em space, which job names do not contain. The text after it is shown, but is not a part of the name. */
const GAP = "\u2003";
const SHOWN = /\u2003.*$/s;

const QUEUE = shaped<ExclusiveQueue>("an ExclusiveQueue", (given) =>
  ["counts", "explain", "jobsOf", "listKeys", "getRanges"].every((name) => typeof given[name] === "function"),
);

export class ExclusiveQueueAdapter extends BullMQAdapter {
  readonly #queue: ExclusiveQueue;
  #backlog = "";

  /**
   * Shows a queue, which the adapter does not close. `options` are the options of Bull Board's own `BullMQAdapter`.
   * @throws TypeError if `queue` is not an `ExclusiveQueue`.
   */
  constructor(queue: ExclusiveQueue, options: Partial<QueueAdapterOptions> = {}) {
    super(QUEUE.of("queue", queue), options);
    this.#queue = queue;
  }

  /** Returns the given description, followed by the keys that had the longest lines when the jobs were last counted. */
  override getDescription(): string {
    return [super.getDescription(), this.#backlog].filter((text) => text !== "").join(" · ");
  }

  override async getJobCounts(): Promise<JobCounts> {
    const [counts, { parked }, keys] = await Promise.all([
      super.getJobCounts(),
      this.#queue.counts(),
      this.#queue.listKeys(),
    ]);
    const longest = keys.filter((key) => key.parked > 0).sort((one, other) => other.parked - one.parked);
    this.#backlog = longest
      .slice(0, NAMED_KEYS)
      .map((key) => `key ${JSON.stringify(key.key)}: ${key.parked} wait${key.paused === undefined ? "" : ", paused"}`)
      .join("; ");
    // Jobs may have been added or completed between the two replies.
    const moved = Math.min(parked, counts["delayed"] ?? 0);
    return { ...counts, delayed: (counts["delayed"] ?? 0) - moved, waiting: (counts["waiting"] ?? 0) + moved };
  }

  override async getJobs(statuses: JobStatus[], start = 0, end = -1): Promise<Job[]> {
    const last = end < 0 ? Number.MAX_SAFE_INTEGER : end;
    const lists = await Promise.all(statuses.map((status) => this.#jobsIn(status, start, last)));
    return await Promise.all(lists.flat().map((job) => this.#explained(job)));
  }

  override async getJob(id: string): Promise<Job | undefined> {
    const job = await super.getJob(id);
    return job === undefined ? undefined : await this.#explained(job);
  }

  /** Adds a job. If the job is a copy of a shown job, the added explanations are removed first. */
  override async addJob(name: string, data: unknown, options: QueueJobOptions): Promise<Job> {
    const { group: _, ...own } = options as QueueJobOptions & { readonly group?: unknown };
    return await super.addJob(name.replace(SHOWN, ""), data, own);
  }

  async #jobsIn(status: JobStatus, start: number, last: number): Promise<readonly Job[]> {
    if (status === "delayed") return await this.#jobsOf(await this.#delayedIds(start, last));
    const jobs = await super.getJobs([status], start, last);
    if (status !== "waiting") return jobs;
    const { waiting = 0 } = await super.getJobCounts();
    const parked = last < waiting ? [] : await this.#parkedIds(last - waiting + 1);
    return [...jobs, ...(await this.#jobsOf(parked.slice(Math.max(0, start - waiting))))];
  }

  async #jobsOf(ids: readonly string[]): Promise<readonly Job[]> {
    const jobs = await Promise.all(ids.map((id) => super.getJob(id)));
    return jobs.filter((job) => job !== undefined);
  }

  /** Returns the IDs of parked jobs key by key, each line in its order. */
  async #parkedIds(count: number): Promise<readonly string[]> {
    const most = Math.min(count, MOST_PARKED);
    const ids = new Set<string>();
    for (const { key, parked } of await this.#queue.listKeys()) {
      if (ids.size >= most) break;
      if (parked === 0) continue;
      for (const id of (await this.#queue.jobsOf(key, { limit: most })).parked) ids.add(id);
    }
    return [...ids].slice(0, most);
  }

  /** Returns the IDs of the jobs that are delayed for another reason than their key. */
  async #delayedIds(start: number, last: number): Promise<readonly string[]> {
    const parked = new Set(await this.#parkedIds(MOST_PARKED));
    const found: string[] = [];
    for (let from = 0; found.length <= last; from += CHUNK) {
      const ids = await this.#queue.getRanges(["delayed"], from, from + CHUNK - 1);
      found.push(...ids.filter((id) => !parked.has(id)));
      if (ids.length < CHUNK) break;
    }
    return found.slice(start, last + 1);
  }

  /** Adds the job's keys, as the group that the dashboard shows, and the reason why the job waits, next to its name. */
  async #explained(job: Job): Promise<Job> {
    if (job.id === undefined || job.finishedOn !== undefined) return job;
    const explanation = await this.#queue.explain(job.id);
    if (explanation === undefined || explanation.keys.length === 0) return job;
    const { verdict, message, keys } = explanation;
    const group = { id: keys.map(({ key }) => key).join(", ") };
    const asJson = job.toJSON.bind(job);
    return Object.assign(job, {
      toJSON: () => {
        const json = asJson();
        const name = verdict === "runs" ? json.name : `${json.name}${GAP}${message}`;
        return { ...json, name, delay: verdict === "parked" ? 0 : json.delay, opts: { ...json.opts, group } };
      },
    });
  }
}
