/**
 * node-redlock 5's own test cases (those of one and of several instances, of mike-marcacci/node-redlock), then its known
 * defects, each of which must be gone (B1 to B8 as its reports and its source have them), then what is ours.
 */
import { setTimeout as delay, setImmediate as immediate } from "node:timers/promises";
import { Redlock as CoreRedlock, systemClock } from "@x/redlock-core";
import { errorOf, type RedisServer, startCluster, startProxy, startRedis, startRedisNodes } from "@x/test-support";
import { Cluster, Redis } from "ioredis";
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished, vi } from "vitest";
import Redlock, {
  type Client,
  type EngineSettings,
  ExecutionError,
  type ExecutionResult,
  type ExecutionStats,
  Lock,
  type RedlockAbortSignal,
  ResourceLockedError,
  type Settings,
} from "../src/index.ts";

/** What node-redlock's own tests use: about 28,000 years. */
const forever = Math.floor(Number.MAX_SAFE_INTEGER / 10);

interface Place {
  readonly client: Redis | Cluster;
  readonly close: () => Promise<void>;
}

async function onInstance(): Promise<Place> {
  const server = await startRedis();
  const client = new Redis(server.path);
  return {
    client,
    close: async () => {
      client.disconnect();
      await server.stop();
    },
  };
}

async function onCluster(): Promise<Place> {
  const cluster = await startCluster({ masters: 1 });
  const client = new Cluster(cluster.nodes.map(({ host, port }) => ({ host, port })));
  return {
    client,
    close: async () => {
      client.disconnect();
      await cluster.stop();
    },
  };
}

/** Expiry as node-redlock's tests check it, but with room for a slow machine. */
async function expectExpiry(client: Redis | Cluster, key: string, duration: number): Promise<void> {
  const pttl = await client.pttl(key);
  expect(pttl).toBeLessThanOrEqual(duration);
  expect(pttl).toBeGreaterThan(duration - 20_000);
}

/** Of each attempt, with the clients' indexes for the clients. */
async function votesOf({ attempts }: ExecutionResult, clients: readonly Client[]): Promise<object[]> {
  return await Promise.all(
    attempts.map(async (attempt) => {
      const { votesFor, votesAgainst, ...sizes } = await attempt;
      const indexes = (voters: Iterable<Client>): number[] =>
        [...voters].map((voter) => clients.indexOf(voter)).toSorted((a, b) => a - b);
      return { ...sizes, votesFor: indexes(votesFor), votesAgainst: indexes(votesAgainst.keys()) };
    }),
  );
}

async function votesAgainst({ attempts }: ExecutionError): Promise<Error[]> {
  const errors: Error[] = [];
  for (const attempt of attempts) errors.push(...(await attempt).votesAgainst.values());
  return errors;
}

/** Resolves when the signal is, or was already, aborted. */
async function abortOf(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
}

async function executionErrorOf(promise: Promise<unknown>): Promise<ExecutionError> {
  const error = await errorOf(promise);
  expect(error).toBeInstanceOf(ExecutionError);
  return error as ExecutionError;
}

