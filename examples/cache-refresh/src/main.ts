/** A cache in Redis. One process refreshes an entry; meanwhile the others serve the old value, or wait if there is none. */
import { setTimeout as delay } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { Redlock } from "@x/redlock-core";
import { Redis } from "ioredis";

interface Entry<Value> {
  readonly value: Value;
  readonly freshUntil: number;
}

export class RefreshingCache<Value> {
  readonly #redis: Redis;
  readonly #redlock: Redlock;
  readonly #load: (key: string) => Promise<Value>;
  readonly #freshMs: number;

  constructor(redis: Redis, redlock: Redlock, options: { load: (key: string) => Promise<Value>; freshMs: number }) {
    this.#redis = redis;
    this.#redlock = redlock;
    this.#load = options.load;
    this.#freshMs = options.freshMs;
  }

  async get(key: string): Promise<Value> {
    const entry = await this.#read(key);
    if (entry === undefined) {
      // Nobody has a value: wait for the one who loads it, and look again.
      return await this.#redlock.using(
        `refresh:${key}`,
        async () => (await this.#read(key))?.value ?? (await this.#refresh(key)),
      );
    }
    if (entry.freshUntil > Date.now()) return entry.value;
    // Old, but there: whoever gets the lock refreshes it, everybody else goes on with the old value.
    const lock = await this.#redlock.tryAcquire(`refresh:${key}`, { autoExtend: true });
    if (lock === null) return entry.value;
    try {
      const latest = await this.#read(key);
      return latest !== undefined && latest.freshUntil > Date.now() ? latest.value : await this.#refresh(key);
    } finally {
      await lock.release();
    }
  }

  async #read(key: string): Promise<Entry<Value> | undefined> {
    const text = await this.#redis.get(`cache:${key}`);
    return text === null ? undefined : (JSON.parse(text) as Entry<Value>);
  }

  async #refresh(key: string): Promise<Value> {
    const value = await this.#load(key);
    await this.#redis.set(
      `cache:${key}`,
      JSON.stringify({ value, freshUntil: Date.now() + this.#freshMs }),
      "EX",
      3_600,
    );
    return value;
  }
}

/** Three replicas, many readers: how often was the slow source asked, and who had to wait? */
export async function run(redisUrl: string): Promise<{ coldLoads: number; staleLoads: number; served: number[] }> {
  let loads = 0;
  const load = async (): Promise<number> => {
    loads += 1;
    await delay(100); // the expensive query
    return loads;
  };
  await using redlock = new Redlock(redisUrl, { ttl: 5_000 });
  const redis = new Redis(redisUrl);
  try {
    const replicas = [1, 2, 3].map(() => new RefreshingCache(redis, redlock, { load, freshMs: 300 }));
    const readAll = async (): Promise<number[]> =>
      await Promise.all(Array.from({ length: 60 }, async (_, i) => (await replicas[i % 3]?.get("prices")) ?? 0));
    await readAll();
    const coldLoads = loads;
    await delay(400); // now the entry is old
    const served = await readAll();
    return { coldLoads, staleLoads: loads - coldLoads, served };
  } finally {
    redis.disconnect();
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const { served, ...loads } = await run(process.env["REDIS_URL"] ?? "redis://127.0.0.1:6379");
  const old = served.filter((version) => version === 1).length;
  process.stdout.write(`${JSON.stringify({ ...loads, servedOld: old, servedNew: served.length - old }, null, 2)}\n`);
}
