/**
 * The keys of the queues. One command reads a queue with its first 500 keys and with opened keys, and each further 500
 * keys cost another command. So a queue with more keys is listed less often: on average a queue costs one command per
 * look.
 */
import type { Clock } from "@x/redlock-core";
import type { BusyKey, ExclusiveQueue, KeyReading, QueueOperators, QueueOverview } from "@x/workers";
import type { PartitionedQueue } from "@x/workers/partitions";
import { differencesOf, type QueueReports } from "./rules/fleet.ts";
import { filterOf, groupsOf, type KeyGroups } from "./rules/key-groups.ts";
import { Searches, type SearchTurns } from "./rules/searches.ts";
import { Series } from "./rules/series.ts";
import {
  type BrowserQuery,
  type KeyRow,
  type KeysView,
  PAGE_ROWS,
  type PageSection,
  type QueueView,
  type StoppedKey,
} from "./state.ts";
import { Watched } from "./watched.ts";

/** How many keys `overview` requests with one command. */
const KEYS_A_COMMAND = 500;
/** The most keys that are counted. */
const MOST_KEYS = 100_000;

/** How long the reading of a key stays that no browser wants any more. */
const KEPT_MS = 5_000;
/** The most keys that are opened at the same time, over all browsers. */
const MOST_OPENED = 20;
/** The most keys that a queue's row names as halted, and as paused. */
const MOST_STOPPED = 10;
/** The most opened keys that `overview` reads as well. Each of the others costs a command. */
const MOST_SHARED = 5;
const NONE: readonly BusyKey[] = [];

interface Listed extends QueueOverview {
  readonly groups: KeyGroups;
  readonly busyKeys: number;
  readonly pausedKeys: number;
  readonly haltedKeys: number;
  readonly halted: readonly StoppedKey[];
  readonly paused: readonly StoppedKey[];
  readonly oldest: QueueView["oldest"];
  readonly parked: number;
  readonly limited: number;
  readonly stopped: number;
}

type AskedMethod = "overview" | "readKey" | "pauseKey" | "resumeKey" | "setKeyPolicy" | "removeKeyPolicy";

/**
 * The methods that the page needs. The methods for jobs are called on an `ExclusiveQueue`, which a queue in partitions
 * returns for each key.
 */
export type AskedQueue = Pick<QueueOperators, AskedMethod> & { readonly name: string } & (
    | Pick<ExclusiveQueue, "cancel" | "getJob" | "removeJobs">
    | Pick<PartitionedQueue, "queueOf">
  );

/** The reading of a key, and when a browser last wanted the key, by the monotonic clock. */
interface Opened {
  readonly watched: Watched<KeyReading>;
  readonly wantedMs: number;
}

interface WatchedQueue {
  readonly queue: AskedQueue;
  readonly watched: Watched<Listed>;
  readonly searches: Searches<BusyKey>;
  readonly series: Series;
  /** The results of filters, by the searched keys and the name of the group. */
  readonly filtered: WeakMap<readonly BusyKey[], Map<string, readonly BusyKey[]>>;
  /** Keys that browsers have opened. */
  readonly opened: Map<string, Opened>;
  /** The opened keys that the next `overview` reads as well. */
  shared: readonly string[];
  /** Looks to skip before the queue is listed again. */
  pause: number;
}

export class Queues {
  readonly #clock: Clock;
  readonly #watching: readonly WatchedQueue[];