describe.each([
  { namespace: "instance", open: onInstance },
  { namespace: "cluster", open: onCluster },
])("node-redlock's tests, single $namespace", ({ open }) => {
  let place: Place;
  let redis: Redis | Cluster;
  beforeAll(async () => {
    place = await open();
    redis = place.client;
  });
  afterAll(() => place.close());

  it("acquires, extends, and releases a single lock", async () => {
    const redlock = new Redlock([redis]);
    let lock = await redlock.acquire(["{redlock}a"], forever);
    expect(await redis.get("{redlock}a")).toBe(lock.value);
    await expectExpiry(redis, "{redlock}a", forever);
    lock = await lock.extend(3 * forever);
    expect(await redis.get("{redlock}a")).toBe(lock.value);
    await expectExpiry(redis, "{redlock}a", 3 * forever);
    await lock.release();
    expect(await redis.get("{redlock}a")).toBeNull();
  });

  it("acquires, extends, and releases a multi-resource lock", async () => {
    const redlock = new Redlock([redis]);
    let lock = await redlock.acquire(["{redlock}a1", "{redlock}a2"], forever);
    for (const key of ["{redlock}a1", "{redlock}a2"]) {
      expect(await redis.get(key)).toBe(lock.value);
      await expectExpiry(redis, key, forever);
    }
    lock = await lock.extend(3 * forever);
    for (const key of ["{redlock}a1", "{redlock}a2"]) {
      expect(await redis.get(key)).toBe(lock.value);
      await expectExpiry(redis, key, 3 * forever);
    }
    await lock.release();
    expect(await redis.get("{redlock}a1")).toBeNull();
    expect(await redis.get("{redlock}a2")).toBeNull();
  });

  it("fails when redis is unreachable", async () => {
    const down = await startRedis();
    await down.stop();
    const unreachable = new Redis({
      path: down.path,
      maxRetriesPerRequest: 0,
      autoResendUnfulfilledCommands: false,
      autoResubscribe: false,
      retryStrategy: () => null,
      reconnectOnError: () => false,
    });
    unreachable.on("error", () => undefined);
    onTestFinished(() => unreachable.disconnect());
    const redlock = new Redlock([unreachable]);
    const error = await executionErrorOf(redlock.acquire(["{redlock}b"], forever));
    expect(error.attempts).toHaveLength(11);
    const votes = await votesAgainst(error);
    expect(votes).toHaveLength(11);
    for (const vote of votes) expect(vote.message).toBe("Connection is closed.");
  });

  it("automatically expires locks", async () => {
    const redlock = new Redlock([redis]);
    const lock = await redlock.acquire(["{redlock}d"], 1_000);
    expect(await redis.get("{redlock}d")).toBe(lock.value);
    await expect.poll(() => redis.get("{redlock}d")).toBeNull();
    const lock2 = await redlock.acquire(["{redlock}d"], 2_000);
    expect(lock2.value).not.toBe(lock.value);
    expect(await redis.get("{redlock}d")).toBe(lock2.value);
    await lock2.release();
    expect(await redis.get("{redlock}d")).toBeNull();
  });

  it("has exclusive individual locks", async () => {
    const redlock = new Redlock([redis]);
    const lock = await redlock.acquire(["{redlock}c"], forever);
    const error = await executionErrorOf(redlock.acquire(["{redlock}c"], forever));
    expect(error.attempts).toHaveLength(11);
    for (const vote of await votesAgainst(error)) expect(vote).toBeInstanceOf(ResourceLockedError);
    expect(await redis.get("{redlock}c")).toBe(lock.value);
    await lock.release();
    expect(await redis.get("{redlock}c")).toBeNull();
  });

  it("has exclusive overlapping multi-locks", async () => {
    const redlock = new Redlock([redis]);
    const lock = await redlock.acquire(["{redlock}c1", "{redlock}c2"], forever);
    const error = await executionErrorOf(redlock.acquire(["{redlock}c2", "{redlock}c3"], forever));
    expect(await redis.get("{redlock}c1")).toBe(lock.value);
    expect(await redis.get("{redlock}c2")).toBe(lock.value);
    expect(await redis.get("{redlock}c3")).toBeNull();
    expect(error.attempts).toHaveLength(11);
    for (const vote of await votesAgainst(error)) expect(vote).toBeInstanceOf(ResourceLockedError);
    await lock.release();
    expect(await redis.get("{redlock}c1")).toBeNull();
    expect(await redis.get("{redlock}c2")).toBeNull();
  });

  it("acquires, extends, and releases in `using`", async () => {
    const redlock = new Redlock([redis]);
    const value = await redlock.using(
      ["{redlock}x"],
      2_000,
      { automaticExtensionThreshold: 1_500 },
      async (signal: RedlockAbortSignal) => {
        const lockValue = await redis.get("{redlock}x");
        expect(typeof lockValue).toBe("string");
        // Longer than the lease that it was acquired with.
        await delay(2_600);
        expect(signal.aborted).toBe(false);
        expect(signal.error).toBeUndefined();
        expect(await redis.get("{redlock}x")).toBe(lockValue);
        return lockValue;
      },
    );
    expect(typeof value).toBe("string");
    expect(await redis.get("{redlock}x")).toBeNull();
  });

  it("is exclusive in `using`", async () => {
    const redlock = new Redlock([redis]);
    let locked = false;
    const routine = async (signal: RedlockAbortSignal): Promise<string | null> => {
      expect(locked).toBe(false);
      locked = true;
      const lockValue = await redis.get("{redlock}y");
      // Longer than the lease that it was acquired with.
      await delay(1_300);
      expect(signal.error).toBeUndefined();
      expect(signal.aborted).toBe(false);
      expect(await redis.get("{redlock}y")).toBe(lockValue);
      locked = false;
      return lockValue;
    };
    const [lock1, lock2] = await Promise.all([
      redlock.using(["{redlock}y"], 1_200, { automaticExtensionThreshold: 1_000 }, routine),
      redlock.using(["{redlock}y"], 1_200, { automaticExtensionThreshold: 1_000 }, routine),
    ]);
    expect(lock1).not.toBe(lock2);
    expect(await redis.get("{redlock}y")).toBeNull();
  });
});

describe.each([
  { namespace: "instances", open: onInstance, count: 3 },
  { namespace: "clusters", open: onCluster, count: 3 },
  { namespace: "instances", open: onInstance, count: 4 },
])("node-redlock's tests, $count $namespace", ({ open, count }) => {
  let places: Place[];
  let clients: (Redis | Cluster)[];
  beforeAll(async () => {
    places = await Promise.all(Array.from({ length: count }, open));
    clients = places.map((place) => place.client);
  });
  afterAll(async () => {
    await Promise.all(places.map((place) => place.close()));
  });

  const valuesOf = (key: string): Promise<(string | null)[]> => Promise.all(clients.map((client) => client.get(key)));

  it("acquires, extends, and releases a single lock", async () => {
    const redlock = new Redlock(clients);
    let lock = await redlock.acquire(["{redlock}a"], forever);
    expect(await valuesOf("{redlock}a")).toEqual(clients.map(() => lock.value));
    for (const client of clients) await expectExpiry(client, "{redlock}a", forever);
    lock = await lock.extend(3 * forever);
    expect(await valuesOf("{redlock}a")).toEqual(clients.map(() => lock.value));
    for (const client of clients) await expectExpiry(client, "{redlock}a", 3 * forever);
    await lock.release();
    expect(await valuesOf("{redlock}a")).toEqual(clients.map(() => null));
  });

  it("succeeds when a minority of clients fail", async () => {
    const redlock = new Redlock(clients);
    const [other, ...rest] = clients.toReversed();
    await other?.set("{redlock}b", "other");
    let lock = await redlock.acquire(["{redlock}b"], forever);
    for (const client of rest) expect(await client.get("{redlock}b")).toBe(lock.value);
    expect(await other?.get("{redlock}b")).toBe("other");
    expect(await other?.pttl("{redlock}b")).toBe(-1);
    lock = await lock.extend(3 * forever);
    for (const client of rest) await expectExpiry(client, "{redlock}b", 3 * forever);
    expect(await other?.get("{redlock}b")).toBe("other");
    expect(await other?.pttl("{redlock}b")).toBe(-1);
    await lock.release();
    for (const client of rest) expect(await client.get("{redlock}b")).toBeNull();
    expect(await other?.get("{redlock}b")).toBe("other");
  });

  it("fails when a majority of clients fail", async () => {
    const redlock = new Redlock(clients);
    const [first, ...others] = clients;
    for (const [index, client] of others.entries()) await client.set("{redlock}c", `other${index}`);
    const error = await executionErrorOf(redlock.acquire(["{redlock}c"], forever));
    expect(error.attempts).toHaveLength(11);
    expect(await first?.get("{redlock}c")).toBeNull();
    for (const [index, client] of others.entries()) expect(await client.get("{redlock}c")).toBe(`other${index}`);
    const votes = await votesAgainst(error);
    expect(votes).toHaveLength(11 * others.length);
    for (const vote of votes) {
      expect(vote).toBeInstanceOf(ResourceLockedError);
      expect(vote.message).toBe("The operation was applied to: 0 of the 1 requested resources.");
    }
  });
});

