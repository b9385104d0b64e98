/**
 * Reads the data for commands, separately from displaying the data. Each function reads once; a live view calls the
 * function again.
 */
import type { LeaderInfo } from "@x/leader";
import type { LeaderScheduler, ScheduleInfo } from "@x/leader/scheduler";
import type { BusyKey, JobCounts, QueueOperators, QueueOverview } from "@x/workers";

/** The schedules of an election, as stored on its lock nodes. */
interface SchedulesReading {
  /** The leader, which runs the schedules. Null if the election has no leader. */
  readonly leader: LeaderInfo | null;
  /** The schedules, sorted by name. */
  readonly schedules: readonly ScheduleInfo[];
}

/** The keys of a queue. */
interface KeysReading {
  readonly counts: JobCounts;
  readonly overview: QueueOverview;
  /** The keys, the longest line first. */
  readonly keys: readonly BusyKey[];
}

/** How many busy keys are searched for the longest lines. */
const MOST_KEYS = 100_000;

/**
 * Reads all schedules of an election, and the last `history` ticks of each schedule. `scheduler` needs no schedules of
 * its own.
 * @throws QuorumUnreachableError
 */
export async function readSchedules(scheduler: LeaderScheduler, history: number): Promise<SchedulesReading> {
  const infos = await scheduler.list({ history });
  return {
    leader: infos[0]?.owner ?? null,
    schedules: infos.toSorted((one, other) => (one.name < other.name ? -1 : Number(one.name > other.name))),
  };
}

/** Reads the `limit` keys with the longest lines. Costs O(busy keys). */
export async function readKeys(
  queue: Pick<QueueOperators, "counts" | "listKeys" | "overview">,
  limit: number,
): Promise<KeysReading> {
  const [counts, overview, keys] = await Promise.all([
    queue.counts(),
    queue.overview(),
    queue.listKeys({ limit: MOST_KEYS }),
  ]);
  return { counts, overview, keys: keys.toSorted((one, other) => other.parked - one.parked).slice(0, limit) };
}
