/** Where the queue says its jobs are, and who the lane says has which key. A step is followed by one look, in one round trip. */
import type { Redis } from "ioredis";
import { LOCK_PREFIX, PREFIX } from "./names.ts";

export type Place = (typeof LISTS)[number] | (typeof SETS)[number] | "delayed";

const LISTS = ["wait", "active"] as const;
const SETS = ["prioritized", "waiting-children"] as const;

/** BullMQ's scores in `delayed`. */
const SCORE_PER_MS = 4_096;

export interface Snapshot {
  readonly places: ReadonlyMap<string, Place>;
  /** Jobs that are in two places. */
  readonly doubles: readonly string[];
  /** When the jobs in `delayed` leave it by themselves. */
  readonly dues: ReadonlyMap<string, number>;
  readonly holders: Holders;
  /** The tokens in the locks that were asked for. */
  readonly locks: ReadonlyMap<string, string | null>;
  /** Starts that BullMQ's limiter has counted. */
  readonly counted: number;
}

/** The jobs that have a slot of each key, and the marks that stand in its first one. */
export type Holders = ReadonlyMap<string, ReadonlySet<string>>;

/** `locks`: the names of the locks of keys. */
export async function takeSnapshot(
  redis: Redis,
  keys: readonly string[],
  locks: readonly string[] = [],
): Promise<Snapshot> {
  const pipeline = redis.pipeline();
  for (const list of LISTS) pipeline.lrange(PREFIX + list, 0, -1);
  for (const set of SETS) pipeline.zrange(PREFIX + set, "0", "-1");
  pipeline.zrange(`${PREFIX}delayed`, "0", "-1", "WITHSCORES");
  pipeline.mget(`${PREFIX}limiter`, ...locks.map((name) => LOCK_PREFIX + name));
  pipeline.hgetall(`${PREFIX}lane:holders`);
  for (const key of keys) pipeline.hvals(`${PREFIX}lane:slots=${key}`);
  const replies = ((await pipeline.exec()) ?? []).map(([error, reply]) => {
    if (error !== null) throw error;
    return reply;
  });
  const places = new Map<string, Place>();
  const doubles: string[] = [];
  const put = (id: string, place: Place): void => {
    if (places.has(id)) doubles.push(id);
    places.set(id, place);
  };
  for (const [index, place] of [...LISTS, ...SETS].entries())
    for (const id of replies[index] as string[]) put(id, place);
  const [scores, [counted, ...tokens], firsts, ...others] = replies.slice(LISTS.length + SETS.length) as [
    string[],
    (string | null)[],
    Record<string, string>,
    ...string[][],
  ];
  const holders = new Map(Object.entries(firsts).map(([key, id]) => [key, new Set([id])]));
  for (const [index, key] of keys.entries()) {
    for (const id of others[index] ?? []) holders.set(key, (holders.get(key) ?? new Set()).add(id));
  }
  const dues = new Map<string, number>();
  for (let i = 0; i < scores.length; i += 2) {
    put(scores[i] ?? "", "delayed");
    dues.set(scores[i] ?? "", Math.floor(Number(scores[i + 1]) / SCORE_PER_MS));
  }
  const held = new Map(locks.map((name, index) => [name, tokens[index] ?? null]));
  return { places, doubles, dues, holders, locks: held, counted: Number(counted) };
}

/** The lane's own keys that are left, but for its counter, and for the starts of keys, which expire. */
export async function laneKeys(redis: Redis): Promise<string[]> {
  const keys = await redis.keys(`${PREFIX}lane:*`);
  return keys.filter((key) => !/lane:(seq$|starts=)/.test(key)).toSorted();
}
