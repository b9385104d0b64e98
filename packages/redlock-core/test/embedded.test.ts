/** Locks that a script takes and releases on the node itself. */
import {
  errorOf,
  LINES,
  ManualClock,
  memberOf,
  putInLine,
  type RedisServer,
  startRedis,
  waitersOf,
} from "@x/test-support";
import fc from "fast-check";
import { Redis } from "ioredis";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { type Lock, type Redlock, RedlockClosedError, systemClock } from "../src/index.ts";
import { readClock } from "../src/kit.ts";
import type { EmbeddedGrant } from "../src/lock/embedded.ts";
import { type EmbeddedLocks, protocolOf } from "../src/protocol.ts";
import { checkLockKey, lockKeyOf, NODE_KEYS, sideKeyOf } from "../src/rules/keys.ts";
import { embedded as lua } from "../src/scripts/embedded.lua.ts";
import { besideLock } from "../src/scripts/side-keys.lua.ts";
import { openRedlock, pass, startNodes } from "./support/nodes.ts";

const TTL_MS = 5_000;
const HEAD = `local call = redis.call\n${lua}\n`;
const TAKE = `${HEAD}return lockIfFree(ARGV[1], ARGV[2], ARGV[3])`;
const GIVE = `${HEAD}return unlockIfUnwanted(ARGV[1], ARGV[2]) and 1 or 0`;

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

function embeddedOf(redlock: Redlock): EmbeddedLocks {
  const { embedded } = protocolOf(redlock);
  if (embedded === undefined) throw new Error("expected embedded locks");
  return embedded;
}

async function take(redlock: Redlock, resource: string, ttl = TTL_MS): Promise<EmbeddedGrant | undefined> {
  const token = embeddedOf(redlock).newToken();
  const { clock } = protocolOf(redlock);
  const asked = readClock(clock);
  const fencingToken = await redis.eval(TAKE, 0, lockKeyOf(redlock.options.keyPrefix, resource), token, ttl);
  return fencingToken === null ? undefined : { resource, token, fencingToken: Number(fencingToken), asked };
}

async function taken(redlock: Redlock, resource: string, ttl = TTL_MS): Promise<Lock> {
  const grant = await take(redlock, resource, ttl);
  const adopted = grant === undefined ? undefined : embeddedOf(redlock).adopt(grant, ttl);
  if (adopted === undefined) throw new Error("expected a grant");
  return adopted;
}

function give(resource: string, lock: Lock): Promise<boolean> {
  return protocolOf(lock).releaseBy((answer) => {
    void redis.eval(GIVE, 0, resource, lock.token).then((reply) => answer.settle(reply === 1));
  });
}

describe("the script of an embedded lock", () => {
  it.each(["a", "a:b", "{t}a", "a{t}b", "{}{t}", "{{t}b", "a{", "}a{", "{a", "ä{ö}", "a}b", "{}a}", "{a}b{c}}"])(
    "uses the same keys as the other scripts: %s",
    async (resource) => {
      const redlock = openRedlock([server]);
      await take(redlock, resource);
      expect((await redis.keys("*")).toSorted()).toEqual([resource, NODE_KEYS.lastNumber].toSorted());
      expect(await redis.pttl(resource)).toBeLessThanOrEqual(TTL_MS);
      await redis.del(resource);
      await putInLine(redis, resource, [memberOf(1, "channel#1")]);
      expect(await take(redlock, resource)).toBeUndefined();
    },
  );

  it.each([
    "{a}:fence",
    "{a}:node:lines",
    "x{a}y:z:note",
    "{x}:node",
    "}:fence",
    "{a}\n:fence",
    "{a}",
    "{{t}",
    "{a}b}",
    "{{}}}",
  ])("acquires no lock whose name is refused: %s", async (resource) => {
    const redlock = openRedlock([server]);
    await expect(redlock.acquire(resource)).rejects.toThrow(RangeError);
    expect(await take(redlock, resource)).toBeUndefined();
    expect(await redis.keys("*")).toEqual([]);
  });

  it("acquires only a free lock, and releases only its own lock if no process waits for it", async () => {
    const redlock = openRedlock([server]);
    const [first, other] = [await taken(redlock, "r"), { token: "0".repeat(40) }];
    expect(await take(redlock, "r")).toBeUndefined();
    expect(await redis.eval(GIVE, 0, "r", other.token)).toBe(0);
    await putInLine(redis, "r", [memberOf(1, "channel#1")]);
    expect(await redis.eval(GIVE, 0, "r", first.token)).toBe(0);
    await redis.del(LINES);
    expect(await redis.eval(GIVE, 0, "r", first.token)).toBe(1);
    expect(await redis.exists("r")).toBe(0);
  });

  it("issues fencing tokens above the tokens of ordinary grants, which in turn exceed its own, with any clocks", async () => {
    const skewed = (ms: number): Redlock =>
      openRedlock([server], { clock: { ...systemClock, wallMs: () => systemClock.wallMs() + ms } });
    const clients = [skewed(0), skewed(60_000), skewed(-60_000)];
    const tokens: number[] = [];
    for (let round = 0; round < 30; round += 1) {
      const redlock = clients[round % clients.length] as Redlock;
      const lock = round % 2 === 0 ? await taken(redlock, "r") : await redlock.acquire("r");
      tokens.push(lock.fencingToken);
      await lock.release();
    }
    await redis.set(NODE_KEYS.lastNumber, String(2 ** 52));
    tokens.push((await taken(clients[0] as Redlock, "r")).fencingToken);
    expect(tokens).toEqual([...new Set(tokens)].toSorted((a, b) => a - b));
    expect(tokens.at(-1)).toBe(2 ** 52 + 1);
  });
});

