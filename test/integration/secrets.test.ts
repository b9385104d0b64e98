/** No error or event that a program may log contains a password of the program. */
import { LeaderElection } from "@x/leader";
import { LeaderScheduler } from "@x/leader/scheduler";
import { Redlock as NodeRedlock } from "@x/node-redlock";
import { Redlock as NodeRedlock4 } from "@x/node-redlock/v4";
import { logTo, type NodeSource, Redlock } from "@x/redlock-core";
import { protocolOf } from "@x/redlock-core/protocol";
import { CountDownLatch, ReadWriteLock, Semaphore } from "@x/semaphore";
import { Mutex, Semaphore as RedisSemaphore, RedlockMutex } from "@x/semaphore/redis-semaphore";
import { type LogRecord, pinoLines, placesOf, type RedisServer, startRedis } from "@x/test-support";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { describe, expect, it, onTestFinished } from "vitest";

const secret = "s3cr3t-pa55word";

const sources: Readonly<Record<string, (port: number) => NodeSource>> = {
  "a URL": (port) => `redis://app:${secret}@127.0.0.1:${port}`,
  "a client of ioredis": (port) => ioredis(port),
  "a client of node-redis": (port) => createClient({ url: `redis://app:${secret}@127.0.0.1:${port}` }) as NodeSource,
  "a sentinel": (port) => ({
    sentinels: [{ host: "127.0.0.1", port }],
    name: "main",
    sentinelUsername: "app",
    sentinelPassword: secret,
  }),
};

function ioredis(port: number): Redis {
  const client = new Redis({ port, username: "app", password: secret, lazyConnect: true });
  client.on("error", () => undefined);
  onTestFinished(() => client.disconnect());
  return client;
}

async function startServer(): Promise<RedisServer> {
  const server = await startRedis();
  onTestFinished(() => server.stop());
  return server;
}

/** Returns the lines that pino writes during the test. */
function startLog(): readonly LogRecord[] {
  const { logger, lines } = pinoLines();
  onTestFinished(logTo(logger));
  return lines;
}

interface Told {
  readonly things: unknown[];
  readonly lines: readonly LogRecord[];
  readonly redlock: Redlock;
  readonly election: LeaderElection;
  readonly scheduler: LeaderScheduler;
}

function listen(source: NodeSource): Told {
  const redlock = new Redlock(source, { quarantine: false, timeout: 300, nodeTimeout: 200 });
  const things: unknown[] = [];
  for (const event of [
    "acquired",
    "acquireFailed",
    "refused",
    "extended",
    "extendFailed",
    "released",
    "lost",
    "nodeChanged",
  ] as const) {
    redlock.on(event, (message) => things.push(message));
  }
  const note = (...line: unknown[]): void => void things.push(line);
  const election = new LeaderElection(redlock, { name: "told" });
  election.on("error", (error) => things.push(error));
  const scheduler = new LeaderScheduler({ election: new LeaderElection(redlock, { name: "scheduled" }) });
  scheduler.on("error", (error) => things.push(error));
  scheduler.every("often", 1_000, () => undefined);
  process.on("warning", note);
  const lines = startLog();
  things.push(lines);
  onTestFinished(async () => {
    process.removeListener("warning", note);
    await scheduler.stop({ drainTimeout: 0 });
    await election.stop();
    await redlock.close();
  });
  return { things, lines, redlock, election, scheduler };
}

/** Calls every function that asks a node, and records its result or error. */
async function askEverything({ things, redlock, election, scheduler }: Told): Promise<void> {
  const semaphore = new Semaphore(redlock, "permits", { permits: 1 });
  const readWrite = new ReadWriteLock(redlock, "document");
  const latch = new CountDownLatch(redlock, "parts");
  scheduler.start();
  const script = { name: "one", source: "return 1", sha1: "e0e1f9fabfc9d4800c877a703b823ac0578ff8db" };
  const asked: readonly (() => Promise<unknown>)[] = [
    () => redlock.acquire("r"),
    () => redlock.tryAcquire("r"),
    () => redlock.using("r", () => undefined),
    () => redlock.inspect("r"),
    () => redlock.check(),
    () => redlock.forceRelease("r"),
    () => protocolOf(redlock).run(script, { keys: [], args: [] }),
    () => election.leader(),
    () => election.requestResign(),
    () => election.run(() => undefined, { signal: AbortSignal.timeout(1_000) }),
    () => scheduler.list(),
    () => scheduler.pause("often"),
    () => scheduler.trigger("often"),
    () => scheduler.history("often"),
    () => semaphore.acquire(),
    () => semaphore.tryAcquire(),
    () => semaphore.using(() => undefined),
    () => semaphore.inspect(),
    () => readWrite.read.tryAcquire(),
    () => readWrite.write.acquire(),
    () => readWrite.inspect(),
    () => latch.set(2),
    () => latch.countDown(),
    () => latch.count(),
    () => latch.wait({ timeout: 300 }),
  ];
  for (const ask of asked)
    await ask().then(
      (value) => things.push(value),
      (error: unknown) => things.push(error),
    );
}

