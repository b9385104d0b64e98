/**
 * A queue with exclusive workers in Bull Board. BullMQ keeps jobs that wait for their key among the delayed ones. So a
 * dashboard says that they run in some minutes. Here they are waiting, with their key and the reason.
 */
import { BullMQAdapter } from "@bull-board/api/bullMQAdapter";
import type { JobCounts, JobStatus, QueueAdapterOptions, QueueJobOptions } from "@bull-board/api/typings/app";
import { objectWith, Schema, type ShapeOf } from "@x/redlock-core/protocol";
import type { Job, Queue } from "./bullmq/public.ts";
import type { ExclusiveWorker } from "./exclusive-worker.ts";

/** What the adapter asks a worker of the queue, which need not run. */
export type KeyReader = Pick<ExclusiveWorker, "counts" | "explain" | "jobsOf" | "listKeys">;

export interface ExclusiveQueueAdapterOptions extends Partial<QueueAdapterOptions> {
  /**
   * A worker of the queue, also one that takes no job: `new ExclusiveWorker(name, null, { connection, autorun: false,
   * key })`. Close it yourself.
   */
  readonly worker: KeyReader;
}

/** More are not looked for, so that a page costs a bounded time. Those are listed as delayed, with their reason. */
const MOST_PARKED = 10_000;
/** The number of ids of delayed jobs that are read at a time. */
const CHUNK = 500;
/** The number of the keys with the longest lines that are named. */
const NAMED_KEYS = 5;

/** An em space, which no name of a job has: what follows is shown, and no part of the name. */
const GAP = "\u2003";
const SHOWN = /\u2003.*$/s;

const OPTIONS = new Schema({
  worker: objectWith<KeyReader>(["counts", "explain", "jobsOf", "listKeys"]),
} satisfies ShapeOf<Pick<ExclusiveQueueAdapterOptions, "worker">>);

export class ExclusiveQueueAdapter extends BullMQAdapter {
  readonly #queue: Queue;
  readonly #worker: KeyReader;
  #backlog = "";

  /** @throws TypeError naming option, rule and value */
  constructor(queue: Queue, { worker, ...options }: ExclusiveQueueAdapterOptions) {
    super(queue, options);
    this.#queue = queue;
    this.#worker = OPTIONS.resolve({ worker }).worker;
  }

  /** Returns what was given, and the keys with the longest lines when the jobs were last counted. */
  override getDescription(): string {
    return [super.getDescription(), this.#backlog].filter((text) => text !== "").join(" · ");
  }

  override async getJobCounts(): Promise<JobCounts> {
    const [counts, { parked }, keys] = await Promise.all([
      super.getJobCounts(),
      this.#worker.counts(),
      this.#worker.listKeys(),
    ]);
    const longest = keys.filter((key) => key.parked > 0).sort((one, other) => other.parked - one.parked);
    this.#backlog = longest
      .slice(0, NAMED_KEYS)
      .map((key) => `key ${JSON.stringify(key.key)}: ${key.parked} wait${key.paused === undefined ? "" : ", paused"}`)
      .join("; ");
    // Between the two answers jobs may have come and gone.
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

  /** Adds a job. A copy of one has nothing of what is shown of that one. */
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

  /** Reads the ids key by key, each line in its order. */
  async #parkedIds(count: number): Promise<readonly string[]> {
    const most = Math.min(count, MOST_PARKED);
    const ids = new Set<string>();
    for (const { key, parked } of await this.#worker.listKeys()) {
      if (ids.size >= most) break;
      if (parked === 0) continue;
      for (const id of (await this.#worker.jobsOf(key, { limit: most })).parked) ids.add(id);
    }
    return [...ids].slice(0, most);
  }

  /** Lists the jobs that are delayed for another reason than their key. */
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

  /** The dashboard shows a group beside a job: that is its key here. Beside its name is the reason why it waits. */
  async #explained(job: Job): Promise<Job> {
    if (job.id === undefined || job.finishedOn !== undefined) return job;
    const explanation = await this.#worker.explain(job.id);
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