/** Servers, and clients that end with the test. */
async function nodes(
  count: number,
): Promise<{ readonly servers: readonly RedisServer[]; readonly clients: readonly Redis[] }> {
  const servers = await startRedisNodes(count);
  const clients = servers.map((server) => clientOf({ path: server.path }));
  onTestFinished(async () => {
    await Promise.all(servers.map((server) => server.stop()));
  });
  return { servers, clients };
}

function clientOf(
  target: { readonly path: string; readonly keyPrefix?: string } | { readonly host: string; readonly port: number },
): Redis {
  const client = new Redis({ ...target });
  client.on("error", () => undefined);
  onTestFinished(() => client.disconnect());
  return client;
}

function open(clients: readonly Client[], settings: Partial<Settings> & EngineSettings = {}): Redlock {
  return new Redlock(clients, settings);
}

describe("node-redlock's defects are gone", () => {
  it("B1: a tie of an even number of clients is decided", async () => {
    const { clients } = await nodes(2);
    const redlock = open(clients, { retryCount: 0 });
    await (await redlock.acquire(["warm"], 10_000)).release();
    await clients[1]?.set("tie", "another's");
    const error = await executionErrorOf(redlock.acquire(["tie"], 10_000));
    expect(await votesOf(error, clients)).toEqual([
      { membershipSize: 2, quorumSize: 2, votesFor: [0], votesAgainst: [1] },
    ]);
  });

  it("B1: clients that hang hang no call", async () => {
    const { servers, clients } = await nodes(3);
    await Promise.all(clients.map((client) => client.ping()));
    const redlock = open(clients, { retryCount: 1, retryDelay: 10, retryJitter: 5, nodeTimeout: 100 });
    await (await redlock.acquire(["warm"], 10_000)).release();
    for (const server of servers.slice(1)) server.freeze();
    onTestFinished(() => {
      for (const server of servers) server.thaw();
    });
    const error = await executionErrorOf(redlock.acquire(["hung"], 10_000));
    expect(error.attempts).toHaveLength(2);
    const votes = await votesAgainst(error);
    expect(votes).toHaveLength(4);
    for (const vote of votes) expect(vote.message).toContain("no answer within 100 ms");
  });

  it("B1: connected clients that hang hang no call, also where no connection beside theirs is open", async () => {
    const { servers, clients } = await nodes(1);
    await clients[0]?.ping();
    servers[0]?.freeze();
    onTestFinished(() => servers[0]?.thaw());
    const redlock = open(clients, { retryCount: 0 });
    await executionErrorOf(redlock.acquire(["hung"], 10_000));
    expect(clients[0]?.status).toBe("ready");
  });

  it("B2: what a failed attempt got does not block the next one", async () => {
    const { servers, clients } = await nodes(3);
    const redlock = open(clients, { retryDelay: 50, retryJitter: 0, retryCount: 100, nodeTimeout: 100 });
    await (await redlock.acquire(["warm"], 10_000)).release();
    await clients[2]?.set("self", "another's");
    servers[1]?.freeze();
    const acquired = redlock.acquire(["self"], 10_000);
    await expect.poll(() => clients[0]?.get("self")).toEqual(expect.any(String));
    await expect.poll(() => clients[0]?.get("self")).toBeNull();
    servers[1]?.thaw();
    const lock = await acquired;
    expect(lock.attempts.length).toBeGreaterThan(1);
    expect(await clients[0]?.get("self")).toBe(lock.value);
    expect(await clients[1]?.get("self")).toBe(lock.value);
  });

  it("B3: a lock that has expired by the time of the quorum is not handed out", async () => {
    const { servers } = await nodes(1);
    const proxy = await startProxy({ path: servers[0]?.path ?? "" });
    onTestFinished(() => proxy.stop());
    const client = clientOf({ host: proxy.host, port: proxy.port });
    const redlock = open([client], { retryCount: 0, nodeTimeout: 5_000 });
    await (await redlock.acquire(["warm"], 10_000)).release();
    proxy.delay(400, "down");
    await executionErrorOf(redlock.acquire(["late"], 300));
    proxy.delay(0, "down");
  });

  it("B3: a lock acquired after retries is valid from its last attempt", async () => {
    const { clients } = await nodes(1);
    await clients[0]?.set("retried", "another's", "PX", 900);
    const redlock = open(clients, { retryDelay: 100, retryJitter: 0, retryCount: 50 });
    const lock = await redlock.acquire(["retried"], 600);
    expect(lock.expiration).toBeGreaterThan(Date.now());
    expect((await lock.extend(5_000)).expiration).toBeGreaterThan(lock.expiration);
  });

  it("B4: `using` settles as its routine does when the lock is gone at the end", async () => {
    const { clients } = await nodes(1);
    const redlock = open(clients);
    const result = await redlock.using(["gone"], 10_000, async () => {
      await clients[0]?.del("gone");
      return "result";
    });
    expect(result).toBe("result");
    const failure = new Error("the routine's own");
    const error = await errorOf(
      redlock.using(["gone"], 10_000, async () => {
        await clients[0]?.del("gone");
        throw failure;
      }),
    );
    expect(error).toBe(failure);
  });

  it("B4: releasing a lock that is gone is told at once, without retries", async () => {
    const { clients } = await nodes(3);
    const redlock = open(clients, { retryCount: -1 });
    const lock = await redlock.acquire(["gone"], 10_000);
    await Promise.all(clients.map((client) => client.del("gone")));
    const error = await executionErrorOf(lock.release());
    expect(error.attempts).toHaveLength(1);
  });

  it("B5: nothing is extended or aborted after the routine has ended", async () => {
    const { servers } = await nodes(1);
    const proxy = await startProxy({ path: servers[0]?.path ?? "" });
    onTestFinished(() => proxy.stop());
    const client = clientOf({ host: proxy.host, port: proxy.port });
    const redlock = open([client], { nodeTimeout: 5_000 });
    let seen: RedlockAbortSignal | undefined;
    const scripts = async (): Promise<number> =>
      Number(/cmdstat_evalsha:calls=(\d+)/.exec(String(await servers[0]?.call("INFO", "commandstats")))?.[1]);
    await redlock.using(["b5"], 2_000, { automaticExtensionThreshold: 1_900 }, async (signal) => {
      seen = signal;
      // The first extension is under way when the routine ends.
      const sent = await scripts();
      proxy.delay(300, "down");
      await expect.poll(scripts).toBeGreaterThan(sent);
    });
    proxy.delay(0);
    // Longer than the lease, whose end would abort it.
    await delay(2_200);
    expect(seen?.aborted).toBe(false);
    expect(await servers[0]?.call("GET", "b5")).toBeNull();
  });

  it("B6: the signal aborts when the validity ends, though no client answers", async () => {
    const { servers, clients } = await nodes(1);
    const redlock = open(clients);
    const error = await redlock.using(["b6"], 800, { automaticExtensionThreshold: 400 }, async (signal) => {
      servers[0]?.freeze();
      try {
        await abortOf(signal);
        return signal.error;
      } finally {
        servers[0]?.thaw();
      }
    });
    expect(error).toBeInstanceOf(ExecutionError);
  });

  it("B6: the signal aborts soon after the machine was suspended, which timers do not notice", async () => {
    const { clients } = await nodes(1);
    await open(clients).using(["b6"], 60_000, async (signal) => {
      const { now } = Date;
      vi.spyOn(Date, "now").mockImplementation(() => now() + 3_600_000);
      onTestFinished(() => void vi.restoreAllMocks());
      await expect.poll(() => signal.aborted).toBe(true);
    });
  });

  it("B6: extensions that fail at once are repeated with pauses, until the lock is lost", async () => {
    const { servers, clients } = await nodes(1);
    const redlock = open(clients);
    const errors: Error[] = [];
    redlock.on("error", (error: Error) => errors.push(error));
    await redlock.using(["b6b"], 1_000, { automaticExtensionThreshold: 800 }, async (signal) => {
      await servers[0]?.kill();
      await abortOf(signal);
      expect(signal.reason).toBe(signal.error);
      expect(signal.error).toBeInstanceOf(ExecutionError);
    });
    expect(errors.length).toBeGreaterThan(2);
    expect(errors.length).toBeLessThan(100);
  });

  it("B6: the signal aborts at once when a quorum says that the lock is not ours", async () => {
    const { clients } = await nodes(1);
    const redlock = open(clients);
    const aborted = await redlock.using(["b6c"], 60_000, { automaticExtensionThreshold: 59_800 }, async (signal) => {
      await clients[0]?.set("b6c", "another's");
      await abortOf(signal);
      return signal.aborted;
    });
    expect(aborted).toBe(true);
    expect(await clients[0]?.get("b6c")).toBe("another's");
  });

  it("B7: contention is no `error` event, and nothing is rejected unhandled", async () => {
    const unhandled = vi.fn<(reason: unknown) => void>();
    process.on("unhandledRejection", unhandled);
    onTestFinished(() => void process.removeListener("unhandledRejection", unhandled));
    const { servers, clients } = await nodes(3);
    const redlock = open(clients, { retryCount: 2, retryDelay: 20, retryJitter: 10 });
    const errors = vi.fn<(error: Error) => void>();
    redlock.on("error", errors);
    const lock = await redlock.acquire(["b7"], 10_000);
    await executionErrorOf(redlock.acquire(["b7"], 10_000));
    expect(errors).not.toHaveBeenCalled();
    await lock.release();
    await servers[0]?.kill();
    await expect
      .poll(async () => {
        await (await redlock.acquire(["b7"], 10_000)).release();
        return errors.mock.calls.length;
      })
      .toBeGreaterThan(0);
    await immediate();
    expect(unhandled).not.toHaveBeenCalled();
  });

  it("B8: a script cache that was flushed leaves no orphan behind", async () => {
    const { clients } = await nodes(3);
    const redlock = open(clients, { retryCount: 3, retryDelay: 20, retryJitter: 10 });
    await (await redlock.acquire(["warm"], 10_000)).release();
    await Promise.all(clients.map((client) => client.script("FLUSH")));
    const lock = await redlock.acquire(["b8"], 10_000);
    await lock.release();
    for (const client of clients) expect(await client.get("b8")).toBeNull();
  });
});

