/**
 * The contents of a small Redis as a value: it is read after each step, and written back before the next one. The
 * text of a state contains only facts that decide the next steps, so that equal states are found.
 */
import type { Redis } from "ioredis";
import { NODE_KEYS } from "../../../packages/redlock-core/src/rules/keys.ts";
import { BULL, JOB } from "../../../packages/workers/src/scripts/rules/job-fields.ts";
import { LOCK_PREFIX, PREFIX } from "../../simulation/lanes/names.ts";

/** A Redis key, its type and its content. The content of a sorted set alternates members and scores. */
type Entry = readonly [key: string, type: string, content: readonly string[]];
export type Entries = readonly Entry[];

/** The stream of events, the marks that wake idle workers, and the interval of checks for stalled jobs. */
const LEFT_OUT = ["events", "marker", "stalled-check"].map((name) => PREFIX + name);

const READ = `
  local found = {}
  for _, key in ipairs(redis.call('KEYS', '*')) do
    local kind, content = redis.call('TYPE', key).ok, nil
    if kind == 'string' then content = {redis.call('GET', key)}
    elseif kind == 'hash' then content = redis.call('HGETALL', key)
    elseif kind == 'list' then content = redis.call('LRANGE', key, 0, -1)
    elseif kind == 'set' then content = redis.call('SMEMBERS', key)
    elseif kind == 'zset' then content = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end
    if content then found[#found + 1] = {key, kind, content} end
  end
  return cjson.encode(found)`;

const WRITE = `
  redis.call('FLUSHDB')
  local commands = {string = 'SET', hash = 'HSET', list = 'RPUSH', set = 'SADD'}
  for _, entry in ipairs(cjson.decode(ARGV[1])) do
    local key, kind, content = unpack(entry)
    if kind == 'zset' then
      for i = 1, #content, 2 do redis.call('ZADD', key, content[i + 1], content[i]) end
    else redis.call(commands[kind], key, unpack(content)) end
  end`;

/** Reads the whole Redis. */
export async function readEntries(redis: Redis): Promise<Entries> {
  const entries = JSON.parse((await redis.eval(READ, 0)) as string) as Entry[];
  return entries.filter(([key]) => !LEFT_OUT.includes(key)).toSorted(([a], [b]) => (a < b ? -1 : 1));
}

/** Replaces the content of Redis. Nothing expires afterwards: the search itself ends locks. */
export async function writeEntries(redis: Redis, entries: Entries): Promise<void> {
  await redis.eval(WRITE, 0, JSON.stringify(entries));
}

/** Factor of BullMQ's scores in `delayed`. */
const SCORE_PER_MS = 4_096;
/** See PAUSE_BASE in lane.lua.ts. */
const PAUSE_BASE = 9_000_000_000_000_000;
const PAUSED = "!:paused";

export type JobPlace = "wait" | "active" | "delayed" | "prioritized" | "completed" | "failed";
const PLACES: readonly JobPlace[] = ["wait", "active", "delayed", "prioritized", "completed", "failed"];

/** Reads the facts of a state. */
export class RedisFacts {
  readonly #contents: ReadonlyMap<string, readonly string[]>;
  readonly #types: ReadonlyMap<string, string>;

  constructor(entries: Entries) {
    this.#contents = new Map(entries.map(([key, , content]) => [key, content]));
    this.#types = new Map(entries.map(([key, type]) => [key, type]));
  }

  /** Returns the content of a key of the queue. */
  content(name: string): readonly string[] {
    return this.#contents.get(PREFIX + name) ?? [];
  }

  hash(name: string): ReadonlyMap<string, string> {
    return new Map(pairsOf(this.content(name)));
  }

  job(id: string): ReadonlyMap<string, string> {
    return this.hash(id);
  }

