/** Behavior that node-redlock 5's own test cases do not cover, and additions of this package. */
import { setTimeout as delay } from "node:timers/promises";
import { Redlock as CoreRedlock, systemClock } from "@x/redlock-core";
import { errorOf, startProxy, startRedis, waitersOf } from "@x/test-support";
import { Redis } from "ioredis";
import { afterEach, describe, expect, it, onTestFinished, vi } from "vitest";
import Redlock, {
  type Client,
  type EngineSettings,
  ExecutionError,
  type ExecutionStats,
  Lock,
  ResourceLockedError,
  type Settings,
} from "../src/index.ts";
import {
  clientOf,
  executionErrorOf,
  lockUntilCalled,
  nodes,
  open,
  votesAgainst,
  votesOf,
} from "./support/node-redlock-5.ts";

describe("the node-redlock entry on this engine", () => {
  it.each(["retryCount", "retryDelay", "retryJitter", "driftFactor"])(
    "treats %s: undefined as left out",
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
  ] as const)("refuses a fake client with advice on tests: %s", (_, fake: unknown) => {
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

  it("treats a key of another type, such as a sorted set of another library, as locked", async () => {
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
    await expect.poll(() => waitersOf(clients[0] as Redis, "queue")).toBe(1);
    await lock.release();
    await (await next).release();
  });

  it("serves a waiter before later ones, even if the clock of the waiter's process is ahead", async () => {
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
    await expect.poll(() => waitersOf(clients[0] as Redis, "queue")).toBe(1);
    const last = core.using("queue", () => void served.push("last"), { ttl: 60_000, timeout: 60_000 });
    await expect.poll(() => waitersOf(clients[0] as Redis, "queue")).toBe(2);
    await lock.release();
    await Promise.all([first, last]);
    expect(served).toEqual(["first", "last"]);
  });

  it("uses the settings of a call", async () => {
    const { clients } = await nodes(1);
    const redlock = open(clients, { retryDelay: 1_000_000 });
    const lock = await redlock.acquire(["per-call"], 10_000);
    const none = await executionErrorOf(redlock.acquire(["per-call"], 10_000, { retryCount: 0 }));
    expect(none.attempts).toHaveLength(1);
    const three = await executionErrorOf(
      redlock.acquire(["per-call"], 10_000, { retryCount: 3, retryDelay: 5, retryJitter: 5 }),
    );
    expect(three.attempts).toHaveLength(4);
    expect(three.stack).toContain("node-redlock-5.test.ts");
    await redlock.release(lock, { retryCount: 0 });
  });

  it("retries without end with a retryCount of -1", async () => {
    const { servers, clients } = await nodes(1);
    await clients[0]?.set("endless", "another's");
    const redlock = open(clients, { retryCount: -1, retryDelay: 1, retryJitter: 0 });
    const acquired = redlock.acquire(["endless"], 10_000);
    const asked = async (): Promise<number> => (await servers[0]?.calls("evalsha")) ?? 0;
    const before = await asked();
    // With the default, a call gives up after eleven attempts.
    await expect.poll(asked, { timeout: 30_000 }).toBeGreaterThan(before + 11);
    await clients[0]?.del("endless");
    const lock = await acquired;
    expect(lock.attempts.length).toBeGreaterThan(11);
    await lock.release();
  });

  it("reports the vote of each client", async () => {
    const { clients } = await nodes(3);
    const redlock = open(clients);
    await (await redlock.acquire(["warm"], 10_000)).release();
    await clients[2]?.set("votes", "another's");
    const lock = await redlock.acquire(["votes"], 10_000);
    const votes = [{ membershipSize: 3, quorumSize: 2, votesFor: [0, 1], votesAgainst: [2] }];
    expect(await votesOf(lock, clients)).toEqual(votes);
    expect(await votesOf(await lock.release(), clients)).toEqual(votes);
  });

  it("releases and extends a lock that was constructed manually from its value", async () => {
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

  it("does not set a key again for a lock that was constructed manually", async () => {
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

  it("invalidates a lock when an extension finds another holder", async () => {
    const { clients } = await nodes(1);
    const redlock = open(clients);
    const lock = await redlock.acquire(["taken"], 10_000);
    await clients[0]?.set("taken", "another's");
    await executionErrorOf(lock.extend(10_000));
    expect(lock.expiration).toBe(0);
  });

  it("the first calls do not use a client that is down if a quorum is connected", async () => {
    const { servers, clients } = await nodes(3);
    await servers[2]?.kill();
    const pinged = vi.spyOn(clients[2] as Redis, "ping");
    const redlock = open(clients, { retryCount: 0 });
    const locks = await Promise.all(Array.from({ length: 10 }, (_, index) => redlock.acquire([`${index}`], 10_000)));
    await Promise.all(locks.map((lock) => lock.release()));
    expect(pinged).not.toHaveBeenCalled();
  });

  it("opens one connection per client, however many instances exist", async () => {
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

  it("closes its connections with the client, and opens new ones when the client reconnects", async () => {
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

  it("leaves no timer when it quits while it waits for its own connection", async () => {
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
    // Unlike the clients' own timers, the deadline of a wait has a fraction of a millisecond.
    const isWait = (_: unknown, at: number): boolean => {
      const afterMs = started.mock.calls[at]?.[1] ?? 0;
      return afterMs > 1_900 && afterMs < 2_000;
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

  it("with `maxTtl`, ignores the vote of a node that lost its data", async () => {
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

  it("does not report contention as quarantine", async () => {
    const { clients } = await nodes(3);
    const redlock = open(clients, { maxTtl: 500, retryCount: 0 });
    await expect
      .poll(async () => await redlock.acquire(["warm"], 400).then((lock) => lock.release()), { timeout: 10_000 })
      .toBeDefined();
    await clients[0]?.flushall();
    await Promise.all(clients.slice(1).map((client) => client.set("held", "another's")));
    const error = await executionErrorOf(redlock.acquire(["held"], 400));
    expect(error.message).toBe("The operation was unable to achieve a quorum during its retry window.");
    const votes = (await votesAgainst(error)).map(({ message }) => message).join();
    expect(votes).toContain("in quarantine for");
  });

  it("locks a resource once if the call names it twice", async () => {
    const { clients } = await nodes(1);
    const lock = await open(clients).acquire(["twice", "twice"], 10_000);
    expect(lock.resources).toEqual(["twice", "twice"]);
    await lock.release();
    expect(await clients[0]?.get("twice")).toBeNull();
  });

  it("treats a string as one resource, even in a lock that was constructed manually", async () => {
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

  it("fails only the call whose manually constructed lock has an invalid fencing token", async () => {
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

  it("refuses invalid arguments before a command is sent", async () => {
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

  it("releases an extended lock even on a client that accepts the release only later", async () => {
    const { servers, clients } = await nodes(3);
    const last = servers.at(-1);
    await open(clients).using(["later"], 5_000, { automaticExtensionThreshold: 4_500 }, async () => {
      // Longer than the first lease of the lock.
      await delay(5_500);
      await last?.call("CONFIG", "SET", "min-replicas-to-write", "1");
    });
    expect(await last?.call("PTTL", "later")).toBeGreaterThan(3_000);
    await last?.call("CONFIG", "SET", "min-replicas-to-write", "0");
    await expect.poll(() => last?.call("EXISTS", "later"), { timeout: 5_000 }).toBe(0);
  });

  it("repeats a release that a client refused, for as long as any extension requested", async () => {
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
    // Longer than the lease of the acquired lock, and shorter than the requested extension.
    await delay(1_500);
    await server?.call("CONFIG", "SET", "min-replicas-to-write", "0");
    await expect.poll(() => server?.call("EXISTS", "unanswered")).toBe(0);
    await expect.poll(() => server?.call("EXISTS", "shortened")).toBe(0);
  });

  it("repeats a refused release for as long as its own lock may live, whichever instance releases it", async () => {
    const { servers, clients } = await nodes(1);
    const [server] = servers;
    const [acquiring, releasing] = [open(clients), open(clients, { maxTtl: 1_000, retryCount: 0 })];
    await (await acquiring.acquire(["longest"], 60_000)).release();
    await (await releasing.acquire(["warm"], 1_000)).release();
    const [long, short] = [await acquiring.acquire(["long"], 20_000), await acquiring.acquire(["short"], 300)];
    await server?.call("CONFIG", "SET", "min-replicas-to-write", "1");
    await executionErrorOf(releasing.release(long));
    await executionErrorOf(acquiring.release(short, { retryCount: 0 }));
    // Longer than the lease of the short lock, and than `maxTtl` of the instance that released the long lock.
    await delay(1_500);
    await server?.call("CONFIG", "SET", "min-replicas-to-write", "0");
    await server?.call("SET", "short", short.value);
    await expect.poll(() => server?.call("EXISTS", "long"), { timeout: 5_000 }).toBe(0);
    await (await acquiring.acquire(["after"], 1_000)).release();
    expect(await server?.call("EXISTS", "short")).toBe(1);
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

  it("has node-redlock's defaults and error names", async () => {
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

  it("serializes errors to JSON as node-redlock does", () => {
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

  it("continues when an `error` listener throws", async () => {
    const warned = vi.spyOn(process, "emitWarning").mockReturnValue();
    const { servers, clients } = await nodes(3);
    const redlock = open(clients);
    redlock.on("error", () => {
      throw new Error("a listener's");
    });
    await (await redlock.acquire(["listener"], 10_000)).release();
    await servers[0]?.kill();
    await lockUntilCalled(redlock, "listener", warned);
  });
});
