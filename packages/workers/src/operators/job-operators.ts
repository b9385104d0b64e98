/** The operators' commands for a queue's jobs with keys, which the lane runs. */
import { hostname } from "node:os";
import type { Clock } from "@x/redlock-core";
import { quote } from "@x/redlock-core/kit";
import { STATE_KEYS } from "../bullmq/bullmq.ts";
import { JobCancelledError } from "../errors.ts";
import { KEY } from "../rules/entity-key.ts";
import { parseCancel, parseExplain, parseLine, parseSearch } from "../scripts/operator-replies.ts";
import type { OperatorLane } from "./operator-lane.ts";
import type { CancelOptions, JobsOfOptions, StateOptions } from "./queue-operators.ts";
import {
  type CancelledJobs,
  type CancelledState,
  type Explanation,
  explanationOf,
  type KeyJobState,
  type KeyJobs,
  keyJobsOf,
} from "./rules/key-report.ts";
import { CANCEL, CANCEL_REASON, JOB_ID, JOBS, REMOVE } from "./rules/operator-arguments.ts";

/**
 * Number of jobs that are read or removed in one request. Kept small because a reply may contain all data of its jobs.
 */
const JOBS_PAGE = 100;
/**
 * Maximum number of searches. A repeated search finds the jobs that have changed their state during the previous one.
 */
const MAX_SEARCHES = 10;
const PARTS: Readonly<Record<KeyJobState, readonly string[]>> = { ...STATE_KEYS, parked: ["line"] };

interface JobOperatorsParts {
  readonly queue: string;
  readonly lane: OperatorLane;
  readonly clock: Clock;
}

/** The methods are described at the methods of `QueueOperators` with similar names. */
export class JobOperators {
  readonly #parts: JobOperatorsParts;

  constructor(parts: JobOperatorsParts) {
    this.#parts = parts;
  }

