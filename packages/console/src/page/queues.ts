/**
 * The keys of the queues. All keys of a queue are listed in one go, which costs a command for 500 keys. So the more
 * there are, the rarer that is: on average one command a look and queue.
 */
import type { Clock } from "@x/redlock-core";
import type { BusyKey } from "@x/workers";
import type { PartitionedWorker } from "@x/workers/partitions";
import { type KeysView, PAGE_ROWS, type QueueView, type Wanted } from "./state.ts";
import { Watched } from "./watched.ts";

/** `listKeys` asks for so many at once. */
const KEYS_A_COMMAND = 500;
/** Keys beyond these are not counted. */
const MOST_KEYS = 100_000;

interface Listed {
  readonly keys: readonly BusyKey[];
  readonly busyKeys: number;
  readonly pausedKeys: number;
  readonly parked: number;
}

/** What is asked for the keys of a queue: an `ExclusiveWorker`, or one of all partitions. */
export type Asked = Pick<
  PartitionedWorker,
  "name" | "listKeys" | "jobsOf" | "explain" | "pauseKey" | "resumeKey" | "removeKeyPolicy"
>;

interface Watching {
  readonly worker: Asked;
  readonly watched: Watched<Listed>;
  /** The number of looks that are left out until the next. */
  pause: number;
}

export class Queues {
  readonly #watching: readonly Watching[];

  constructor(clock: Clock, workers: readonly Asked[]) {
    for (const [at, { name }] of workers.entries()) {
      if (workers.findIndex((other) => other.name === name) < at)
        throw new RangeError(`queues must have distinct names, got ${JSON.stringify(name)} twice`);
    }
    this.#watching = workers.map((worker) => {
      const watched = new Watched(clock, async () => listed(await worker.listKeys({ limit: MOST_KEYS })));
      return { worker, watched, pause: 0 };
    });
  }

  get(name: string): Asked | undefined {
    return this.#watching.find(({ worker }) => worker.name === name)?.worker;
  }

  /** Why the last look at a queue failed. */
  errorOf(name: string): string | undefined {
    return this.#watching.find(({ worker }) => worker.name === name)?.watched.section.error;
  }

  get views(): readonly QueueView[] {
    return this.#watching.map(({ worker, watched }) => {
      const { value, error, at } = watched.section;
      return {
        name: worker.name,
        busyKeys: value?.busyKeys ?? 0,
        pausedKeys: value?.pausedKeys ?? 0,
        parked: value?.parked ?? 0,
        longestLine: value?.keys[0]?.parked ?? 0,
        error,
        at,
      };
    });
  }

  /** The wanted page of the keys of the wanted queue, or of the first one. */
  keys({ queue, keys: page, findKey }: Wanted): KeysView | undefined {
    const { worker, watched } = this.#watching.find(({ worker }) => worker.name === queue) ?? this.#watching[0] ?? {};
    if (worker === undefined || watched === undefined) return undefined;
    const all = watched.section.value?.keys ?? [];
    const found = findKey === "" ? all : all.filter(({ key }) => key.includes(findKey));
    const keys = found.slice(page * PAGE_ROWS, (page + 1) * PAGE_ROWS);
    return { queue: worker.name, keys, total: all.length, found: found.length };
  }

  async look(): Promise<void> {
    await Promise.all(
      this.#watching.map(async (each) => {
        if (each.pause > 0) {
          each.pause -= 1;
          return;
        }
        await each.watched.look();
        each.pause = Math.floor((each.watched.section.value?.keys.length ?? 0) / KEYS_A_COMMAND);
      }),
    );
  }
}

/** The longest lines first; of these, the jobs that were started first. */
function listed(keys: readonly BusyKey[]): Listed {
  return {
    keys: keys.toSorted(
      (a, b) => b.parked - a.parked || (a.sinceMs ?? 0) - (b.sinceMs ?? 0) || (a.key < b.key ? -1 : 1),
    ),
    busyKeys: keys.filter(({ holder }) => holder !== undefined).length,
    pausedKeys: keys.filter(({ paused }) => paused !== undefined).length,
    parked: keys.reduce((sum, { parked }) => sum + parked, 0),
  };
}