/** Names are made of the parts that the rules of names mention, so that they hit the rules often. */
const lockKeys = fc
  .array(
    fc.constantFrom(
      ...["{", "}", ":", "{}", "a", "b", "ä", "\n", ".", ":fence", ":claim", ":note", ":node", "x:probe"],
      ...[":semaphore", ":latch:before", ":register", "{x}:client:"],
    ),
    {
      minLength: 1,
      maxLength: 7,
    },
  )
  .map((parts) => parts.join(""));

const isRefused = (key: string): boolean => {
  try {
    checkLockKey(key);
    return false;
  } catch {
    return true;
  }
};

describe("the rules for names in Lua and TypeScript", () => {
  const RULES = `${HEAD}local beside = ${besideLock}
local replies = {}
for at, key in ipairs(ARGV) do
  local taken = lockIfFree(key, 'token', 1000)
  call('DEL', key)
  replies[at] = { beside(key), taken and 0 or 1 }
end
return replies`;

  it("give the keys next to a lock the same names, and refuse the same keys", async () => {
    const seen = { refused: 0, taken: 0 };
    await fc.assert(
      fc.asyncProperty(fc.uniqueArray(lockKeys, { minLength: 30, maxLength: 100 }), async (keys) => {
        const replies = await redis.eval(RULES, 0, ...keys);
        const ours = keys.map((key) => [sideKeyOf(key, "").slice(0, -1), isRefused(key) ? 1 : 0]);
        expect(replies).toEqual(ours);
        for (const key of keys) seen[isRefused(key) ? "refused" : "taken"] += 1;
      }),
    );
    expect(seen.refused).toBeGreaterThan(50);
    expect(seen.taken).toBeGreaterThan(50);
  });
});

describe("the fencing tokens of a script that acquires several locks", () => {
  const RUN = `${HEAD}
local replies = {}
for at, key in ipairs(ARGV) do replies[at] = lockIfFree(key, 'token', 1000) or 'held' end
return replies`;
  const names = Array.from({ length: 60 }, (_, index) => `k${index}`);
  const steps = fc.array(fc.constantFrom(...names), { minLength: 1, maxLength: 50 });

  it("increase in the order of its steps and from script to script, and do not exceed the stored number", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(steps, { minLength: 1, maxLength: 4 }), async (scripts) => {
        await redis.del(names);
        const given: number[] = [];
        for (const each of scripts) {
          const replies = (await redis.eval(RUN, 0, ...each)) as string[];
          given.push(...replies.filter((reply) => reply !== "held").map(Number));
          const written = Number(await redis.get(NODE_KEYS.lastNumber));
          if (given.length > 0) expect(given.at(-1)).toBeLessThanOrEqual(written);
        }
        expect(given).toEqual([...new Set(given)].toSorted((a, b) => a - b));
      }),
    );
  });
});

