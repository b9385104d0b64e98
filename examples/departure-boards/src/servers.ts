import { type RedisServer, startRedis, startRedisNodes } from "@x/test-support";
import { Redis } from "ioredis";

/** The Redis servers of a run: its own, or those that the environment names. */
export interface Servers {
  readonly redisUrl: string;
  readonly lockRedisUrls: readonly string[];
  /** The lock nodes that this run started and may kill; none when the environment names them. */
  readonly lockNodes: readonly RedisServer[];
  /** Stops what was started, and removes the run's keys from servers that were there before. */
  stop(): Promise<void>;
}

const lockNodeCount = 5;

export async function openServers(environment: NodeJS.ProcessEnv, prefix: string): Promise<Servers> {
  const { REDIS_URL: redisUrl, LOCK_REDIS_URLS: lockRedisUrls } = environment;
  const lockNodes = lockRedisUrls === undefined ? await startRedisNodes(lockNodeCount) : [];
  try {
    const queueNode = redisUrl === undefined ? await startRedis() : undefined;
    const lockUrls = lockRedisUrls === undefined ? lockNodes.map((node) => node.url) : splitUrls(lockRedisUrls);
    const external = [...(redisUrl === undefined ? [] : [redisUrl]), ...(lockRedisUrls === undefined ? [] : lockUrls)];
    return {
      redisUrl: redisUrl ?? queueNode?.url ?? "",
      lockRedisUrls: lockUrls,
      lockNodes,
      async stop() {
        await Promise.allSettled(external.map((url) => removeKeys(url, prefix)));
        await Promise.all([...lockNodes, ...(queueNode === undefined ? [] : [queueNode])].map((node) => node.stop()));
      },
    };
  } catch (error) {
    await Promise.all(lockNodes.map((node) => node.stop()));
    throw error;
  }
}

function splitUrls(text: string): string[] {
  const urls = text
    .split(",")
    .map((url) => url.trim())
    .filter((url) => url !== "");
  if (urls.length === 0)
    throw new TypeError(`LOCK_REDIS_URLS must be URLs separated by commas, got ${JSON.stringify(text)}`);
  return urls;
}

// Locks put braces around theirs: the prefix may stand anywhere, and is random enough.
async function removeKeys(url: string, prefix: string): Promise<void> {
  const redis = new Redis(url, { lazyConnect: true, retryStrategy: () => null });
  // The rejected command tells.
  redis.on("error", () => {});
  try {
    await redis.connect();
    for await (const keys of redis.scanStream({ match: `*${prefix}*`, count: 1_000 }) as AsyncIterable<string[]>) {
      if (keys.length > 0) await redis.unlink(...keys);
    }
  } finally {
    redis.disconnect();
  }
}
