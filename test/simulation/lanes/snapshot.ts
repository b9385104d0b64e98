/**
 * The state of the queue after a step: the states of the jobs, and the holders of the keys. One command reads
 * everything.
 */
import type { Redis } from "ioredis";
import { LOCK_PREFIX, PREFIX } from "./names.ts";

/** The name of the list or sorted set in which BullMQ keeps a job. */
export type BullState = (typeof LISTS)[number] | (typeof SETS)[number] | "delayed";

const LISTS = ["wait", "active"] as const;
const SETS = ["prioritized", "waiting-children"] as const;

/** Factor of BullMQ's scores in `delayed`. */
const SCORE_PER_MS = 4_096;

export interface Snapshot {
  readonly states: ReadonlyMap<string, BullState>;
  /** Jobs that are in two states. */
  readonly doubles: readonly string[];
  /** When each job in `delayed` is due. */
  readonly dues: ReadonlyMap<string, number>;
  readonly holders: HoldersByKey;
  /** The tokens in the requested locks, by lock name. */
  readonly locks: ReadonlyMap<string, string | null>;
  /** Starts that BullMQ's limiter has counted. */
  readonly counted: number;
  /** The keys that wait for a turn. */
  readonly ring: readonly string[];
}

/** For each key, the jobs that have a slot, and the mark in its first slot. */
export type HoldersByKey = ReadonlyMap<string, ReadonlySet<string>>;

/**
 * One script, because a pipeline of a dozen commands costs the client ten times as much. ARGV: the two prefixes, the
 * number of keys, the keys, the locks.
 */
const LOOK = `
  local prefix, count, call = ARGV[1], tonumber(ARGV[3]), redis.call
  local slots, names = {}, { prefix .. 'limiter' }
  -- BullMQ 5 renames the list of a paused queue.
  local waiting = call('EXISTS', prefix .. 'paused') == 1 and 'paused' or 'wait'
  for i = 1, count do slots[i] = call('HVALS', prefix .. 'lane:slots=' .. ARGV[3 + i]) end
  for i = 4 + count, #ARGV do names[#names + 1] = ARGV[2] .. ARGV[i] end
  return {
    ${[...LISTS.map((list) => `call('LRANGE', prefix .. ${list === "wait" ? "waiting" : `'${list}'`}, 0, -1)`), ...SETS.map((set) => `call('ZRANGE', prefix .. '${set}', 0, -1)`)].join(", ")},
    call('ZRANGE', prefix .. 'delayed', 0, -1, 'WITHSCORES'), call('MGET', unpack(names)),
    call('HGETALL', prefix .. 'lane:holders'), slots, call('ZRANGE', prefix .. 'lane:ring', 0, -1)
  }`;

/** Reads the state. `locks` are names of locks of keys. */
export async function takeSnapshot(
  redis: Redis,
  keys: readonly string[],
  locks: readonly string[] = [],
): Promise<Snapshot> {
  const replies = (await redis.eval(LOOK, 0, PREFIX, LOCK_PREFIX, keys.length, ...keys, ...locks)) as unknown[];
  const states = new Map<string, BullState>();
  const doubles: string[] = [];
  const put = (id: string, state: BullState): void => {
    if (states.has(id)) doubles.push(id);
    states.set(id, state);
  };
  for (const [index, state] of [...LISTS, ...SETS].entries())
    for (const id of replies[index] as string[]) put(id, state);
  const [scores, [counted, ...tokens], firsts, others, ring] = replies.slice(LISTS.length + SETS.length) as [
    string[],
    (string | null)[],
    string[],
    string[][],
    string[],
  ];
  const holders = new Map<string, Set<string>>();
  for (let i = 0; i < firsts.length; i += 2) holders.set(firsts[i] ?? "", new Set([firsts[i + 1] ?? ""]));
  for (const [index, key] of keys.entries()) {
    for (const id of others[index] ?? []) holders.set(key, (holders.get(key) ?? new Set()).add(id));
  }
  const dues = new Map<string, number>();
  for (let i = 0; i < scores.length; i += 2) {
    put(scores[i] ?? "", "delayed");
    dues.set(scores[i] ?? "", Math.floor(Number(scores[i + 1]) / SCORE_PER_MS));
  }
  const held = new Map(locks.map((name, index) => [name, tokens[index] ?? null]));
  return { states, doubles, dues, holders, locks: held, counted: Number(counted), ring };
}

/**
 * Returns the lane's remaining keys, except its counter, what it has counted while the queue was watched, and the starts
 * of keys, which expire.
 */
export async function laneKeys(redis: Redis): Promise<string[]> {
  const keys = await redis.keys(`${PREFIX}lane:*`);
  return keys.filter((key) => !/lane:(seq$|watched$|early$|starts=)/.test(key)).toSorted();
}