  async explain(jobId: string): Promise<Explanation | undefined> {
    JOB_ID.of("jobId", jobId);
    return explanationOf(jobId, parseExplain(await this.#parts.lane.operate("explain", jobId)));
  }

  async jobsOf(key: string, options: JobsOfOptions): Promise<KeyJobs> {
    KEY.of("key", key);
    const { limit, state } = JOBS.resolve(options);
    await this.#assertKeysKnown(state);
    const { parked, parkedSinceMs, ...who } = keyJobsOf(
      parseLine(await this.#parts.lane.operate("inLine", key, limit)),
    );
    const listed = async (part: "waiting" | "delayed"): Promise<Partial<KeyJobs>> => {
      if (state !== part && state !== "all") return {};
      const found: string[] = [];
      for await (const page of this.#find(key, part)) {
        found.push(...page);
        if (found.length >= limit) break;
      }
      return { [part]: found.slice(0, limit) };
    };
    const isInLine = state === "parked" || state === "all";
    const inLine = isInLine ? { parked, parkedSinceMs } : { parked: [], parkedSinceMs: [] };
    return { ...who, ...inLine, ...(await listed("waiting")), ...(await listed("delayed")) };
  }

  async remove(key: string, options: StateOptions): Promise<number> {
    KEY.of("key", key);
    const { state } = REMOVE.resolve(options);
    await this.#assertKeysKnown(state);
    const states = state === "all" ? (["waiting", "delayed", "parked"] as const) : [state];
    let total = 0;
    for (let look = 0; look < MAX_SEARCHES; look += 1) {
      const before = total;
      for (const each of states) total += await this.#removeAll(key, each);
      if (total === before) break;
    }
    return total;
  }

  async #removeAll(key: string, state: KeyJobState): Promise<number> {
    const found = new Set<string>();
    for await (const page of this.#find(key, state)) for (const id of page) found.add(id);
    const ids = [...found];
    let total = 0;
    for (let first = 0; first < ids.length; first += JOBS_PAGE) {
      const page = ids.slice(first, first + JOBS_PAGE);
      const isRemoved = await Promise.all(page.map(async (id) => await this.#parts.lane.remove(id)));
      const gone = page.filter((_, index) => isRemoved[index]);
      if (gone.length > 0) await this.#parts.lane.operate("removed", key, ...gone);
      total += gone.length;
    }
    return total;
  }

  async cancel(jobId: string, given: string | undefined, options: CancelOptions): Promise<CancelledState> {
    JOB_ID.of("jobId", jobId);
    const reason = CANCEL_REASON.of("reason", given);
    const { remove } = CANCEL.resolve(options);
    const { clock, lane } = this.#parts;
    const by = `${hostname()}:${process.pid}`;
    const cancellation = { reason, by, atMs: Math.floor(clock.wallMs()) };
    const { message } = new JobCancelledError(jobId, cancellation);
    const raw = await lane.operate("cancel", jobId, JSON.stringify(cancellation), message, remove ? "" : 1);
    const { found, keys } = parseCancel(raw);
    const mayRemove = remove && (found === "parked" || found === "waiting");
    if (mayRemove && (await lane.remove(jobId))) {
      for (const key of keys) await lane.operate("removed", key, jobId);
    }
    return found;
  }

  async cancelKey(key: string, reason: string | undefined, options: CancelOptions): Promise<CancelledJobs> {
    KEY.of("key", key);
    CANCEL_REASON.of("reason", reason);
    CANCEL.resolve(options);
    await this.#assertKeysKnown("all");
    const cancelled = { running: 0, parked: 0, waiting: 0 };
    const known = new Set<string>();
    for (let look = 0; look < MAX_SEARCHES; look += 1) {
      const before = known.size;
      // The end of a job that runs could otherwise start a job that waits.
      for (const find of [this.#findWaiting(key), this.#findHolders(key)]) {
        for await (const page of find) {
          const fresh = page.filter((id) => !known.has(id));
          for (const id of fresh) known.add(id);
          const found = await Promise.all(fresh.map(async (id) => await this.cancel(id, reason, options)));
          for (const state of found) if (state !== "unknown") cancelled[state] += 1;
        }
      }
      if (known.size === before) break;
    }
    return cancelled;
  }

  /** Finds the jobs of a key that do not run. The search is complete before the first page is returned. */
  async *#findWaiting(key: string): AsyncGenerator<readonly string[]> {
    const found = new Set<string>();
    for (const state of ["waiting", "delayed", "parked"] as const) {
      for await (const page of this.#find(key, state)) for (const id of page) found.add(id);
    }
    const ids = [...found];
    for (let first = 0; first < ids.length; first += JOBS_PAGE) yield ids.slice(first, first + JOBS_PAGE);
  }

  async *#findHolders(key: string): AsyncGenerator<readonly string[]> {
    yield parseLine(await this.#parts.lane.operate("inLine", key, 1)).holders;
  }

  /** Rejects if the state contains jobs whose keys only a function of the workers can compute. */
  async #assertKeysKnown(state: KeyJobState | "all"): Promise<void> {
    const { queue, lane } = this.#parts;
    if (state === "parked" || (await lane.keyFunction()) !== undefined) return;
    throw new TypeError(
      `key must be given to the ExclusiveQueue "${queue}" as to its workers, or state must be "parked", got ${quote(state)}: ` +
        "a function of the workers computes the keys, or no worker has run yet",
    );
  }

  /** Finds the jobs of a key, page by page. */
  async *#find(key: string, state: KeyJobState): AsyncGenerator<readonly string[]> {
    for (const part of PARTS[state]) {
      let first = 0;
      let looked: number;
      do {
        const raw = await this.#parts.lane.operate("search", key, part, first, first + JOBS_PAGE - 1);
        const page = parseSearch(raw);
        yield [...page.ids, ...(await this.#parts.lane.idsOfJobsWithKey(key, page.unknown))];
        looked = page.looked;
        first += JOBS_PAGE;
      } while (looked === JOBS_PAGE);
    }
  }
}