  constructor(clock: Clock, queues: readonly AskedQueue[], turns: SearchTurns) {
    for (const [at, { name }] of queues.entries()) {
      if (queues.findIndex((other) => other.name === name) < at)
        throw new RangeError(`queues must have distinct names, got ${JSON.stringify(name)} twice`);
    }
    this.#clock = clock;
    this.#watching = queues.map((queue) => {
      const series = new Series();
      const watched = new Watched(clock, async () => {
        const overview = await queue.overview({ keys: MOST_KEYS, read: each.shared });
        for (const reading of overview.readings) each.opened.get(reading.key)?.watched.take(reading);
        const found = listed(overview);
        series.add(clock.wallMs(), { ...found, counts: countsOf(overview) });
        return found;
      });
      const searches = new Searches<BusyKey>(turns, ({ key }) => key);
      const filtered: WatchedQueue["filtered"] = new WeakMap();
      const each: WatchedQueue = {
        queue,
        watched,
        searches,
        series,
        filtered,
        opened: new Map(),
        shared: [],
        pause: 0,
      };
      return each;
    });
  }

  get(name: string): AskedQueue | undefined {
    return this.#watching.find(({ queue }) => queue.name === name)?.queue;
  }

  /** Returns why the last look at a queue failed. Undefined if the look succeeded. */
  errorOf(name: string): string | undefined {
    return this.#watching.find(({ queue }) => queue.name === name)?.watched.section.error;
  }

  get views(): readonly QueueView[] {
    return this.#watching.map(({ queue, watched, series }) => {
      const { value, error, at } = watched.section;
      const workers = value?.workers ?? [];
      const reporting = workers.filter(({ isGone }) => !isGone);
      return {
        name: queue.name,
        isPaused: value?.isPaused ?? false,
        running: value === undefined ? 0 : value.active - value.stalled.length,
        stalled: value?.stalled.length ?? 0,
        runnable: value?.runnable ?? 0,
        parked: value?.parked ?? 0,
        limited: value?.limited ?? 0,
        stopped: value?.stopped ?? 0,
        busyKeys: value?.busyKeys ?? 0,
        pausedKeys: value?.pausedKeys ?? 0,
        haltedKeys: value?.haltedKeys ?? 0,
        halted: value?.halted ?? [],
        paused: value?.paused ?? [],
        oldest: value?.oldest,
        longestLine: value?.keys[0]?.parked ?? 0,
        workers: value === undefined ? undefined : reporting.length,
        goneWorkers: value === undefined ? undefined : workers.length - reporting.length,
        slots: sumOf(reporting.map(({ status }) => status?.slots)),
        busySlots: sumOf(reporting.map(({ status }) => status?.busy)),
        reportedAt: workers.length === 0 ? undefined : Math.max(...workers.map(({ reportedMs }) => reportedMs)),
        watched: value?.exclusion.mode === "watch" ? value.exclusion : undefined,
        differences: differencesOf(workers),
        series: series.view,
        error,
        at,
      };
    });
  }

  /** The reports of all queues that have been read. Undefined if none has. */
  get reports(): readonly QueueReports[] | undefined {
    const read = this.#watching.flatMap(({ queue, watched }) =>
      watched.section.value === undefined ? [] : { queue: queue.name, reports: watched.section.value.workers },
    );
    return read.length === 0 ? undefined : read;
  }

  /** Returns the reading of the wanted key. Undefined if no key is wanted. */
  key({ queue, key }: BrowserQuery): PageSection<KeyReading> | undefined {
    return key === "" ? undefined : this.#wanted(queue)?.opened.get(key)?.watched.section;
  }

  /** Whether the wanted queue's keys that contain `text` are known, or can still be searched. */
  canFind(queue: string, text: string): boolean {
    return this.#wanted(queue)?.searches.find(text) !== undefined || this.#watching.length === 0;
  }

  /** Returns the wanted page of the wanted queue's keys. An unknown queue selects the first queue. */
  keys({ queue, keys: page, findKey, keyGroup }: BrowserQuery): KeysView | undefined {
    const wanted = this.#wanted(queue);
    if (wanted === undefined) return undefined;
    const found = this.#filtered(wanted, wanted.searches.find(findKey) ?? NONE, keyGroup);
    const keys = found.slice(page * PAGE_ROWS, (page + 1) * PAGE_ROWS).map(rowOf);
    const { value } = wanted.watched.section;
    const groups = queue === wanted.queue.name ? value?.groups : undefined;
    return { queue: wanted.queue.name, keys, total: value?.keys.length ?? 0, found: found.length, groups };
  }

  /** Returns the keys of a group. Browsers with the same search and group share the result of a list. */
  #filtered({ watched, filtered }: WatchedQueue, found: readonly BusyKey[], group: string): readonly BusyKey[] {
    const filter = filterOf(group, watched.section.value?.atMs ?? 0);
    if (filter === undefined) return found;
    const known = filtered.get(found) ?? new Map<string, readonly BusyKey[]>();
    filtered.set(found, known);
    const keys = known.get(group) ?? found.filter(filter);
    known.set(group, keys);
    return keys;
  }

  #wanted(name: string): WatchedQueue | undefined {
    return this.#watching.find(({ queue }) => queue.name === name) ?? this.#watching[0];
  }

  /** Looks at the queues for the browsers with these pages. */
  async look(wanted: readonly BrowserQuery[]): Promise<void> {
    await Promise.all(
      this.#watching.map(async (each) => {
        const viewers = wanted.filter(({ queue }) => this.#wanted(queue) === each);
        const opened = this.#open(each, new Set(viewers.flatMap(({ key }) => (key === "" ? [] : key))));
        if (each.pause > 0) each.pause -= 1;
        else {
          // A key that cannot be read must not hide the queue, so its first reading has a command of its own.
          const known = [...opened].filter(([, { section }]) => section.value !== undefined && !section.error);
          each.shared = known.map(([key]) => key).slice(0, MOST_SHARED);
          await each.watched.look();
          each.pause = Math.floor((each.watched.section.value?.keys.length ?? 0) / KEYS_A_COMMAND);
          if (each.watched.section.error === undefined) for (const key of each.shared) opened.delete(key);
        }
        await Promise.all([...opened.values()].map((key) => key.look()));
        const texts = viewers.map(({ findKey }) => findKey);
        each.searches.renew(each.watched.section.value?.keys ?? NONE, new Set(texts));
      }),
    );
  }

  /** Reads the wanted key for an answer that no stream follows. Never rejects. */
  async readKey({ queue: name, key }: BrowserQuery): Promise<void> {
    const wanted = this.#wanted(name);
    if (key === "" || wanted === undefined || wanted.opened.has(key)) return;
    await Promise.all([...this.#open(wanted, new Set([key])).values()].map((watched) => watched.look()));
  }

  /** Returns at most `MOST_OPENED` readings of the wanted keys. Drops readings that nobody has wanted for a while. */
  #open({ queue, opened }: WatchedQueue, wanted: ReadonlySet<string>): Map<string, Watched<KeyReading>> {
    const nowMs = this.#clock.monotonicMs();
    for (const [key, { wantedMs }] of opened) if (!wanted.has(key) && nowMs - wantedMs > KEPT_MS) opened.delete(key);
    const found = new Map<string, Watched<KeyReading>>();
    for (const key of wanted) {
      const known = opened.get(key);
      if (known === undefined && opened.size >= MOST_OPENED) continue;
      const watched = known?.watched ?? new Watched(this.#clock, () => queue.readKey(key, { limit: PAGE_ROWS }));
      opened.set(key, { watched, wantedMs: nowMs });
      found.set(key, watched);
    }
    return found;
  }
}

function rowOf(key: BusyKey): KeyRow {
  const { paused, isStalled, holder, limitedUntilMs } = key;
  if (paused?.jobId !== undefined) return { ...key, state: "halted", why: `halted after job ${paused.jobId}` };
  if (paused !== undefined) return { ...key, state: "paused", why: `paused: ${paused.reason}` };
  if (isStalled) return { ...key, state: "stalled", why: `the worker of job ${holder} is gone` };
  if (holder !== undefined) return { ...key, state: "running", why: `job ${holder} runs` };
  if (limitedUntilMs !== undefined) return { ...key, state: "limited", why: "limited by its rate" };
  return { ...key, state: "waits", why: "no job has it" };
}

/**
 * Sorts the keys and computes the sums. The longest lines come first; lines of equal length by the start of the job
 * that holds the key.
 */
function listed(overview: QueueOverview): Listed {
  const { keys } = overview;
  const parkedOf = (some: readonly BusyKey[]): number => some.reduce((sum, { parked }) => sum + parked, 0);
  const sorted = keys.toSorted(
    (a, b) => b.parked - a.parked || (a.sinceMs ?? 0) - (b.sinceMs ?? 0) || (a.key < b.key ? -1 : 1),
  );
  const stopped = sorted.filter(({ paused }) => paused !== undefined);
  const [halted, paused] = [true, false].map((isHalted) =>
    stopped.filter((key) => (key.paused?.jobId !== undefined) === isHalted),
  ) as [BusyKey[], BusyKey[]];
  const isLimited = ({ limitedUntilMs = 0 }: BusyKey): boolean => limitedUntilMs > overview.atMs;
  return {
    ...overview,
    keys: sorted,
    groups: groupsOf(keys, overview.atMs),
    busyKeys: keys.filter(({ holder }) => holder !== undefined).length,
    pausedKeys: stopped.length,
    haltedKeys: halted.length,
    halted: halted.slice(0, MOST_STOPPED).map(stoppedKey),
    paused: paused.slice(0, MOST_STOPPED).map(stoppedKey),
    oldest: oldestOf(sorted.filter((key) => key.paused === undefined && !isLimited(key))),
    parked: parkedOf(keys),
    limited: parkedOf(sorted.filter(isLimited)),
    stopped: parkedOf(stopped),
  };
}

function stoppedKey({ key, paused, parked }: BusyKey): StoppedKey {
  const { jobId, reason = "", sinceMs = 0, untilMs } = paused ?? {};
  return { key, jobId, reason, since: sinceMs, until: untilMs, parked };
}

function oldestOf(keys: readonly BusyKey[]): QueueView["oldest"] {
  let oldest: QueueView["oldest"];
  for (const { key, waitingSinceMs: since } of keys)
    if (since !== undefined && since < (oldest?.since ?? Number.POSITIVE_INFINITY)) oldest = { key, since };
  return oldest;
}

/** Returns the counts of each process. A process may have several workers of one queue. */
function countsOf({
  workers,
}: QueueOverview): ReadonlyMap<string, { readonly completed: number; readonly failed: number }> {
  const counts = new Map<string, { readonly completed: number; readonly failed: number }>();
  for (const { setup, status } of workers) {
    if (status === undefined) continue;
    const { completed = 0, failed = 0 } = counts.get(setup.at) ?? {};
    counts.set(setup.at, { completed: completed + status.completed, failed: failed + status.failed });
  }
  return counts;
}

/** Returns the sum of what is known. Undefined if nothing is. */
function sumOf(counts: readonly (number | undefined)[]): number | undefined {
  const known = counts.filter((count) => count !== undefined);
  return known.length === 0 ? undefined : known.reduce((sum, count) => sum + count, 0);
}