describe("the node-redlock entry on this engine", () => {
  it.each(["retryCount", "retryDelay", "retryJitter", "driftFactor"])(
    "takes %s: undefined as left out",
    async (name) => {
      const server = await startRedis();
      onTestFinished(() => server.stop());
      const redlock = open([clientOf({ path: server.path })], { retryCount: 1, retryDelay: 10, retryJitter: 5 });
      await server.call("SET", "held", "x");
      const settings = { [name]: undefined } as Partial<Settings>;
      expect(await errorOf(redlock.acquire(["held"], 1_000, settings))).toBeInstanceOf(ExecutionError);
      expect(await redlock.using(["free"], 1_000, settings, () => Promise.resolve("done"))).toBe("done");
    },
  );

  afterEach(() => {
    vi.restoreAllMocks();
  });

  it("excludes the core's locks and is excluded by them, with increasing fencing tokens", async () => {
    const { servers, clients } = await nodes(3);
    const core = new CoreRedlock(
      servers.map((server) => ({ path: server.path })),
      { quarantine: false },
    );
    onTestFinished(() => core.close());
    const redlock = open(clients, { retryCount: 0 });
    const first = await redlock.acquire(["both"], 10_000);
    expect(await core.tryAcquire("both")).toBeNull();
    await first.release();
    const second = await core.acquire("both");
    await executionErrorOf(redlock.acquire(["both"], 10_000));
    await second.release();
    const third = await redlock.acquire(["both"], 10_000, { retryCount: 5 });
    expect(second.fencingToken).toBeGreaterThan(first.fencingToken ?? Number.POSITIVE_INFINITY);
    expect(third.fencingToken).toBeGreaterThan(second.fencingToken);
    await third.release();
  });

  it.each([
    ["by hand", { eval: async () => 1, evalsha: async () => 1, quit: async () => "OK" }],
    ["ioredis-mock", Object.create({ duplicate: () => undefined, evalsha: async () => 1 }, {})],
    ["vi.mock", Object.create(Redis.prototype)],
  ] as const)("says what to do instead of a fake: %s", (_, fake: unknown) => {
    expect(() => open([fake as Client])).toThrow(TypeError);
    expect(() => open([fake as Client])).toThrow(/a fake of a client cannot hold locks; in tests start a redis-server/);
  });

  it("locks in the database that a client has selected, as node-redlock does", async () => {
    const { clients } = await nodes(1);
    const [client] = clients as [Redis];
    const redlock = open(clients);
    for (const database of [0, 3]) {
      await client.select(database);
      const lock = await redlock.acquire(["selected"], 10_000);
      expect(await client.get("selected")).toBe(lock.value);
    }
  });

  it("counts a key of another type, such as a sorted set of another library, as locked", async () => {
    const { clients } = await nodes(1);
    const [client] = clients as [Redis];
    await client.zadd("typed", 1, "other library");
    const redlock = open(clients, { retryCount: 0 });
    const failed: Error[] = [];
    redlock.on("error", (error: Error) => void failed.push(error));
    const error = (await errorOf(redlock.acquire(["typed"], 1_000))) as ExecutionError;
    expect(error).toBeInstanceOf(ExecutionError);
    for (const vote of await votesAgainst(error)) expect(vote).toBeInstanceOf(ResourceLockedError);
    const mine = await redlock.acquire(["retyped"], 1_000);
    await client.del("retyped");
    await client.zadd("retyped", 1, "other library");
    const release = (await errorOf(mine.release())) as ExecutionError;
    expect(release).toBeInstanceOf(ExecutionError);
    for (const vote of await votesAgainst(release)) expect(vote).toBeInstanceOf(ResourceLockedError);
    expect(await client.zcard("retyped")).toBe(1);
    expect(failed).toEqual([]);
  });

  it("hands a lock over when it is released, long before the retry delay", async () => {
    const { clients } = await nodes(3);
    const redlock = open(clients, { retryCount: 1, retryDelay: 1_000_000, retryJitter: 0 });
    const lock = await redlock.acquire(["queue"], 60_000);
    const next = redlock.acquire(["queue"], 60_000);
    await expect.poll(() => clients[0]?.zcard("{queue}:waiters")).toBe(1);
    await lock.release();
    await (await next).release();
  });

  it("serves who waits before those who come later, also if its process's clock is ahead", async () => {
    const { servers, clients } = await nodes(1);
    const wallMs = Date.now.bind(Date);
    const [holding, core] = [1, 2].map(() => {
      const each = new CoreRedlock(servers[0]?.path ?? "", { clock: { ...systemClock, wallMs } });
      onTestFinished(() => each.close());
      return each;
    }) as [CoreRedlock, CoreRedlock];
    vi.spyOn(Date, "now").mockImplementation(() => wallMs() + 3_600_000);
    const redlock = open(clients, { retryCount: -1, retryDelay: 1_000_000, retryJitter: 0 });
    const lock = await holding.acquire("queue", { ttl: 60_000 });
    const served: string[] = [];
    const first = redlock.using(["queue"], 60_000, async () => void served.push("first"));
    await expect.poll(() => clients[0]?.zcard("{queue}:waiters")).toBe(1);
    const last = core.using("queue", () => void served.push("last"), { ttl: 60_000, timeout: 60_000 });
    await expect.poll(() => clients[0]?.zcard("{queue}:waiters")).toBe(2);
    await lock.release();
    await Promise.all([first, last]);
    expect(served).toEqual(["first", "last"]);
  });

  it("keeps to the settings of a call", async () => {
    const { clients } = await nodes(1);
    const redlock = open(clients, { retryDelay: 1_000_000 });
    const lock = await redlock.acquire(["per-call"], 10_000);
    const none = await executionErrorOf(redlock.acquire(["per-call"], 10_000, { retryCount: 0 }));
    expect(none.attempts).toHaveLength(1);
    const three = await executionErrorOf(
      redlock.acquire(["per-call"], 10_000, { retryCount: 3, retryDelay: 5, retryJitter: 5 }),
    );
    expect(three.attempts).toHaveLength(4);
    await redlock.release(lock, { retryCount: 0 });
  });

  it("retries without end with a retryCount of -1", async () => {
    const { clients } = await nodes(1);
    await clients[0]?.set("endless", "another's");
    const redlock = open(clients, { retryCount: -1, retryDelay: 1, retryJitter: 0 });
    const acquired = redlock.acquire(["endless"], 10_000);
    const asked = async (): Promise<number> => {
      const stats = (await clients[0]?.info("commandstats")) ?? "";
      return Number(/cmdstat_evalsha:calls=(\d+)/.exec(stats)?.[1] ?? 0);
    };
    const before = await asked();
    // The default gives up after eleven.
    await expect.poll(asked, { timeout: 30_000 }).toBeGreaterThan(before + 11);
    await clients[0]?.del("endless");
    const lock = await acquired;
    expect(lock.attempts.length).toBeGreaterThan(11);
    await lock.release();
  });

  it("tells how each client voted", async () => {
    const { clients } = await nodes(3);
    const redlock = open(clients);
    await (await redlock.acquire(["warm"], 10_000)).release();
    await clients[2]?.set("votes", "another's");
    const lock = await redlock.acquire(["votes"], 10_000);
    const votes = [{ membershipSize: 3, quorumSize: 2, votesFor: [0, 1], votesAgainst: [2] }];
    expect(await votesOf(lock, clients)).toEqual(votes);
    expect(await votesOf(await lock.release(), clients)).toEqual(votes);
  });

  it("releases and extends a lock that was made by hand from its value", async () => {
    const { clients } = await nodes(3);
    const redlock = open(clients);
    const { value, expiration } = await redlock.acquire(["by-hand"], 10_000);
    const copy = new Lock(redlock, ["by-hand"], value, [], expiration);
    const extended = await redlock.extend(copy, 60_000);
    expect(copy.expiration).toBe(0);
    expect(extended.expiration).toBeGreaterThan(expiration);
    await redlock.release(extended);
    expect(await clients[0]?.get("by-hand")).toBeNull();
    expect(extended.expiration).toBe(0);
  });

  it("does not set a key again for a lock that was made by hand", async () => {
    const { clients } = await nodes(1);
    const redlock = open(clients);
    const copy = new Lock(redlock, ["vanished"], "value", [], Date.now() + 10_000);
    await executionErrorOf(redlock.extend(copy, 10_000, { retryCount: 0 }));
    expect(await clients[0]?.get("vanished")).toBeNull();
  });

  it("does not extend a lock that has expired or was released", async () => {
    const { clients } = await nodes(1);
    const redlock = open(clients);
    const lock = await redlock.acquire(["over"], 10_000);
    await lock.release();
    const error = await executionErrorOf(lock.extend(1_000));
    expect(error.message).toBe("Cannot extend an already-expired lock.");
    expect(error.attempts).toEqual([]);
  });

  it("opens one connection per client, however many instances there are", async () => {
    const { clients } = await nodes(1);
    const [client] = clients;
    const connected = async (): Promise<number> =>
      String(await client?.client("LIST"))
        .trim()
        .split("\n").length;
    for (let index = 0; index < 20; index += 1) {
      await (await open(clients).acquire([`many-${index}`], 10_000)).release();
    }
    expect(await connected()).toBeLessThanOrEqual(3);
  });

  it("ends its connections with the client, and opens new ones when it is connected again", async () => {
    const { servers, clients } = await nodes(1);
    const redlock = open(clients, { retryCount: 0 });
    await (await redlock.acquire(["again"], 10_000)).release();
    clients[0]?.disconnect();
    await expect
      .poll(
        async () =>
          String(await servers[0]?.call("CLIENT", "LIST"))
            .trim()
            .split("\n").length,
      )
      .toBe(1);
    const error = await executionErrorOf(redlock.acquire(["again"], 10_000));
    expect((await votesAgainst(error))[0]?.message).toBe("Connection is closed.");
    await clients[0]?.connect();
    await (await redlock.acquire(["again"], 10_000)).release();
  });

  it("leaves no timer when it quits while it waits for a connection of its own", async () => {
    const {
      servers: [server],
      clients,
    } = await nodes(1);
    await clients[0]?.ping();
    await server?.call("CONFIG", "SET", "maxclients", "1");
    const [started, cleared] = [vi.spyOn(globalThis, "setTimeout"), vi.spyOn(globalThis, "clearTimeout")];
    onTestFinished(() => {
      started.mockRestore();
      cleared.mockRestore();
    });
    // The clients' own timer of this length, for the end of a connection, does more than to resolve a promise.
    const isWait = (_: unknown, at: number): boolean => {
      const [run, afterMs] = started.mock.calls[at] ?? [];
      return afterMs === 2_000 && String(run).includes("[native code]");
    };
    const waits = (): unknown[] => started.mock.results.filter(isWait);
    const redlock = open(clients);
    const call = errorOf(redlock.acquire(["quit"], 10_000));
    await expect.poll(() => waits().length).toBeGreaterThan(1);
    await redlock.quit();
    await call;
    const stopped = new Set(cleared.mock.calls.map(([timer]) => timer));
    expect(waits().filter((result) => !stopped.has((result as { value: NodeJS.Timeout }).value))).toEqual([]);
  });

  it("quits the clients and its own connections", async () => {
    const { servers, clients } = await nodes(3);
    const redlock = open(clients);
    await (await redlock.acquire(["quit"], 10_000)).release();
    await redlock.quit();
    for (const client of clients) await expect.poll(() => client.status).toBe("end");
    for (const server of servers) {
      await expect
        .poll(
          async () =>
            String(await server.call("CLIENT", "LIST"))
              .trim()
              .split("\n").length,
        )
        .toBe(1);
    }
  });

  it("gives a node that lost its data no vote with `maxTtl`", async () => {
    const { clients } = await nodes(3);
    const redlock = open(clients, { maxTtl: 2_000, retryCount: 0 });
    const error = await executionErrorOf(redlock.acquire(["fresh"], 400));
    for (const vote of await votesAgainst(error)) expect(vote.message).toContain("in quarantine for");
    expect(error.message).toMatch(
      /^The operation was unable to achieve a quorum during its retry window\. [23] of 3 clients are in quarantine \(new, restarted or without their data\), for \d+ ms more\.$/,
    );
    await expect
      .poll(async () => await redlock.acquire(["fresh"], 400).then((lock) => lock.release()), { timeout: 10_000 })
      .toBeDefined();
    await expect(redlock.acquire(["fresh"], 2_001)).rejects.toThrow("Duration must be <= maxTtl (2000), got 2001");
  });

  it("locks a resource that is named twice once", async () => {
    const { clients } = await nodes(1);
    const lock = await open(clients).acquire(["twice", "twice"], 10_000);
    expect(lock.resources).toEqual(["twice", "twice"]);
    await lock.release();
    expect(await clients[0]?.get("twice")).toBeNull();
  });

  it("takes a string for one resource, also of a lock that was made by hand", async () => {
    const { clients } = await nodes(1);
    const redlock = open(clients);
    const name = "all" as unknown as string[];
    const lock = await redlock.acquire(name, 10_000);
    expect(lock.resources).toEqual(["all"]);
    const byHand = new Lock(redlock, name, lock.value, [], lock.expiration, lock.fencingToken);
    const extended = await byHand.extend(10_000);
    expect(extended.resources).toEqual(["all"]);
    await extended.release();
    expect(await clients[0]?.keys("a*")).toEqual([]);
  });

  it("fails alone when a lock that was made by hand has a fencing token that is none", async () => {
    const { clients } = await nodes(1);
    const redlock = open(clients);
    await (await redlock.acquire(["warm"], 10_000)).release();
    const byHand = new Lock(redlock, ["by-hand", "too"], "value", [], Date.now() + 10_000, Number.NaN);
    const [error, lock] = await Promise.all([
      executionErrorOf(redlock.extend(byHand, 10_000, { retryCount: 0 })),
      redlock.acquire(["neighbour"], 10_000, { retryCount: 0 }),
    ]);
    expect((await votesAgainst(error))[0]?.message).toBe("ERR operation E cannot be read");
    expect(lock.resources).toEqual(["neighbour"]);
    await lock.release();
  });

  it("refuses bad input before anything is sent", async () => {
    const { clients } = await nodes(1);
    expect(() => new Redlock([])).toThrow("at least one redis client");
    const many = Array.from({ length: 32 }, () => Object.create(clients[0] as object) as Client);
    expect(() => new Redlock(many)).toThrow(new RangeError("clients must be at most 31, got 32"));
    expect(() => new Redlock(clients, {}, { acquireScript: "return 1" })).toThrow(TypeError);
    const redlock = open(clients);
    const message = "Duration must be an integer value in milliseconds.";
    await expect(redlock.acquire(["bad"], 1.5)).rejects.toThrow(message);
    await expect(redlock.acquire(["bad"], Number.NaN)).rejects.toThrow(message);
    await expect(redlock.acquire(["bad"], Number.MAX_VALUE)).rejects.toThrow(
      new RangeError(`Duration must be <= ${Number.MAX_SAFE_INTEGER}, got ${Number.MAX_VALUE}`),
    );
    await expect(redlock.acquire(["bad"], 0)).rejects.toThrow("Duration must be > drift (2), got 0");
    await expect(redlock.acquire([], 1_000)).rejects.toThrow(RangeError);
    await expect(redlock.acquire([""], 1_000)).rejects.toThrow(RangeError);
    await expect(redlock.using(["bad"], 599, async () => undefined)).rejects.toThrow("at least 100ms greater");
    await expect(redlock.using(["bad"], 5_000, {})).rejects.toThrow("routine is not a function");
    expect(await clients[0]?.exists("bad")).toBe(0);
  });

  it.each([
    [{ driftFactor: -5 }, "driftFactor must be a number from 0 to 0.5, got -5"],
    [{ driftFactor: Number.NaN }, "driftFactor must be a number from 0 to 0.5, got NaN"],
    [{ retryCount: Number.NaN }, "retryCount must be a number, got NaN"],
    [{ retryDelay: Number.NaN }, "retryDelay must be finite (ms), got NaN"],
    [{ retryDelay: Number.POSITIVE_INFINITY }, "retryDelay must be finite (ms), got Infinity"],
    [{ retryJitter: Number.NaN }, "retryJitter must be finite (ms), got NaN"],
    [{ automaticExtensionThreshold: Number.NaN }, "automaticExtensionThreshold must be finite (ms), got NaN"],
  ])("refuses settings that would never end, or not in time: %o", async (settings, message) => {
    const { clients } = await nodes(1);
    expect(() => new Redlock(clients, settings)).toThrow(new RangeError(message));
    const redlock = open(clients);
    const lock = await redlock.acquire(["held"], 10_000);
    for (const call of [
      redlock.acquire(["held"], 1_000, settings),
      redlock.extend(lock, 1_000, settings),
      redlock.release(lock, settings),
      redlock.using(["held"], 1_000, settings, async () => undefined),
    ]) {
      expect(await errorOf(call)).toEqual(new RangeError(message));
    }
    expect(lock.expiration).toBeGreaterThan(0);
    await lock.release();
  });

  it("releases a lock that it extended also on a client that takes the release only later", async () => {
    const { servers, clients } = await nodes(3);
    const last = servers.at(-1);
    await open(clients).using(["later"], 5_000, { automaticExtensionThreshold: 4_500 }, async () => {
      // Longer than the lease that it was acquired with.
      await delay(5_500);
      await last?.call("CONFIG", "SET", "min-replicas-to-write", "1");
    });
    expect(await last?.call("PTTL", "later")).toBeGreaterThan(3_000);
    await last?.call("CONFIG", "SET", "min-replicas-to-write", "0");
    await expect.poll(() => last?.call("EXISTS", "later"), { timeout: 5_000 }).toBe(0);
  });

  it("releases later what a client did not take, for as long as any extension asked for", async () => {
    const { servers, clients } = await nodes(1);
    const [server] = servers;
    const proxy = await startProxy({ path: server?.path ?? "" });
    onTestFinished(() => proxy.stop());
    const distant = clientOf({ host: proxy.host, port: proxy.port });
    const [redlock, remote] = [open(clients, { retryCount: 0 }), open([distant], { retryCount: 0 })];
    const shortened = await (await redlock.acquire(["shortened"], 20_000)).extend(100);
    const unanswered = await remote.acquire(["unanswered"], 1_000);
    proxy.blackhole("down");
    const extended = executionErrorOf(unanswered.extend(20_000));
    await expect.poll(() => server?.call("PTTL", "unanswered")).toBeGreaterThan(10_000);
    await server?.call("CONFIG", "SET", "min-replicas-to-write", "1");
    proxy.heal();
    proxy.drop();
    await extended;
    await Promise.all([shortened, unanswered].map((lock) => executionErrorOf(lock.release())));
    // Longer than the lease of the one that was acquired, and shorter than what was asked for later.
    await delay(1_500);
    await server?.call("CONFIG", "SET", "min-replicas-to-write", "0");
    await expect.poll(() => server?.call("EXISTS", "unanswered")).toBe(0);
    await expect.poll(() => server?.call("EXISTS", "shortened")).toBe(0);
  });

  it("waits for itself inside `using`, as node-redlock does", async () => {
    const { clients } = await nodes(1);
    const redlock = open(clients, { retryCount: 1, retryDelay: 1, retryJitter: 0 });
    await redlock.using(["nested"], 1_000, async () => {
      const error = await executionErrorOf(redlock.using(["nested"], 1_000, async () => expect.unreachable()));
      expect(error.attempts).toHaveLength(2);
    });
  });

  it("refuses clients that would write the same lock under different keys", async () => {
    const { servers } = await nodes(2);
    const clients = servers.map(({ path }, index) => clientOf({ path, keyPrefix: `${index}:` }));
    expect(() => open(clients)).toThrow(new RangeError("nodes must have the same keyPrefix"));
  });

  it("has node-redlock's defaults and the names of its errors", async () => {
    const { clients } = await nodes(1);
    const redlock = new Redlock(new Set(clients));
    expect(redlock.settings).toEqual({
      driftFactor: 0.01,
      retryCount: 10,
      retryDelay: 200,
      retryJitter: 100,
      automaticExtensionThreshold: 500,
    });
    const left: Readonly<Record<keyof (Settings & EngineSettings), undefined>> = {
      driftFactor: undefined,
      retryCount: undefined,
      retryDelay: undefined,
      retryJitter: undefined,
      automaticExtensionThreshold: undefined,
      nodeTimeout: undefined,
      maxTtl: undefined,
    };
    expect(new Redlock(clients, left, { acquireScript: undefined }).settings).toEqual(redlock.settings);
    expect(redlock.clients).toEqual(new Set(clients));
    expect(new ResourceLockedError("m")).toMatchObject({ name: "ResourceLockedError", message: "m" });
    expect(new ExecutionError("m", [])).toMatchObject({ name: "ExecutionError", message: "m", attempts: [] });
    expect(redlock.scripts.acquireScript.hash).toMatch(/^[0-9a-f]{40}$/);
  });

  it("writes errors as JSON like node-redlock does", () => {
    const json = (error: Error): unknown => JSON.parse(JSON.stringify(error));
    const cause = new Error("why");
    const attempts = [Promise.resolve({} as ExecutionStats)];
    const error = new ExecutionError("m", attempts, { cause });
    expect(json(error)).toEqual({ name: "ExecutionError", message: "m", attempts: [{}] });
    expect(error.cause).toBe(cause);
    expect(json(new ResourceLockedError("m"))).toEqual({ name: "ResourceLockedError", message: "m" });
  });

  it("neither counts nor reports a client that was not asked because the others had failed", async () => {
    const { clients } = await nodes(3);
    const redlock = open(clients, { retryCount: 0 });
    const told: string[] = [];
    redlock.on("error", (error: Error) => void told.push(error.message));
    for (const client of clients.slice(0, 2)) client.disconnect();
    await expect.poll(() => clients.slice(0, 2).map(({ status }) => status)).toEqual(["end", "end"]);
    const error = await executionErrorOf(redlock.acquire(["unasked"], 1_000));
    const [votes] = await votesOf(error, clients);
    expect(votes).toEqual({ membershipSize: 3, quorumSize: 2, votesFor: [], votesAgainst: [0, 1] });
    expect(new Set(told)).toEqual(new Set(["Connection is closed."]));
  });

  it("goes on when an `error` listener throws", async () => {
    const warned = vi.spyOn(process, "emitWarning").mockReturnValue();
    const { servers, clients } = await nodes(3);
    const redlock = open(clients);
    redlock.on("error", () => {
      throw new Error("a listener's");
    });
    await (await redlock.acquire(["listener"], 10_000)).release();
    await servers[0]?.kill();
    await expect
      .poll(async () => {
        await (await redlock.acquire(["listener"], 10_000)).release();
        return warned.mock.calls.length;
      })
      .toBeGreaterThan(0);
  });
});
