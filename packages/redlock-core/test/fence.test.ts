import { errorOf, type RedisServer, startCluster, startRedis } from "@x/test-support";
import { Cluster, Redis } from "ioredis";
import { Redis as Redis5 } from "ioredis5";
import { createClient, createCluster } from "redis";
import { createClient as createClient5 } from "redis5";
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { type FenceClient, type Fenced, FencedOffError, fence, RedlockError } from "../src/index.ts";
import { slotOf } from "../src/rules/keys.ts";
import { openRedlock } from "./support/nodes.ts";

let server: RedisServer;
let redis: Redis;
beforeAll(async () => {
  server = await startRedis();
  redis = new Redis({ path: server.path });
});
beforeEach(async () => {
  await redis.flushall();
});
afterAll(async () => {
  redis.disconnect();
  await server.stop();
});

async function sell(fenced: Fenced, left: string | null, count: number): Promise<void> {
  await fenced.set("stock:42", Number(left) - count);
}

/** Client libraries, each connected to the server. */
const connect: Readonly<Record<string, () => Promise<FenceClient>>> = {
  "ioredis 6": async () => {
    const client = new Redis({ path: server.path });
    onTestFinished(() => client.disconnect());
    return await Promise.resolve(client);
  },
  "ioredis 5": async () => {
    const client = new Redis5({ path: server.path });
    onTestFinished(() => client.disconnect());
    return await Promise.resolve(client);
  },
  "ioredis with a key prefix": async () => {
    const client = new Redis({ path: server.path, keyPrefix: "app:" });
    onTestFinished(() => client.disconnect());
    return await Promise.resolve(client);
  },
  "node-redis 6": async () => {
    const client = await createClient({ url: server.url }).connect();
    onTestFinished(() => client.destroy());
    return client;
  },
  "node-redis 5": async () => {
    const client = await createClient5({ url: server.url }).connect();
    onTestFinished(() => client.destroy());
    return client;
  },
};

describe.each(Object.entries(connect))("with %s", (_name, connected) => {
  it("refuses the previous holder once the next holder has read, even if the previous holder writes first", async () => {
    const client = await connected();
    const first = await fence(client, "stock:42", 1);
    await first.set("stock:42", 100);
    const readByFirst = await first.get("stock:42");
    const second = await fence(client, "stock:42", 2);
    const readBySecond = await second.get("stock:42");
    expect([readByFirst, readBySecond]).toEqual(["100", "100"]);

    await expect(sell(first, readByFirst, 1)).rejects.toThrow(FencedOffError);
    await sell(second, readBySecond, 2);
    expect(await second.get("stock:42")).toBe("98");
    await expect(first.get("stock:42")).rejects.toThrow(FencedOffError);
    await expect(fence(client, "stock:42", 1)).rejects.toThrow(FencedOffError);
  });

  it("passes a script its own keys and arguments, and returns its reply", async () => {
    const fenced = await fence(await connected(), ["a", "b"], 7);
    const script =
      "redis.call('SET', KEYS[1], ARGV[2])\nreturn {#KEYS, #ARGV, ARGV[1], redis.call('GET', KEYS[1])} -- end";
    expect(await fenced.eval(script, ["{a}:1", "{a}:2"], ["x", 5])).toEqual([2, 2, "x", "5"]);
    expect(await fenced.eval("redis.call('DEL', KEYS[1])", ["{a}:1"])).toBeNull();
    expect(await fenced.get("{a}:1")).toBeNull();
  });

  it("passes on an error of the script, with the line number of the user's script", async () => {
    const fenced = await fence(await connected(), "a", 7);
    await expect(fenced.eval("local one = 1\nerror('boom')", [])).rejects.toThrow(/user_script:2: boom/);
    await expect(fenced.eval("return redis.error_reply('FULL no room')", [])).rejects.toThrow(/FULL no room/);
  });
});

it("names the key and the token that claims it", async () => {
  const old = await fence(redis, ["a", "b"], 5);
  await fence(redis, "b", 9);
  const error = await errorOf(old.get("a"));
  expect(error).toBeInstanceOf(RedlockError);
  expect(error).toMatchObject({ code: "FENCED_OFF", key: "b", resources: ["b"], fencingToken: 5, claimedBy: 9 });
  expect(String(error)).toBe('FencedOffError: "b" is claimed by fencing token 9, ours is 5');
});

it("claims all keys or none", async () => {
  await fence(redis, "b", 9);
  const error = await errorOf(fence(redis, ["a", "b"], 5));
  expect(error).toMatchObject({ key: "b", claimedBy: 9 });
  expect(await redis.keys("*")).toEqual(["{b}:claim"]);
});

it("lets a holder claim again, and write more than once", async () => {
  const [one, two] = [await fence(redis, "a", 5), await fence(redis, "a", 5)];
  await one.set("a", "x");
  await two.set("a", "y");
  expect(await one.get("a")).toBe("y");
});

it("compares tokens as numbers, up to the largest possible", async () => {
  await fence(redis, "a", 9);
  await fence(redis, "a", 10);
  await fence(redis, "a", Number.MAX_SAFE_INTEGER - 1);
  await fence(redis, "a", Number.MAX_SAFE_INTEGER);
  expect(await errorOf(fence(redis, "a", Number.MAX_SAFE_INTEGER - 1))).toMatchObject({
    claimedBy: Number.MAX_SAFE_INTEGER,
  });
});