  /** Returns all lists and sets that contain the job. */
  placesOf(id: string): readonly JobPlace[] {
    return PLACES.filter((place) => this.#members(place).includes(id));
  }

  get active(): readonly string[] {
    return this.content("active");
  }

  /** Returns BullMQ's token of the job's lock. */
  jobLock(id: string): string | undefined {
    return this.content(`${id}:lock`)[0];
  }

  /** Returns the token in the lock of a key. `name` contains the slot number unless the slot is the first. */
  keyLock(name: string): string | undefined {
    return this.#contents.get(LOCK_PREFIX + name)?.[0];
  }

  get keyLocks(): readonly string[] {
    const names = [...this.#contents.keys()].filter((key) => key.startsWith(LOCK_PREFIX));
    return names.map((key) => key.slice(LOCK_PREFIX.length));
  }

  /** Whether an operator has set the policy of a key. */
  get hasPolicies(): boolean {
    return [...this.hash("lane:holders").keys()].some((name) => name.endsWith("\u001f"));
  }

  /** Returns the jobs that have the key, by the lane's own data. Without its marks. */
  holdersOf(key: string): readonly string[] {
    const first = this.hash("lane:holders").get(key);
    const further = [...this.hash(`lane:slots=${key}`).values()];
    return [first ?? "", ...further].filter((id) => id !== "" && !id.startsWith("!:"));
  }

  /** Returns the number of the slot in which the job has the key. */
  slotOf(id: string, key: string): number {
    const further = [...this.hash(`lane:slots=${key}`)].find(([, holder]) => holder === id);
    return Number(further?.[0] ?? 0);
  }

  /** Reports whether the job is in `delayed` until its lock is free. */
  waitsForLock(id: string): boolean {
    return this.job(id).has(JOB.lockPlace) && this.placesOf(id).includes("delayed");
  }

  /** Returns the members of the key's line with their places, without the mark of a pause. */
  lineOf(key: string): readonly (readonly [id: string, place: string])[] {
    return pairsOf(this.content(`lane:line=${key}`)).filter(([id]) => id !== PAUSED);
  }

  /** Returns the end of the key's pause. Infinity for a pause without an end. */
  pauseEndOf(key: string): number | undefined {
    const score = new Map(pairsOf(this.content(`lane:line=${key}`))).get(PAUSED);
    if (score === undefined) return undefined;
    return score === "-inf" ? Number.POSITIVE_INFINITY : Number(score) + PAUSE_BASE;
  }

  /** Returns the lane's keys that must not stay when nothing is left to do. */
  get laneKeys(): readonly string[] {
    const own = [...this.#contents.keys()].filter((key) => key.startsWith(`${PREFIX}lane:`));
    return own.map((key) => key.slice(PREFIX.length)).filter((name) => !/^lane:(seq$|starts=|sweep$)/.test(name));
  }

  /** Returns when something happens by itself next, after `nowMs`: a delayed job is due, or a pause ends. */
  nextTimerMs(nowMs: number, keys: readonly string[]): number | undefined {
    const dues = pairsOf(this.content("delayed")).map(([, score]) => dueOf(score));
    const ends = keys.map((key) => this.pauseEndOf(key) ?? Number.POSITIVE_INFINITY);
    const next = Math.min(...[...dues, ...ends].filter((ms) => ms > nowMs));
    return next === Number.POSITIVE_INFINITY ? undefined : next;
  }

  #members(place: JobPlace): readonly string[] {
    const content = this.content(place);
    return this.#types.get(PREFIX + place) === "zset" ? pairsOf(content).map(([id]) => id) : content;
  }
}

interface Names {
  readonly nowMs: number;
  /** For how many ms it still matters when a job was due, because a command with an earlier time will arrive. */
  readonly sinceMs: number;
  /** Names of the tokens that some process still knows. */
  readonly tokens: ReadonlyMap<string, string>;
  /** The greatest fencing token that was granted. */
  readonly greatest: number;
}

/** Fields of a job's hash that no script reads to decide anything, or that never change. */
const COSMETIC = new Set([
  "name",
  "data",
  "opts",
  "timestamp",
  "delay",
  "priority",
  "stacktrace",
  "failedReason",
  "returnvalue",
]);
/** Fields of which only the presence matters. */
const PRESENT = new Set<string>(["processedOn", "finishedOn", BULL.deferredFailure, JOB.parkedAt]);

/**
 * Returns the state as text. Times are relative to `nowMs`, places in line are ranks, and tokens have the names of
 * their holders.
 */
export function textOfEntries(entries: Entries, names: Names): string {
  const rankOf = ranksOf(entries);
  return entries.map((entry) => textOfEntry(entry, names, rankOf)).join("\n");
}

function textOfEntry([key, type, content]: Entry, { nowMs, sinceMs, tokens, greatest }: Names, rankOf: RankOf): string {
  const name = key.startsWith(PREFIX) ? key.slice(PREFIX.length) : key;
  const relative = (ms: number): number => Math.max(-sinceMs, ms - nowMs);
  const named = (token: string): string => tokens.get(token) ?? "gone";
  const text = (): unknown => {
    if (name === NODE_KEYS.lastNumber) return Math.min(0, Number(content[0]) - greatest);
    if (name.endsWith(":lock") || name.startsWith(LOCK_PREFIX)) return named(content[0] ?? "");
    if (name === "lane:seq") return rankOf(content[0]);
    if (name === "delayed") return pairsOf(content).map(([id, score]) => [id, relative(dueOf(score))]);
    if (name === "completed" || name === "failed")
      return pairsOf(content)
        .map(([id]) => id)
        .toSorted();
    if (name === "lane:paused") {
      return sorted(content).map(([id, facts]) => [id, facts.replaceAll(/"(since|until)":\d+/g, '"$1"')]);
    }
    if (name.startsWith("lane:line=")) {
      const placeOf = (id: string, score: string): unknown =>
        id !== PAUSED ? rankOf(score) : score === "-inf" ? score : relative(Number(score) + PAUSE_BASE);
      return pairsOf(content).map(([id, score]) => [id, placeOf(id, score)]);
    }
    if (/^job-\d+$/.test(name)) return sorted(content).flatMap(([field, value]) => textOfField(field, value, rankOf));
    if (type === "hash") return sorted(content);
    return type === "set" ? content.toSorted() : content;
  };
  return `${name} ${JSON.stringify(text())}`;
}

function textOfField(field: string, value: string, rankOf: RankOf): readonly unknown[] {
  if (COSMETIC.has(field)) return [];
  if (PRESENT.has(field)) return [field];
  if (field === JOB.place || field === JOB.firstFailure) return [[field, rankOf(value)]];
  if (field === JOB.refusal) return [[field, value.replace(/"atMs":\d+/, "")]];
  return [[field, value]];
}

type RankOf = (place: string | undefined) => number;

/** Numbers the places in all lines, the counter of arrivals and the ages of retries. The sign of a place is kept. */
function ranksOf(entries: Entries): RankOf {
  const numbers = new Set<number>();
  for (const [key, , content] of entries) {
    if (key === `${PREFIX}lane:seq`) numbers.add(Number(content[0]));
    if (key.startsWith(`${PREFIX}lane:line=`)) {
      for (const [id, place] of pairsOf(content)) if (id !== PAUSED) numbers.add(Number(place));
    }
    for (const [field, value] of key.startsWith(PREFIX) ? pairsOf(content) : []) {
      if (field === JOB.place || field === JOB.firstFailure) numbers.add(Number(value));
    }
  }
  const negative = [...numbers].filter((number) => number < 0).toSorted((a, b) => b - a);
  const positive = [...numbers].filter((number) => number > 0).toSorted((a, b) => a - b);
  const ranks = new Map<number, number>([
    [0, 0],
    ...negative.map((number, index) => [number, -1 - index] as const),
    ...positive.map((number, index) => [number, index + 1] as const),
  ]);
  return (place) => ranks.get(Number(place)) ?? Number.NaN;
}

function dueOf(score: string): number {
  return Math.floor(Number(score) / SCORE_PER_MS);
}

function sorted(content: readonly string[]): (readonly [string, string])[] {
  return pairsOf(content).toSorted(([a], [b]) => (a < b ? -1 : 1));
}

function pairsOf(content: readonly string[]): (readonly [string, string])[] {
  const pairs: (readonly [string, string])[] = [];
  for (let at = 0; at < content.length; at += 2) pairs.push([content[at] ?? "", content[at + 1] ?? ""]);
  return pairs;
}
