/**
 * The smallest lock of one node that is given first come, first served, with a lease and a fencing token. A release gives it to the next in
 * line: within the process by its answer, to another one by a message. It mends nothing: who dies in line is given the lock all the same.
 */
import { randomUUID } from "node:crypto";
import type { Redis } from "ioredis";

type Acquire = (resource: string) => Promise<() => Promise<unknown>>;

interface LineClient {
  /** The fencing token; 0: in line. */
  joinLine(...keysAndArgs: readonly (string | number)[]): Promise<number>;
  /** Who is next, if it is of the same process. */
  leaveLine(...keysAndArgs: readonly (string | number)[]): Promise<string | null>;
}

const joinScript = `
if redis.call("exists", KEYS[1]) == 0 then
  redis.call("set", KEYS[1], ARGV[1], "px", ARGV[2])
  return redis.call("incr", KEYS[3])
end
redis.call("rpush", KEYS[2], ARGV[1])
return 0`;

/** A waiter is its process's channel, a space and a number. */
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
    // The lock may be given before the answer to the request comes.
    const turn = new Promise<void>((resolve) => granted.set(waiter, resolve));
    if ((await scripts.joinLine(...keys, waiter, ttlMs)) === 0) await turn;
    granted.delete(waiter);
    return async () => {
      const next = await scripts.leaveLine(...keys, waiter, ttlMs, channel);
      if (next !== null) granted.get(next)?.();
    };
  };
}
