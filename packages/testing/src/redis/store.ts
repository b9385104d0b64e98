/**
 * The data of one simulated Redis, and the commands that the lock and leader scripts call. conformance.test.ts compares
 * replies and errors with a real Redis. An unknown command throws, so that no script silently runs with different
 * semantics.
 */

/** A reply inside a script. Null is nil. */
export type Reply = null | number | string | Status | readonly Reply[];

export class Status {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

export class ReplyError extends Error {}

type Value =
  | { readonly type: "string"; text: string }
  | { readonly type: "hash"; readonly fields: Map<string, string> }
  | { readonly type: "zset"; readonly scores: Map<string, number> };

interface StoredKey {
  value: Value;
  /**
   * The expiry by the node's clock in ms. The key exists until the clock has passed this time. Undefined: the key never
   * expires.
   */
  expiresMs: number | undefined;
}

export interface KeyFacts {
  readonly key: string;
  readonly type: string;
  readonly content: unknown;
  readonly expiresMs: number | undefined;
}

/** The parts of the server that a store uses. */
export interface Surroundings {
  /** The server's clock in whole microseconds. */
  nowUs(): number;
  info(section: string): string;
  /** Delivers a message. Returns the number of receivers. */
  publish(channel: string, message: string): number;
}

type Command = (args: readonly string[]) => Reply;

export class Store {
  readonly #around: Surroundings;
  #entries = new Map<string, StoredKey>();
  readonly #commands: ReadonlyMap<string, Command>;

  constructor(around: Surroundings) {
    this.#around = around;
    this.#commands = this.#defineCommands();
  }

  call(name: string, args: readonly string[]): Reply {
    const command = this.#commands.get(name.toUpperCase());
    if (command === undefined) throw new TypeError(`the simulated Redis has no ${name}`);
    return command(args);
  }

  flush(): void {
    this.#entries = new Map();
  }

  /** Returns a copy of the data, like a snapshot on disk or the data of a replica. */
  snapshot(): ReadonlyMap<string, StoredKey> {
    return new Map([...this.#entries].map(([key, entry]) => [key, copyOf(entry)]));
  }

  restore(snapshot: ReadonlyMap<string, StoredKey>): void {
    this.#entries = new Map([...snapshot].map(([key, entry]) => [key, copyOf(entry)]));
  }

  /** Returns all keys that have not expired, sorted. */
  dump(): readonly KeyFacts[] {
    const facts: KeyFacts[] = [];
    for (const key of [...this.#entries.keys()].toSorted()) {
      const entry = this.#find(key);
      if (entry !== undefined) {
        facts.push({ key, type: entry.value.type, content: contentOf(entry.value), expiresMs: entry.expiresMs });
      }
    }
    return facts;
  }

  /** Returns the text of a string key. Undefined if the key does not exist or is not a string. */
  peek(key: string): { readonly text: string; readonly expiresMs: number | undefined } | undefined {
    const entry = this.#find(key);
    return entry?.value.type === "string" ? { text: entry.value.text, expiresMs: entry.expiresMs } : undefined;
  }

  #nowMs(): number {
    return Math.floor(this.#around.nowUs() / 1_000);
  }

  #find(key: string): StoredKey | undefined {
    const entry = this.#entries.get(key);
    if (entry?.expiresMs === undefined || this.#nowMs() <= entry.expiresMs) return entry;
    this.#entries.delete(key);
    return undefined;
  }

  #typedValue<Type extends Value["type"]>(key: string, type: Type): (Value & { type: Type }) | undefined {
    const entry = this.#find(key);
    if (entry === undefined) return undefined;
    if (entry.value.type !== type) {
      throw new ReplyError("WRONGTYPE Operation against a key holding the wrong kind of value");
    }
    return entry.value as Value & { type: Type };
  }

  #hash(key: string): Map<string, string> {
    const found = this.#typedValue(key, "hash");
    if (found !== undefined) return found.fields;
    const fields = new Map<string, string>();
    this.#entries.set(key, { value: { type: "hash", fields }, expiresMs: undefined });
    return fields;
  }

  #scores(key: string): Map<string, number> {
    const found = this.#typedValue(key, "zset");
    if (found !== undefined) return found.scores;
    const scores = new Map<string, number>();
    this.#entries.set(key, { value: { type: "zset", scores }, expiresMs: undefined });
    return scores;
  }

