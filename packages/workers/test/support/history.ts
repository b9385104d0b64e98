/** The recorded history of worker processes, and a checker for broken promises. */
import type { Redis } from "ioredis";

/** The place at which a worker process kills itself. */
export type CrashPoint =
  /** BullMQ's lock and the lane's key are acquired. */
  | "fetched"
  /** The key's lock is acquired, and the processor is not called yet. */
  | "locked"
  | "processing"
  /** The key's lock is released, and the job is not finished yet. */
  | "released"
  | "before-finish"
  | "finish-sent"
  /** The job is finished, and the next job is fetched and not judged yet. */
  | "finished"
  /** A fetch that is under way has parked jobs. */
  | "parked"
  /** Plain code holds the key's lock, and the job is not yet moved back. */
  | "before-delay"
  | "yielded";

export interface Task {
  readonly queuePath: string;
  readonly historyPath: string;
  readonly options: Readonly<Record<string, unknown>>;
  readonly keyFunction?: boolean;
  readonly crashAt?: CrashPoint;
  readonly holdsUntilAborted?: boolean;
}

export interface Event {
  readonly what: "start" | "end";
  readonly key: string;
  readonly i: number;
  readonly jobId: string;
  readonly pid: number;
  readonly fencingToken: number;
  /** The machine's monotonic clock, the same for all processes. */
  readonly ns: string;
}

export async function readHistory(redis: Redis): Promise<Event[]> {
  return (await redis.lrange("history", 0, -1)).map((text) => JSON.parse(text) as Event);
}

export interface Verdict {
  /** Pairs of runs of a key at the same time, in processes that were alive. */
  readonly overlaps: readonly string[];
  /** First starts of a key's jobs that were not in the order of `i`. */
  readonly inversions: readonly string[];
  /** Starts whose fencing token was not greater than the token of an earlier start of the key. */
  readonly tokenRegressions: readonly string[];
  readonly started: number;
}

/**
 * Judges a history. `deaths` contains the time at which each killed process was dead, by the same clock. The runs of
 * the process ended at this time at the latest.
 */
export function judge(events: readonly Event[], deaths: ReadonlyMap<number, bigint> = new Map()): Verdict {
  const overlaps: string[] = [];
  const inversions: string[] = [];
  const tokenRegressions: string[] = [];
  const ends = new Map(
    events
      .filter(({ what }) => what === "end")
      .map((event) => [`${event.jobId} ${event.fencingToken}`, BigInt(event.ns)]),
  );
  const byKey = new Map<string, Event[]>();
  for (const event of events) {
    if (event.what === "start") byKey.set(event.key, [...(byKey.get(event.key) ?? []), event]);
  }
  const seen = new Set<string>();
  for (const [key, starts] of byKey) {
    starts.sort((a, b) => Number(BigInt(a.ns) - BigInt(b.ns)));
    let lastFirst = -1;
    for (const [index, start] of starts.entries()) {
      const next = starts[index + 1];
      const endNs = ends.get(`${start.jobId} ${start.fencingToken}`) ?? deaths.get(start.pid);
      if (next !== undefined && (endNs === undefined || endNs > BigInt(next.ns))) {
        overlaps.push(`${key}: job ${start.jobId} of ${start.pid} and job ${next.jobId} of ${next.pid}`);
      }
      if (next !== undefined && next.fencingToken <= start.fencingToken) {
        tokenRegressions.push(`${key}: ${start.fencingToken} before ${next.fencingToken}`);
      }
      if (seen.has(start.jobId)) continue;
      seen.add(start.jobId);
      if (start.i < lastFirst) inversions.push(`${key}: ${lastFirst} before ${start.i}`);
      lastFirst = Math.max(lastFirst, start.i);
    }
  }
  return { overlaps, inversions, tokenRegressions, started: seen.size };
}
