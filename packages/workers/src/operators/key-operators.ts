/** The operators' commands for the keys of a queue, which the lane runs. */
import { hostname } from "node:os";
import type { Clock } from "@x/redlock-core";
import { quote } from "@x/redlock-core/kit";
import { STATE_KEYS } from "../bullmq/bullmq.ts";
import { JobCancelledError } from "../errors.ts";
import type { EmitEvent } from "../events.ts";
import { KEY } from "../rules/entity-key.ts";
import {
  parseCancel,
  parseExplain,
  parseLengths,
  parseLine,
  parseList,
  parseOverview,
  parsePause,
  parseReading,
  parseRunnable,
  parseSearch,
} from "../scripts/operator-replies.ts";
import type { OperatorLane } from "./operator-lane.ts";
import {
  type BusyKey,
  busyKeyOf,
  type CancelledJobs,
  type CancelledState,
  type Explanation,
  explanationOf,
  type JobCounts,
  type KeyJobState,
  type KeyJobs,
  type KeyReading,
  keyJobsOf,
  keyReadingOf,
} from "./rules/key-report.ts";
import {
  CANCEL,
  CANCEL_REASON,
  JOB_ID,
  JOBS,
  LINE_LIMIT,
  LIST,
  OVERVIEW,
  PAUSE,
  PAUSE_REASON,
  READ,
  REMOVE,
} from "./rules/operator-arguments.ts";
import type { QueueOverview } from "./rules/queue-overview.ts";
import { RunnableKeys } from "./rules/runnable-keys.ts";
import { reportsOf } from "./rules/worker-report.ts";

const LIST_PAGE = 500;
/** Bounds of the search for keys that could start: a page takes Redis a few ms. */
const [RUNNABLE_PAGE, MOST_LOOKED, MOST_RUNNABLE] = [500, 10_000, 1_000];
/**
 * Number of jobs that are read or removed in one request. Kept small because a reply may contain all data of its jobs.
 */
const JOBS_PAGE = 100;
/**
 * Maximum number of searches. A repeated search finds the jobs that have changed their state during the previous one.
 */
const MAX_SEARCHES = 10;
const PARTS: Readonly<Record<KeyJobState, readonly string[]>> = { ...STATE_KEYS, parked: ["line"] };

/** At most `limit` entries are listed. */
interface ListOptions {
  readonly limit?: number | undefined;
}

interface JobsOptions extends ListOptions {
  readonly state?: KeyJobState | "all" | undefined;
}

export interface OverviewOptions {
  readonly keys?: number | undefined;
  readonly read?: readonly string[] | undefined;
}

interface CancelOptions {
  readonly remove?: boolean | undefined;
}

interface KeyOperatorsParts {
  readonly queue: string;
  readonly lane: OperatorLane;
  readonly clock: Clock;
  readonly emitEvent: EmitEvent;
}

/** The methods are described at the methods of `QueueOperators` with similar names. */
export class KeyOperators {
  readonly #parts: KeyOperatorsParts;

  constructor(parts: KeyOperatorsParts) {
    this.#parts = parts;
  }

  async list(options: ListOptions): Promise<BusyKey[]> {
    const { limit } = LIST.resolve(options);
    return await this.#collect(limit);
  }