describe.each(Object.keys(sources))("a secret of %s is in no error and no event", (kind) => {
  it("is not shown when the password is refused", async () => {
    const server = await startServer();
    await server.call("ACL", "SETUSER", "app", "on", ">another", "~*", "&*", "+@all");
    const told = listen(sources[kind]?.(server.port) ?? "");
    await askEverything(told);
    expect(told.things.some((thing) => thing instanceof Error)).toBe(true);
    expect(await placesOf(secret, told.things)).toEqual([]);
  });

  it.skipIf(kind === "a sentinel")("is not shown when the user is removed, or the server is gone", async () => {
    const server = await startServer();
    await server.call("ACL", "SETUSER", "app", "on", `>${secret}`, "~*", "&*", "+@all");
    const told = listen(sources[kind]?.(server.port) ?? "");
    const lock = await told.redlock.acquire("mine", { autoExtend: true, ttl: 1_000, timeout: 10_000 });
    lock.signal.addEventListener("abort", () => told.things.push(lock.signal.reason));
    const token = String(await server.call("GET", "mine"));
    await server.call("ACL", "SETUSER", "app", "-@all");
    await askEverything(told);
    await server.call("ACL", "DELUSER", "app");
    await askEverything(told);
    await server.stop();
    await askEverything(told);
    await expect.poll(() => lock.signal.aborted).toBe(true);
    const events = told.lines.map(({ event }) => event);
    expect(events).toEqual(
      expect.arrayContaining(["x.redlock.lost", "x.redlock.extendFailed", "x.redlock.acquireFailed"]),
    );
    expect(await placesOf(secret, told.things)).toEqual([]);
    expect(await placesOf(token, told.things)).toEqual([]);
  });
});

/** Classes that receive the caller's clients, like the libraries that they replace. */
const entries: Readonly<Record<string, (client: Redis, things: unknown[]) => () => Promise<unknown>>> = {
  "node-redlock 5": (client, things) => {
    const redlock = new NodeRedlock([client], { retryCount: 1, retryDelay: 10 });
    redlock.on("error", (error) => things.push(error));
    return () => redlock.acquire(["r"], 1_000);
  },
  "node-redlock 4": (client, things) => {
    const redlock = new NodeRedlock4([client], { retryCount: 1, retryDelay: 10 });
    redlock.on("clientError", (error: unknown) => things.push(error));
    return () => redlock.lock("r", 1_000);
  },
  "redis-semaphore, Mutex": (client) => () => new Mutex(client, "r", { acquireTimeout: 200 }).acquire(),
  "redis-semaphore, Semaphore": (client) => () => new RedisSemaphore(client, "r", 1, { acquireTimeout: 200 }).acquire(),
  "redis-semaphore, RedlockMutex": (client) => () => new RedlockMutex([client], "r", { acquireTimeout: 200 }).acquire(),
};

it.each(Object.keys(entries))("a secret of a client is in no error of the entry for %s", async (name) => {
  const server = await startServer();
  await server.call("ACL", "SETUSER", "app", "on", ">another", "~*", "&*", "+@all");
  const client = ioredis(server.port);
  const things: unknown[] = [];
  const ask = entries[name]?.(client, things) ?? (() => Promise.resolve());
  await ask().catch((error: unknown) => things.push(error));
  await server.call("ACL", "SETUSER", "app", "resetpass", `>${secret}`);
  await client.connect().catch(() => undefined);
  await server.call("ACL", "SETUSER", "app", "-@all", "+ping");
  await ask().catch((error: unknown) => things.push(error));
  expect(things.length).toBeGreaterThan(0);
  expect(await placesOf(secret, things, [client])).toEqual([]);
});
