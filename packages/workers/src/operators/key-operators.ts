/** The operators' commands for the keys of a queue, which the lane runs. */
import type { Clock } from "@x/redlock-core";
import type { EmitEvent } from "../events.ts";
import { KEY } from "../rules/entity-key.ts";
import {
  parseLengths,
  parseList,
  parseOverview,
  parsePause,
  parseReading,
  parseRunnable,
} from "../scripts/operator-replies.ts";
import type { OperatorLane } from "./operator-lane.ts";
import type { ListOptions, OverviewOptions, PauseOptions } from "./queue-operators.ts";
import { type BusyKey, busyKeyOf, type JobCounts, type KeyReading, keyReadingOf } from "./rules/key-report.ts";
import { LINE_LIMIT, LIST, OVERVIEW, PAUSE, PAUSE_REASON, READ } from "./rules/operator-arguments.ts";
import type { QueueOverview } from "./rules/queue-overview.ts";
import { RunnableKeys } from "./rules/runnable-keys.ts";
import { reportsOf } from "./rules/worker-report.ts";

const LIST_PAGE = 500;
/** Bounds of the search for keys that could start: a page takes Redis a few ms. */
const [RUNNABLE_PAGE, MOST_LOOKED, MOST_RUNNABLE] = [500, 10_000, 1_000];

interface KeyOperatorsParts {
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

  async pause(key: string, given: string | undefined, options: PauseOptions): Promise<boolean> {
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
