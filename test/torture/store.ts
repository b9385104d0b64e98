/** The store that the work protects: a counter for each key, on a Redis that no fault strikes. */
import { Redis } from "ioredis";
import type { TortureEvent } from "./events.ts";

const READ = `
local token = tonumber(ARGV[1])
if token and token < tonumber(redis.call("GET", KEYS[2]) or "0") then return -1 end
if token then redis.call("SET", KEYS[2], ARGV[1]) end
return tonumber(redis.call("GET", KEYS[1]) or "0")`;

const WRITE = `
local write = cjson.decode(ARGV[2])
local token = tonumber(ARGV[1])
local isAccepted = not token or token >= tonumber(redis.call("GET", KEYS[2]) or "0")
write.found = tonumber(redis.call("GET", KEYS[1]) or "0")
write.isAccepted = isAccepted
if isAccepted then
  redis.call("SET", KEYS[1], write.read + 1)
  if write.job then redis.call("SADD", KEYS[4], write.key .. "-" .. write.job) end
end
redis.call("RPUSH", KEYS[3], cjson.encode(write))
return isAccepted and 1 or 0`;

type Write = Extract<TortureEvent, { kind: "written" }>;

export class Store implements Disposable {
  readonly #redis: Redis;

  constructor(path: string) {
    this.#redis = new Redis({ path, maxRetriesPerRequest: null });
  }

  /** Claims the key for the token, if any, and returns the counter. Undefined if a later token has claimed the key. */
  async read(key: string, token: number | undefined): Promise<number | undefined> {
    const keys = [`counter:${key}`, `fence:${key}`];
    const count = Number(await this.#redis.eval(READ, 2, ...keys, token === undefined ? "" : `${token}`));
    return count < 0 ? undefined : count;
  }

  /** Sets the counter to `read + 1`, and notes its value before. False if a later token has claimed the key. */
  async write(write: Omit<Write, "found" | "isAccepted">, token: number | undefined): Promise<boolean> {
    const keys = [`counter:${write.key}`, `fence:${write.key}`, "writes", "done"];
    return (
      (await this.#redis.eval(WRITE, 4, ...keys, token === undefined ? "" : `${token}`, JSON.stringify(write))) === 1
    );
  }

  async counts(keys: readonly string[]): Promise<number[]> {
    return (await this.#redis.mget(keys.map((key) => `counter:${key}`))).map(Number);
  }

  async doneJobs(): Promise<number> {
    return await this.#redis.scard("done");
  }

  async writes(): Promise<Write[]> {
    return (await this.#redis.lrange("writes", 0, -1)).map((text) => JSON.parse(text) as Write);
  }

  [Symbol.dispose](): void {
    this.#redis.disconnect();
  }
}
