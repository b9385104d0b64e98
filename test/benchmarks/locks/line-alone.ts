/**
 * The smallest lock of one node with a first-come-first-served line, a lease and a fencing token. A release gives the
 * lock to the next waiter in line: by its reply to a waiter of the same process, by a message to another process. The
 * program repairs nothing: even a waiter that has died in line is given the lock.
 */
import { randomUUID } from "node:crypto";
import type { Redis } from "ioredis";

type Acquire = (resource: string) => Promise<() => Promise<unknown>>;

interface LineClient {
  /** The fencing token, or 0 if the caller waits in line. */
  joinLine(...keysAndArgs: readonly (string | number)[]): Promise<number>;
  /** The next waiter, if it belongs to the same process. */
  leaveLine(...keysAndArgs: readonly (string | number)[]): Promise<string | null>;
}

const joinScript = `
if redis.call("exists", KEYS[1]) == 0 then
  redis.call("set", KEYS[1], ARGV[1], "px", ARGV[2])
  return redis.call("incr", KEYS[3])
end
redis.call("rpush", KEYS[2], ARGV[1])
return 0`;

/** A waiter consists of the channel of its process, a space and a number. */
const leaveScript = `
if redis.call("get", KEYS[1]) ~= ARGV[1] then return false end
local waiter = redis.call("lpop", KEYS[2])
if not waiter then
  redis.call("del", KEYS[1])
  return false
end
redis.call("set", KEYS[1], waiter, "px", ARGV[2])
redis.call("incr", KEYS[3])
local channel = string.match(waiter, "^%S+")
if channel == ARGV[3] then return waiter end
redis.call("publish", channel, waiter)
return false`;

export async function openLineAlone(client: Redis, ttlMs: number): Promise<Acquire> {
  client.defineCommand("joinLine", { numberOfKeys: 3, lua: joinScript });
  client.defineCommand("leaveLine", { numberOfKeys: 3, lua: leaveScript });
  const scripts = client as unknown as LineClient;
  const channel = randomUUID();
  const granted = new Map<string, () => void>();
  const subscriber = client.duplicate();
  client.once("end", () => subscriber.disconnect());
  subscriber.on("message", (_, waiter) => granted.get(waiter)?.());
  await subscriber.subscribe(channel);
  let count = 0;
  return async (resource) => {
    count += 1;
    const waiter = `${channel} ${count}`;
    const keys = [resource, `${resource}:line`, `${resource}:token`];
    // The lock may be given before the reply to the request arrives.
    const turn = new Promise<void>((resolve) => granted.set(waiter, resolve));
    if ((await scripts.joinLine(...keys, waiter, ttlMs)) === 0) await turn;
    granted.delete(waiter);
    return async () => {
      const next = await scripts.leaveLine(...keys, waiter, ttlMs, channel);
      if (next !== null) granted.get(next)?.();
    };
  };
}
