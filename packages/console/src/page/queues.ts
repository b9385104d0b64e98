/**
 * The keys of the queues. Listing and counting all keys of a queue costs two commands per 500 keys. So a queue with
 * more keys is listed less often: on average a queue costs two commands per look.
 */
import type { Clock } from "@x/redlock-core";
import type { BusyKey, JobCounts } from "@x/workers";
import type { PartitionedWorker } from "@x/workers/partitions";
import { Searches, type SearchTurns } from "./rules/searches.ts";
import { type KeyRow, type KeysView, PAGE_ROWS, type QueueView, type Wanted } from "./state.ts";
import { Watched } from "./watched.ts";

/** How many keys `listKeys` requests with one command. */
const KEYS_A_COMMAND = 500;
/** The most keys that are counted. */
const MOST_KEYS = 100_000;

const NONE: readonly BusyKey[] = [];

interface Listed {
  readonly keys: readonly BusyKey[];
  readonly busyKeys: number;
  readonly pausedKeys: number;
  readonly parked: number;
  readonly limited: number;
  readonly active: number;
  readonly runnable: number;
}

/** The methods that the page needs, of an `ExclusiveWorker` or of a worker for all partitions. */
export type Asked = Pick<
  PartitionedWorker,
  "name" | "counts" | "listKeys" | "jobsOf" | "explain" | "pauseKey" | "resumeKey" | "removeKeyPolicy"
>;

interface Watching {
  readonly worker: Asked;
  readonly watched: Watched<Listed>;
  readonly searches: Searches<BusyKey>;
  /** Looks to skip before the queue is listed again. */
  pause: number;
}

export class Queues {
  readonly #watching: readonly Watching[];

  constructor(clock: Clock, workers: readonly Asked[], turns: SearchTurns) {
    for (const [at, { name }] of workers.entries()) {
      if (workers.findIndex((other) => other.name === name) < at)
        throw new RangeError(`queues must have distinct names, got ${JSON.stringify(name)} twice`);
    }
    this.#watching = workers.map((worker) => {
      const watched = new Watched(clock, async () =>
        listed(await worker.listKeys({ limit: MOST_KEYS }), await worker.counts(), clock.wallMs()),
      );
      return { worker, watched, searches: new Searches<BusyKey>(turns, ({ key }) => key), pause: 0 };
    });
  }

  get(name: string): Asked | undefined {
    return this.#watching.find(({ worker }) => worker.name === name)?.worker;
  }

  /** Returns why the last look at a queue failed. Undefined if the look succeeded. */
  errorOf(name: string): string | undefined {
    return this.#watching.find(({ worker }) => worker.name === name)?.watched.section.error;
  }

  get views(): readonly QueueView[] {
    return this.#watching.map(({ worker, watched }) => {
      const { value, error, at } = watched.section;
      return {
        name: worker.name,
        isPaused: false,
        running: value?.active ?? 0,
        stalled: 0,
        runnable: value?.runnable ?? 0,
        stopped: 0,
        halted: [],
        paused: [],
        oldest: undefined,
        workers: undefined,
        goneWorkers: undefined,
        slots: undefined,
        busySlots: undefined,
        reportedAt: undefined,
        differences: [],
        series: undefined,
        limited: value?.limited ?? 0,
        busyKeys: value?.busyKeys ?? 0,
        pausedKeys: value?.pausedKeys ?? 0,
        parked: value?.parked ?? 0,
        longestLine: value?.keys[0]?.parked ?? 0,
        error,
        at,
      };
    });
  }

  /** Whether the wanted queue's keys that contain `text` are known, or can still be searched. */
  canFind(queue: string, text: string): boolean {
    return this.#wanted(queue)?.searches.find(text) !== undefined || this.#watching.length === 0;
  }

  /** Returns the wanted page of the wanted queue's keys. An unknown queue selects the first queue. */
  keys({ queue, keys: page, findKey }: Wanted): KeysView | undefined {
    const wanted = this.#wanted(queue);
    if (wanted === undefined) return undefined;
    const found = wanted.searches.find(findKey) ?? [];
    const keys = found.slice(page * PAGE_ROWS, (page + 1) * PAGE_ROWS).map(rowOf);
    const total = wanted.watched.section.value?.keys.length ?? 0;
    return { queue: wanted.worker.name, keys, total, found: found.length };
  }

  #wanted(queue: string): Watching | undefined {
    return this.#watching.find(({ worker }) => worker.name === queue) ?? this.#watching[0];
  }

  /** Looks at the queues for the browsers with these pages. */
  async look(wanted: readonly Wanted[]): Promise<void> {
    await Promise.all(
      this.#watching.map(async (each) => {
        if (each.pause > 0) each.pause -= 1;
        else {
          await each.watched.look();
          each.pause = Math.floor((each.watched.section.value?.keys.length ?? 0) / KEYS_A_COMMAND);
        }
        const texts = wanted.filter(({ queue }) => this.#wanted(queue) === each).map(({ findKey }) => findKey);
        each.searches.renew(each.watched.section.value?.keys ?? NONE, new Set(texts));
      }),
    );
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
function listed(
  keys: readonly BusyKey[],
  { active, runnable }: Pick<JobCounts, "active" | "runnable">,
  now: number,
): Listed {
  const sumOf = (some: readonly BusyKey[]): number => some.reduce((sum, { parked }) => sum + parked, 0);
  return {
    keys: keys.toSorted(
      (a, b) => b.parked - a.parked || (a.sinceMs ?? 0) - (b.sinceMs ?? 0) || (a.key < b.key ? -1 : 1),
    ),
    busyKeys: keys.filter(({ holder }) => holder !== undefined).length,
    pausedKeys: keys.filter(({ paused }) => paused !== undefined).length,
    parked: sumOf(keys),
    limited: sumOf(keys.filter(({ limitedUntilMs = 0 }) => limitedUntilMs > now)),
    active,
    runnable,
  };
}