it("refuses a holder whose claim is missing, because a later holder may have claimed the key", async () => {
  const fenced = await fence(redis, "a", 5);
  await redis.del("{a}:claim");
  const error = await errorOf(fenced.set("a", "late"));
  expect(error).toMatchObject({ code: "FENCED_OFF", key: "a", fencingToken: 5, claimedBy: undefined });
  expect(String(error)).toBe('FencedOffError: "a" is claimed by no fencing token any more, ours is 5');
  expect(await redis.exists("a")).toBe(0);
});

it("refuses a holder if the claim is not a number", async () => {
  await redis.set("{a}:claim", "something");
  const error = await errorOf(fence(redis, "a", 5));
  expect(String(error)).toBe('FencedOffError: "a" is claimed by fencing token something, ours is 5');
  expect(error).toMatchObject({ claimedBy: undefined });
});

it("refuses a key whose name is the claim of another key", async () => {
  await expect(fence(redis, ["a", "{a}"], 5)).rejects.toThrow(
    'keys must not be another one in braces: it shares the claim of "a", got "{a}"',
  );
  expect(await redis.keys("*")).toEqual([]);
  await (await fence(redis, ["{a}b", "a{b}"], 5)).set("{a}b", "1");
});

describe("the lifetime of a claim", () => {
  it("is unlimited", async () => {
    await (await fence(redis, "a", 5)).set("a", "x");
    expect(await redis.pttl("{a}:claim")).toBe(-1);
  });

  it("counts from its last use if `keepFor` is set", async () => {
    const fenced = await fence(redis, "a", 5, { keepFor: 60_000 });
    await redis.pexpire("{a}:claim", 10_000);
    await fenced.get("a");
    expect(await redis.pttl("{a}:claim")).toBeGreaterThan(50_000);
  });
});

it("fences off a real holder that was frozen past its lease", async () => {
  const redlock = openRedlock([server]);
  const frozen = await redlock.acquire("stock:42:lock");
  const first = await fence(redis, "stock:42", frozen.fencingToken);
  await first.set("stock:42", 100);
  await redlock.forceRelease("stock:42:lock");
  await redlock.using("stock:42:lock", async (lock) => {
    const second = await fence(redis, "stock:42", lock.fencingToken);
    const left = await second.get("stock:42");
    await expect(sell(first, "100", 1)).rejects.toMatchObject({ claimedBy: lock.fencingToken });
    await sell(second, left, 2);
  });
  expect(await redis.get("stock:42")).toBe("98");
});

it.each<[string, () => Promise<unknown>, string]>([
  ["no client", () => fence(undefined as never, "a", 1), "client must be a client of ioredis or node-redis"],
  [
    "another client",
    () => fence({ eval: () => undefined }, "a", 1),
    "client must be a client of ioredis or node-redis",
  ],
  ["a key that is no string", () => fence(redis, 5 as never, 1), "keys must be a string or an array of strings, got 5"],
  ["no key", () => fence(redis, [], 1), "keys must name at least one key, got []"],
  ["a brace", () => fence(redis, "a}b", 1), 'keys must not have a "}" without a hash tag, got "a}b"'],
  ["a token of text", () => fence(redis, "a", "1" as never), "fencingToken must be an integer >= 1, got "],
  ["no lock's token", () => fence(redis, "a", 0), "fencingToken must be an integer >= 1, got 0"],
  ["a keepFor of 0", () => fence(redis, "a", 1, { keepFor: 0 }), "keepFor must be an integer >= 1 (ms), got 0"],
])("refuses %s before anything is sent", async (_what, call, message) => {
  const before = await server.calls("eval");
  const error = await errorOf(call());
  expect(error instanceof TypeError || error instanceof RangeError).toBe(true);
  expect(String(error)).toContain(message);
  const after = await server.calls("eval");
  expect(after).toBe(before);
});

describe("in a Redis Cluster", () => {
  it("keeps the claim in the slot of its key", async () => {
    await using cluster = await startCluster();
    const nodes = cluster.nodes.map(({ host, port }) => ({ host, port }));
    const plain = new Cluster(nodes);
    const prefixed = new Cluster(nodes, { keyPrefix: "app:" });
    onTestFinished(() => {
      plain.disconnect();
      prefixed.disconnect();
    });
    const nodeRedis = createCluster({ rootNodes: nodes.map((socket) => ({ socket })) });
    await nodeRedis.connect();
    onTestFinished(() => nodeRedis.destroy());
    for (const key of ["stock:42", "{shop}:stock", "ü", "a{b}"]) {
      expect(slotOf(key)).toBe(await plain.cluster("KEYSLOT", key));
      for (const [index, client] of [plain, nodeRedis, prefixed].entries()) {
        const old = await fence(client, key, 2 * index + 1);
        const fenced = await fence(client, key, 2 * index + 2);
        await fenced.set(key, "x");
        expect(await fenced.get(key)).toBe("x");
        await expect(old.get(key)).rejects.toThrow(FencedOffError);
      }
    }
  });
});