  #sorted(key: string): (readonly [string, number])[] {
    const scores = this.#typedValue(key, "zset")?.scores ?? new Map<string, number>();
    return [...scores].toSorted(([a, x], [b, y]) => x - y || (a < b ? -1 : 1));
  }

  #removeMembers(key: string, members: readonly string[]): number {
    const found = this.#typedValue(key, "zset");
    let removed = 0;
    for (const member of members) if (found?.scores.delete(member) === true) removed += 1;
    if (found?.scores.size === 0) this.#entries.delete(key);
    return removed;
  }

  #set([key = "", text = "", ...options]: readonly string[]): Reply {
    let [ttlMs, onlyNew, replies]: [number | undefined, boolean, boolean] = [undefined, false, false];
    for (let at = 0; at < options.length; at += 1) {
      const option = options[at]?.toUpperCase();
      if (option === "NX") onlyNew = true;
      else if (option === "GET") replies = true;
      else if (option === "PX") {
        at += 1;
        ttlMs = integer(options[at]);
      } else throw new TypeError(`SET ${option ?? ""} is not simulated`);
    }
    if (ttlMs !== undefined && ttlMs <= 0) throw new ReplyError("ERR invalid expire time in 'set' command");
    const before = replies ? this.call("GET", [key]) : null;
    if (onlyNew && this.#find(key) !== undefined) return before;
    const expiresMs = ttlMs === undefined ? undefined : this.#nowMs() + ttlMs;
    this.#entries.set(key, { value: { type: "string", text }, expiresMs });
    return replies ? before : new Status("OK");
  }

  #pttl(key: string): number {
    const entry = this.#find(key);
    if (entry === undefined) return -2;
    return entry.expiresMs === undefined ? -1 : Math.max(0, entry.expiresMs - this.#nowMs());
  }

  #expire(key: string, ttlMs: number): number {
    const entry = this.#find(key);
    if (entry === undefined) return 0;
    if (ttlMs <= 0) this.#entries.delete(key);
    else entry.expiresMs = this.#nowMs() + ttlMs;
    return 1;
  }

  #delete(keys: readonly string[]): number {
    let deleted = 0;
    for (const key of keys) {
      if (this.#find(key) === undefined) continue;
      this.#entries.delete(key);
      deleted += 1;
    }
    return deleted;
  }

  #hashSet([key = "", ...pairs]: readonly string[]): number {
    const fields = this.#hash(key);
    let added = 0;
    for (let index = 0; index < pairs.length; index += 2) {
      const field = pairs[index] ?? "";
      if (!fields.has(field)) added += 1;
      fields.set(field, pairs[index + 1] ?? "");
    }
    return added;
  }

  #hashDelete([key = "", ...names]: readonly string[]): number {
    const found = this.#typedValue(key, "hash");
    let deleted = 0;
    for (const name of names) if (found?.fields.delete(name) === true) deleted += 1;
    if (found?.fields.size === 0) this.#entries.delete(key);
    return deleted;
  }

  #range([key = "", from = "0", to = "-1", option]: readonly string[]): Reply {
    if (option !== undefined && option.toUpperCase() !== "WITHSCORES") throw new TypeError(`ZRANGE ${option}`);
    const sorted = this.#sorted(key);
    const [start, end] = [rank(from, sorted.length), rank(to, sorted.length)];
    return sorted
      .slice(Math.max(start, 0), end + 1)
      .flatMap(([member, score]) => (option === undefined ? [member] : [member, String(score)]));
  }

  /** Returns the members in a range of texts. All scores of the set must be equal, as for a real Redis. */
  #lexRange(key: string, min: string, max: string): readonly string[] {
    const members = this.#sorted(key).map(([member]) => member);
    return members.filter((member) => isAfter(member, min) && isBefore(member, max));
  }

  #reverseRangeByScore([key = "", max = "", min = "", limit, offset, count]: readonly string[]): Reply {
    if (limit !== undefined && limit.toUpperCase() !== "LIMIT") throw new TypeError(`ZREVRANGEBYSCORE ${limit}`);
    const members = this.#sorted(key)
      .toReversed()
      .filter(([, score]) => isBelow(score, max) && isAbove(score, min))
      .map(([member]) => member);
    return limit === undefined ? members : limited(members, offset, count);
  }

  #rangeByScore([key = "", min = "", max = "", limit, offset, count]: readonly string[]): Reply {
    if (limit?.toUpperCase() !== "LIMIT") throw new TypeError("ZRANGEBYSCORE: only with LIMIT");
    const members = this.#sorted(key).filter(([, score]) => isAbove(score, min) && isBelow(score, max));
    return limited(
      members.map(([member]) => member),
      offset,
      count,
    );
  }

  #rangeByLex([key = "", min = "", max = "", limit, offset, count]: readonly string[]): Reply {
    if (limit?.toUpperCase() !== "LIMIT") throw new TypeError("ZRANGEBYLEX: only with LIMIT");
    return limited(this.#lexRange(key, min, max), offset, count);
  }

  #defineCommands(): ReadonlyMap<string, Command> {
    const commands: Record<string, Command> = {
      SET: (args) => this.#set(args),
      GET: ([key = ""]) => this.#typedValue(key, "string")?.text ?? null,
      MGET: (keys) =>
        keys.map((key) => {
          const value = this.#find(key)?.value;
          return value?.type === "string" ? value.text : null;
        }),
      DEL: (keys) => this.#delete(keys),
      RENAME: ([from = "", to = ""]) => {
        const entry = this.#find(from);
        if (entry === undefined) throw new ReplyError("ERR no such key");
        this.#entries.delete(from);
        this.#entries.set(to, entry);
        return new Status("OK");
      },
      EXISTS: (keys) => keys.filter((key) => this.#find(key) !== undefined).length,
      TYPE: ([key = ""]) => new Status(this.#find(key)?.value.type ?? "none"),
      PTTL: ([key = ""]) => this.#pttl(key),
      PEXPIRE: ([key = "", ttl]) => this.#expire(key, integer(ttl)),
      HSET: (args) => this.#hashSet(args),
      HSETNX: ([key = "", field = "", text = ""]) => {
        if (this.#typedValue(key, "hash")?.fields.has(field) === true) return 0;
        this.#hash(key).set(field, text);
        return 1;
      },
      HGET: ([key = "", field = ""]) => this.#typedValue(key, "hash")?.fields.get(field) ?? null,
      HMGET: ([key = "", ...names]) => {
        const fields = this.#typedValue(key, "hash")?.fields;
        return names.map((name) => fields?.get(name) ?? null);
      },
      HEXISTS: ([key = "", field = ""]) => (this.#typedValue(key, "hash")?.fields.has(field) === true ? 1 : 0),
      HDEL: (args) => this.#hashDelete(args),
      HLEN: ([key = ""]) => this.#typedValue(key, "hash")?.fields.size ?? 0,
      HGETALL: ([key = ""]) => [...(this.#typedValue(key, "hash")?.fields ?? [])].flat(),
      HVALS: ([key = ""]) => [...(this.#typedValue(key, "hash")?.fields.values() ?? [])],
      ZADD: ([key = "", score = "", member = "", ...more]) => {
        if (more.length > 0) throw new TypeError("ZADD: one member only");
        const value = Number(score);
        if (score.trim() === "" || Number.isNaN(value)) throw new ReplyError("ERR value is not a valid float");
        const scores = this.#scores(key);
        const added = scores.has(member) ? 0 : 1;
        scores.set(member, value);
        return added;
      },
      ZREM: ([key = "", ...members]) => this.#removeMembers(key, members),
      ZCARD: ([key = ""]) => this.#typedValue(key, "zset")?.scores.size ?? 0,
      ZCOUNT: ([key = "", min = "", max = ""]) =>
        this.#sorted(key).filter(([, score]) => isAbove(score, min) && isBelow(score, max)).length,
      ZSCORE: ([key = "", member = ""]) => {
        const score = this.#typedValue(key, "zset")?.scores.get(member);
        return score === undefined ? null : String(score);
      },
      ZRANGE: (args) => this.#range(args),
      ZREVRANGEBYSCORE: (args) => this.#reverseRangeByScore(args),
      ZRANGEBYSCORE: (args) => this.#rangeByScore(args),
      ZRANGEBYLEX: (args) => this.#rangeByLex(args),
      ZLEXCOUNT: ([key = "", min = "", max = ""]) => this.#lexRange(key, min, max).length,
      ZREMRANGEBYLEX: ([key = "", min = "", max = ""]) => this.#removeMembers(key, this.#lexRange(key, min, max)),
      ZPOPMIN: ([key = ""]) => {
        const head = this.#sorted(key)[0];
        if (head === undefined) return [];
        this.#removeMembers(key, [head[0]]);
        return [head[0], String(head[1])];
      },
      ZREMRANGEBYSCORE: ([key = "", min = "", max = ""]) => {
        const within = this.#sorted(key).filter(([, score]) => isAbove(score, min) && isBelow(score, max));
        return this.#removeMembers(
          key,
          within.map(([member]) => member),
        );
      },
      ZREMRANGEBYRANK: ([key = "", from = "", to = ""]) => {
        const sorted = this.#sorted(key);
        const [start, end] = [rank(from, sorted.length), rank(to, sorted.length)];
        return this.#removeMembers(
          key,
          sorted.slice(Math.max(start, 0), Math.max(end + 1, 0)).map(([member]) => member),
        );
      },
      PUBLISH: ([channel = "", message = ""]) => this.#around.publish(channel, message),
      INFO: ([section = ""]) => this.#around.info(section),
      TIME: () => {
        const nowUs = this.#around.nowUs();
        return [String(Math.floor(nowUs / 1_000_000)), String(nowUs % 1_000_000)];
      },
    };
    return new Map(Object.entries(commands));
  }
}

function copyOf(entry: StoredKey): StoredKey {
  const { value, expiresMs } = entry;
  if (value.type === "string") return { value: { ...value }, expiresMs };
  if (value.type === "hash") return { value: { type: "hash", fields: new Map(value.fields) }, expiresMs };
  return { value: { type: "zset", scores: new Map(value.scores) }, expiresMs };
}

function contentOf(value: Value): unknown {
  if (value.type === "string") return value.text;
  return value.type === "hash" ? [...value.fields].toSorted(byName) : [...value.scores].toSorted(byName);
}

/** Compares pairs by their first element, as bytes. */
export function byName(a: readonly [string, unknown], b: readonly [string, unknown]): number {
  return a[0] < b[0] ? -1 : 1;
}

function integer(text: string | undefined): number {
  if (text === undefined || !/^-?\d+$/.test(text)) throw new ReplyError("ERR value is not an integer or out of range");
  return Number(text);
}

function rank(text: string, length: number): number {
  const index = integer(text);
  return index < 0 ? length + index : index;
}

function limited(members: readonly string[], offset: string | undefined, count: string | undefined): readonly string[] {
  const first = integer(offset);
  const wanted = integer(count);
  return members.slice(first, wanted < 0 ? undefined : first + wanted);
}

/** Compares with the lower limit of a range of texts. */
function isAfter(member: string, min: string): boolean {
  return min.startsWith("(") ? member > min.slice(1) : member >= min.slice(1);
}

/** Compares with the upper limit of a range of texts. */
function isBefore(member: string, max: string): boolean {
  return max.startsWith("(") ? member < max.slice(1) : member <= max.slice(1);
}

function isBelow(score: number, limit: string): boolean {
  if (limit === "+inf") return true;
  return limit.startsWith("(") ? score < Number(limit.slice(1)) : score <= Number(limit);
}

function isAbove(score: number, limit: string): boolean {
  if (limit === "-inf") return true;
  return limit.startsWith("(") ? score > Number(limit.slice(1)) : score >= Number(limit);
}