  /** Lists at most `limit` keys, from the first page on, if it is known. */
  async #collect(limit: number, first?: ReturnType<typeof parseList>): Promise<BusyKey[]> {
    const found = new Map<string, BusyKey>();
    for await (const page of this.#pages(first)) {
      for (const key of page) found.set(key.key, key);
      if (found.size >= limit) break;
    }
    return [...found.values()].slice(0, limit);
  }

  async jobsOf(key: string, options: JobsOptions): Promise<KeyJobs> {
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

  async remove(key: string, options: Pick<JobsOptions, "state">): Promise<number> {
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

  async explain(jobId: string): Promise<Explanation | undefined> {
    JOB_ID.of("jobId", jobId);
    return explanationOf(jobId, parseExplain(await this.#parts.lane.operate("explain", jobId)));
  }

  async read(key: string, options: ListOptions): Promise<KeyReading> {
    KEY.of("key", key);
    const { limit } = READ.resolve(options);
    return keyReadingOf(parseReading(await this.#parts.lane.operate("reading", key, limit)));
  }

  async overview(options: OverviewOptions): Promise<QueueOverview> {
    const { keys: limit, read } = OVERVIEW.resolve(options);
    const count = limit === 0 ? 0 : LIST_PAGE;
    const raw = await this.#parts.lane.operate("overview", count, LINE_LIMIT, ...read);
    const { reports, page, readings, ...facts } = parseOverview(raw);
    const keys = limit === 0 ? [] : await this.#collect(limit, page);
    return { ...facts, workers: reportsOf(reports, facts.atMs), keys, readings: readings.map(keyReadingOf) };
  }

  async pause(
    key: string,
    given: string | undefined,
    options: { readonly for?: number | undefined },
  ): Promise<boolean> {
    KEY.of("key", key);
    const reason = PAUSE_REASON.of("reason", given);
    const { for: ms = "" } = PAUSE.resolve(options);
    const { isNew, until } = parsePause(await this.#parts.lane.operate("pause", key, reason, ms));
    const end = until === undefined ? {} : { untilMs: until };
    this.#parts.emitEvent("keyPaused", () => ({ key, reason, ...end }));
    return isNew;
  }

  async resume(key: string): Promise<boolean> {
    KEY.of("key", key);
    const wasPaused = (await this.#parts.lane.operate("resume", key)) === 1;
    this.#parts.emitEvent("keyResumed", () => ({ key }));
    return wasPaused;
  }

  async counts(): Promise<JobCounts> {
    let [parked, busyKeys, pausedKeys, waitingKeys, limitedKeys, longestLine] = [0, 0, 0, 0, 0, 0];
    const now = this.#parts.clock.wallMs();
    let [oldest, oldestWaiting] = [now, now];
    const counted = new Set<string>();
    for await (const page of this.#pages()) {
      for (const key of page) {
        if (counted.has(key.key)) continue;
        counted.add(key.key);
        parked += key.parked;
        longestLine = Math.max(longestLine, key.parked);
        if (key.holder !== undefined) busyKeys += 1;
        if (key.paused !== undefined) pausedKeys += 1;
        if (key.parked > 0) waitingKeys += 1;
        if (key.limitedUntilMs !== undefined) limitedKeys += 1;
        oldestWaiting = Math.min(oldestWaiting, key.waitingSinceMs ?? now);
        oldest = Math.min(oldest, key.sinceMs ?? now);
      }
    }
    const { runnable, active } = parseLengths(await this.#parts.lane.operate("lengths"));
    const oldestWaitingMs = now - oldestWaiting;
    const runnableKeys = await this.#runnableKeys();
    const keys = { runnableKeys, busyKeys, pausedKeys, waitingKeys, limitedKeys };
    return { runnable, active, parked, ...keys, oldestWaitingMs, longestLine, longestHeldMs: now - oldest };
  }

  /** Looks at the front of the queue until enough jobs that could start are found. */
  async #runnableKeys(): Promise<number> {
    const found = new RunnableKeys();
    let left = MOST_LOOKED;
    for (const part of ["wait", "prioritized", "ring", "due"]) {
      for (let from = 0; left > 0 && found.count < MOST_RUNNABLE; ) {
        const size = Math.min(RUNNABLE_PAGE, left);
        const page = parseRunnable(await this.#parts.lane.operate("runnable", part, from, size));
        found.add(page);
        from += page.looked;
        left -= page.looked;
        // A page of large jobs ends early.
        if (page.looked === 0) break;
      }
    }
    return Math.min(found.count, MOST_RUNNABLE);
  }

  /** Reads all keys, page by page. A key may come twice if the number of keys shrinks in the meantime. */
  async *#pages(first?: ReturnType<typeof parseList>): AsyncGenerator<readonly BusyKey[]> {
    let page = first ?? (await this.#page("0"));
    yield page.keys.map(busyKeyOf);
    while (page.cursor !== "0") {
      page = await this.#page(page.cursor);
      yield page.keys.map(busyKeyOf);
    }
  }

  async #page(cursor: string): Promise<ReturnType<typeof parseList>> {
    return parseList(await this.#parts.lane.operate("list", cursor, LIST_PAGE));
  }
}
