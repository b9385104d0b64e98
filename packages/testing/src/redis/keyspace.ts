/** The keys of one simulated Redis, with their values and expiries. */
import { ReplyError } from "./reply.ts";

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

export class Keyspace {
  readonly #nowUs: () => number;
  #entries = new Map<string, StoredKey>();

  /** `nowUs` returns the server's clock in whole microseconds. */
  constructor(nowUs: () => number) {
    this.#nowUs = nowUs;
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
      const entry = this.find(key);
      if (entry !== undefined) {
        facts.push({ key, type: entry.value.type, content: contentOf(entry.value), expiresMs: entry.expiresMs });
      }
    }
    return facts;
  }

  /** Returns the text of a string key. Undefined if the key does not exist or is not a string. */
  peek(key: string): { readonly text: string; readonly expiresMs: number | undefined } | undefined {
    const entry = this.find(key);
    return entry?.value.type === "string" ? { text: entry.value.text, expiresMs: entry.expiresMs } : undefined;
  }

  nowMs(): number {
    return Math.floor(this.#nowUs() / 1_000);
  }

  find(key: string): StoredKey | undefined {
    const entry = this.#entries.get(key);
    if (entry?.expiresMs === undefined || this.nowMs() <= entry.expiresMs) return entry;
    this.#entries.delete(key);
    return undefined;
  }

  typedValue<Type extends Value["type"]>(key: string, type: Type): (Value & { type: Type }) | undefined {
    const entry = this.find(key);
    if (entry === undefined) return undefined;
    if (entry.value.type !== type) {
      throw new ReplyError("WRONGTYPE Operation against a key holding the wrong kind of value");
    }
    return entry.value as Value & { type: Type };
  }

  hash(key: string): Map<string, string> {
    const found = this.typedValue(key, "hash");
    if (found !== undefined) return found.fields;
    const fields = new Map<string, string>();
    this.#entries.set(key, { value: { type: "hash", fields }, expiresMs: undefined });
    return fields;
  }

  scores(key: string): Map<string, number> {
    const found = this.typedValue(key, "zset");
    if (found !== undefined) return found.scores;
    const scores = new Map<string, number>();
    this.#entries.set(key, { value: { type: "zset", scores }, expiresMs: undefined });
    return scores;
  }

  sorted(key: string): (readonly [string, number])[] {
    const scores = this.typedValue(key, "zset")?.scores ?? new Map<string, number>();
    return [...scores].toSorted(([a, x], [b, y]) => x - y || (a < b ? -1 : 1));
  }

  removeMembers(key: string, members: readonly string[]): number {
    const found = this.typedValue(key, "zset");
    let removed = 0;
    for (const member of members) if (found?.scores.delete(member) === true) removed += 1;
    if (found?.scores.size === 0) this.#entries.delete(key);
    return removed;
  }

  setString(key: string, text: string, ttlMs: number | undefined): void {
    const expiresMs = ttlMs === undefined ? undefined : this.nowMs() + ttlMs;
    this.#entries.set(key, { value: { type: "string", text }, expiresMs });
  }

  /** Renames a key. Returns false if the key does not exist. */
  rename(from: string, to: string): boolean {
    const entry = this.find(from);
    if (entry === undefined) return false;
    this.#entries.delete(from);
    this.#entries.set(to, entry);
    return true;
  }

  pttl(key: string): number {
    const entry = this.find(key);
    if (entry === undefined) return -2;
    return entry.expiresMs === undefined ? -1 : Math.max(0, entry.expiresMs - this.nowMs());
  }

  expire(key: string, ttlMs: number): number {
    const entry = this.find(key);
    if (entry === undefined) return 0;
    if (ttlMs <= 0) this.#entries.delete(key);
    else entry.expiresMs = this.nowMs() + ttlMs;
    return 1;
  }

  delete(keys: readonly string[]): number {
    let deleted = 0;
    for (const key of keys) {
      if (this.find(key) === undefined) continue;
      this.#entries.delete(key);
      deleted += 1;
    }
    return deleted;
  }

  /** Deletes fields. Returns how many existed. A hash without fields does not exist. */
  deleteFields(key: string, names: readonly string[]): number {
    const found = this.typedValue(key, "hash");
    let deleted = 0;
    for (const name of names) if (found?.fields.delete(name) === true) deleted += 1;
    if (found?.fields.size === 0) this.#entries.delete(key);
    return deleted;
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
