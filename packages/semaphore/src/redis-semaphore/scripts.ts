/** Scripts on the keys of redis-semaphore, and the function that runs a script with a user's client. */
import { defineScript, withoutCommand } from "@x/redlock-core/protocol";

type Argument = string | number;
type Script = ReturnType<typeof defineScript>;

/** The methods of an ioredis client that this entry calls. */
export interface RedisClient {
  eval(script: string, keyCount: number, ...args: Argument[]): Promise<unknown>;
  evalsha(sha1: string, keyCount: number, ...args: Argument[]): Promise<unknown>;
}

/** KEYS[1] holds the identifier of the holder. ARGV: identifier, lease in ms. Each script replies 1 or 0. */
export const mutexScripts: { readonly acquire: Script; readonly refresh: Script; readonly release: Script } = {
  acquire: defineScript(
    "redis-semaphore mutex acquire",
    /* lua */ `return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX') and 1 or 0`,
  ),
  refresh: defineScript(
    "redis-semaphore mutex refresh",
    /* lua */ `return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0`,
  ),
  release: defineScript(
    "redis-semaphore mutex release",
    /* lua */ `return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`,
  ),
};

/**
 * KEYS[1] is a sorted set of permits by the ms of the last refresh. ARGV: operation, limit, lease in ms, permits.
 * Replies 1 or 0. The script never shortens the lifetime of the key.
 */
export const semaphoreScript: Script = defineScript(
  "redis-semaphore semaphore",
  /* lua */ `
local key, op, limit, lease = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', now - lease))
if op == 'acquire' and redis.call('ZCARD', key) + #ARGV - 3 > limit then return 0 end
for i = 4, #ARGV do
  if op == 'refresh' and not redis.call('ZSCORE', key, ARGV[i]) then return 0 end
end
for i = 4, #ARGV do
  if op == 'release' then redis.call('ZREM', key, ARGV[i])
  else redis.call('ZADD', key, string.format('%.0f', now), ARGV[i]) end
end
if op ~= 'release' and redis.call('PTTL', key) < lease then redis.call('PEXPIRE', key, lease) end
return 1
`,
);

/** Runs a script. Resolves with true if the reply is 1. Rejects without the client's failed command. */
export async function run(client: RedisClient, script: Script, key: string, ...args: Argument[]): Promise<boolean> {
  try {
    return isOne(await evaluate(client, script, key, ...args));
  } catch (error) {
    throw withoutCommand(error);
  }
}

async function evaluate(
  client: RedisClient,
  { source, sha1 }: Script,
  key: string,
  ...args: Argument[]
): Promise<unknown> {
  try {
    return await client.evalsha(sha1, 1, key, ...args);
  } catch (error) {
    if (!String(error).includes("NOSCRIPT")) throw error;
    return await client.eval(source, 1, key, ...args);
  }
}

/** Also accepts "1", because ioredis returns numbers as strings with the option `stringNumbers`. */
function isOne(reply: unknown): boolean {
  return Number(reply) === 1;
}
