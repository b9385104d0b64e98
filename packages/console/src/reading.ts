/** What commands read, apart from how it is shown. Each is one look; whoever shows it live looks again. */
import type { LeaderInfo } from "@x/leader";
import type { LeaderScheduler, ScheduleInfo } from "@x/leader/scheduler";
import type { BusyKey, JobCounts } from "@x/workers";
import type { PartitionedWorker } from "@x/workers/partitions";

/** The schedules of an election, as its lock nodes know them. */
interface SchedulesReading {
  /** Who runs them; null: nobody. */
  readonly leader: LeaderInfo | null;
  /** The schedules, in the order of their names. */
  readonly schedules: readonly ScheduleInfo[];
}

/** The keys of a queue. */
interface KeysReading {
  readonly counts: JobCounts;
  /** The longest line first. */
  readonly keys: readonly BusyKey[];
}

/** Busy keys of which the longest lines are looked for. */
const MOST_KEYS = 100_000;

/**
 * Reads the schedules of a scheduler that need not have any itself, and the last `history` ticks of each.
 * @throws QuorumUnreachableError
 */
export async function readSchedules(scheduler: LeaderScheduler, history: number): Promise<SchedulesReading> {
  const infos = await scheduler.list({ all: true, history });
  return {
    leader: infos[0]?.owner ?? null,
    schedules: infos.toSorted((one, other) => (one.name < other.name ? -1 : Number(one.name > other.name))),
  };
}

/** Reads the `limit` keys with the longest lines. It costs O(busy keys). */
export async function readKeys(
  worker: Pick<PartitionedWorker, "counts" | "listKeys">,
  limit: number,
): Promise<KeysReading> {
  const [counts, keys] = await Promise.all([worker.counts(), worker.listKeys({ limit: MOST_KEYS })]);
  return { counts, keys: keys.toSorted((one, other) => other.parked - one.parked).slice(0, limit) };
}