describe("an embedded lock", () => {
  it("is an ordinary lock: other calls see it as held and acquire it when it is released", async () => {
    const [redlock, other] = [openRedlock([server]), openRedlock([server])];
    const told: string[] = [];
    redlock.on("acquired", ({ resources }) => told.push(`acquired ${resources.join()}`));
    redlock.on("acquireFailed", ({ reason, resources }) => told.push(`${reason} ${resources.join()}`));
    redlock.on("released", ({ confirmed }) => told.push(`released ${confirmed}`));
    const held = await taken(redlock, "r");
    expect(held.isHeld()).toBe(true);
    expect(held.remaining()).toBeLessThanOrEqual(TTL_MS);
    expect(await other.tryAcquire("r")).toBeNull();
    expect(await redlock.tryAcquire("r")).toBeNull();
    expect(await give("r", held)).toBe(true);
    expect(held.isHeld()).toBe(false);
    expect(await held.release()).toBe(true);
    expect((await other.tryAcquire("r"))?.isHeld()).toBe(true);
    expect(told.filter((text) => !text.startsWith("held"))).toEqual(["acquired r", "released true"]);
  });

  it("is handed over to waiters of this process and of other processes", async () => {
    const [redlock, other] = [openRedlock([server]), openRedlock([server])];
    const held = await taken(redlock, "r");
    const got: string[] = [];
    const waiting = [redlock, other].map(async (client, index) => {
      const lock = await client.acquire("r", { timeout: 10_000 });
      got.push(String(index));
      await lock.release();
    });
    await expect.poll(() => waitersOf(redis, "r")).toBe(2);
    expect(got).toEqual([]);
    expect(await give("r", held)).toBe(true);
    await Promise.all(waiting);
    expect(got.toSorted()).toEqual(["0", "1"]);
  });

  it("makes even waiters of its own process wait at the node, so that they precede the next script", async () => {
    const redlock = openRedlock([server]);
    const held = await taken(redlock, "r");
    const waiting = redlock.acquire("r", { timeout: 3_000 });
    await expect.poll(() => waitersOf(redis, "r")).toBe(1);
    const released = give("r", held);
    expect(await take(redlock, "r")).toBeUndefined();
    expect(await released).toBe(true);
    expect((await waiting).isHeld()).toBe(true);
  });

  it("does not wake waiters of this process before the script that releases it has run", async () => {
    const redlock = openRedlock([server]);
    const held = await redlock.acquire("r");
    const isWaiting = new Promise((resolve) => redlock.on("refused", resolve));
    const waiting = redlock.acquire("r", { timeout: 5_000 });
    await isWaiting;
    let answer: { settle(isDeleted: boolean): void } | undefined;
    const released = protocolOf(held).releaseBy((given) => (answer = given));
    // Nothing overtakes on a connection.
    await redlock.inspect("another");
    expect(await redis.exists(LINES)).toBe(0);
    await redis.del("r");
    answer?.settle(true);
    expect(await released).toBe(true);
    expect((await waiting).isHeld()).toBe(true);
  });

  it("is released by a separate request if it has been extended", async () => {
    const clock = new ManualClock();
    const redlock = openRedlock([server], { clock });
    const held = await taken(redlock, "r", 30_000);
    await pass(redlock, clock, { steps: 50, stepMs: 1_000 });
    expect(held.isHeld()).toBe(true);
    let isAsked = false;
    expect(
      await protocolOf(held).releaseBy((answer) => {
        isAsked = true;
        answer.settle(true);
      }),
    ).toBe(true);
    expect(isAsked).toBe(false);
    expect(await redis.exists("r")).toBe(0);
  });

  it("is released by a separate request if its script did not release it", async () => {
    const redlock = openRedlock([server]);
    const held = await taken(redlock, "r");
    expect(await protocolOf(held).releaseBy((answer) => answer.settle(false))).toBe(true);
    expect(await redis.exists("r")).toBe(0);
  });

  it("is released by a separate request, once, if its script does not report in time", async () => {
    const redlock = openRedlock([server], { nodeTimeout: 100 });
    const held = await taken(redlock, "r");
    let answer: { settle(isDeleted: boolean): void } | undefined;
    expect(await protocolOf(held).releaseBy((given) => (answer = given))).toBe(true);
    expect(await redis.exists("r")).toBe(0);
    const next = await taken(redlock, "r");
    answer?.settle(false);
    await redlock.inspect("another");
    expect(await redis.get("r")).toBe(next.token);
  });

  it("is extended in time even if the answer arrived late", async () => {
    const clock = new ManualClock();
    const redlock = openRedlock([server], { clock });
    const grant = (await take(redlock, "r", 30_000)) as EmbeddedGrant;
    await clock.advance(18_000);
    const held = embeddedOf(redlock).adopt(grant, 30_000);
    await pass(redlock, clock, { steps: 18, stepMs: 1_000 });
    expect(held?.isHeld()).toBe(true);
    await held?.release();
  });

  it("is released if it is not wanted", async () => {
    const redlock = openRedlock([server]);
    const grant = (await take(redlock, "r")) as EmbeddedGrant;
    expect(await embeddedOf(redlock).drop(grant, TTL_MS)).toBe(true);
    expect(await redis.exists("r")).toBe(0);
  });

  it("is released instead of adopted if its lease has expired when the answer arrives", async () => {
    const redlock = openRedlock([server]);
    const grant = (await take(redlock, "r")) as EmbeddedGrant;
    const { asked: sent } = grant;
    const asked = { ...sent, monotonicMs: sent.monotonicMs - TTL_MS };
    expect(embeddedOf(redlock).adopt({ ...grant, asked }, TTL_MS)).toBeUndefined();
    await expect.poll(() => redis.exists("r")).toBe(0);
  });

  it.each([
    [
      "taken",
      async (lock: Lock): Promise<unknown> => [await redis.set("a", "another's"), await errorOf(lock.extend())],
    ],
    ["released", (lock: Lock): Promise<unknown> => give("a", lock)],
  ])("notifies a call that has joined it, inside the code it is lent to, when it is %s", async (reason, end) => {
    const redlock = openRedlock([server]);
    const lock = await taken(redlock, "a");
    const lent = { holder: "a test", joins: true, fencingToken: lock.fencingToken };
    const nested = async ({ signal }: Lock): Promise<void> => {
      expect(signal.aborted).toBe(false);
      await end(lock);
      expect(signal.reason).toMatchObject({ code: "LOCK_LOST", reason, fencingToken: lock.fencingToken });
    };
    await protocolOf(redlock).inside(lock, lent, () => redlock.using("a", nested));
  });

  it("is released when its Redlock is closed, after which no lock is adopted", async () => {
    const redlock = openRedlock([server]);
    const held = await taken(redlock, "r");
    const late = (await take(redlock, "late")) as EmbeddedGrant;
    const embedded = embeddedOf(redlock);
    await redlock.close();
    expect([held.isHeld(), await redis.exists("r")]).toEqual([false, 0]);
    expect(() => embedded.adopt(late, TTL_MS)).toThrow(RedlockClosedError);
  });
});

it("is offered only if one node has all the votes and is trusted to forget nothing", async () => {
  const nodes = await startNodes(3);
  expect(protocolOf(openRedlock(nodes)).embedded).toBeUndefined();
  expect(protocolOf(openRedlock([server], { quarantine: true })).embedded).toBeUndefined();
  const cluster = { name: "cluster", isCluster: true, state: "ready", eval: () => Promise.reject(new Error("none")) };
  const node = { ...cluster, onStateChange: () => () => undefined, close: () => Promise.resolve() } as const;
  expect(protocolOf(openRedlock([node])).embedded).toBeUndefined();
  expect(protocolOf(openRedlock([server])).embedded).toBeDefined();
  const lock = await openRedlock(nodes).acquire("r");
  expect(await protocolOf(lock).releaseBy((answer) => answer.settle(true))).toBe(true);
  const everywhere = (): Promise<readonly unknown[]> => Promise.all(nodes.map((each) => each.call("EXISTS", "r")));
  await expect.poll(everywhere).toEqual([0, 0, 0]);
});
