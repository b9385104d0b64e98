/**
 * The test of secrets.test.ts for workers. BullMQ's own errors about its connections are also emitted by the class of
 * this project.
 */
import { setTimeout as delay } from "node:timers/promises";
import { logTo } from "@x/redlock-core";
import { type LogRecord, pinoLines, placesOf, type RedisServer, startRedis } from "@x/test-support";
import { ExclusiveQueue, ExclusiveWorker } from "@x/workers";
import { type ConnectionOptions, type Job, Queue } from "bullmq";
import { Redis } from "ioredis";
import { describe, expect, it, onTestFinished } from "vitest";

const secret = "s3cr3t-pa55word";

/** If a connection is refused and must not reconnect, BullMQ's loop repeats its request in the same turn, forever. */
const unfitToRun = "options without reconnection";

const connections: Readonly<Record<string, (port: number) => ConnectionOptions>> = {
  options: (port) => ({ host: "127.0.0.1", port, username: "app", password: secret }),
  "a URL": (port) => ({ url: `redis://app:${secret}@127.0.0.1:${port}` }),
  [unfitToRun]: (port) => ({
    port,
    username: "app",
    password: secret,
    retryStrategy: () => null,
  }),
  "a client": (port) => {
    const client = new Redis({ port, username: "app", password: secret, maxRetriesPerRequest: null });
    client.on("error", () => undefined);
    onTestFinished(() => client.disconnect());
    return client;
  },
};

async function startServer(password: string): Promise<RedisServer> {
  const server = await startRedis();
  onTestFinished(() => server.stop());
  await server.call("ACL", "SETUSER", "app", "on", `>${password}`, "~*", "&*", "+@all");
  return server;
}

class Told {
  readonly things: unknown[] = [];
  /** The lines that pino has written. */
  readonly lines: readonly LogRecord[];
  readonly worker: ExclusiveWorker;
  readonly queue: ExclusiveQueue;
  readonly #signals: AbortSignal[] = [];

  constructor(connection: ConnectionOptions, autorun = true) {
    this.worker = new ExclusiveWorker(
      "q",
      async (_job: Job, _token: string | undefined, signal: AbortSignal) => {
        this.#signals.push(signal);
        await delay(50);
      },
      // A check for stalled jobs that fails waits for 5 s in BullMQ, even if the worker is closed.
      { connection, key: "k", lockDuration: 1_000, skipStalledCheck: true, drainDelay: 1, runRetryDelay: 100, autorun },
    );
    const { logger, lines } = pinoLines();
    onTestFinished(logTo(logger));
    this.lines = lines;
    this.things.push(lines);
    this.worker.on("error", (error) => this.things.push(error));
    this.queue = new ExclusiveQueue("q", { connection });
    this.queue.on("error", (error) => this.things.push(error));
    this.worker.on("failed", (_job, error) => this.things.push(error));
    this.worker.redlock.on("lost", (lost) => this.things.push(lost));
    onTestFinished(() => this.worker.close(true).catch(() => undefined));
    // BullMQ's `close` of a queue waits for a connection that is never established.
    const { backend } = this.queue as unknown as { backend: { connection: { _client?: { disconnect(): void } } } };
    onTestFinished(() => {
      this.queue.close().catch(() => undefined);
      backend.connection._client?.disconnect();
    });
  }

  get reasons(): readonly unknown[] {
    return this.#signals.map((signal) => signal.reason as unknown);
  }

  /** Returns the results and rejections of all calls. A call that waits for a connection is not awaited. */
  async askEverything(): Promise<void> {
    const { worker, queue, things } = this;
    const asked: readonly (() => Promise<unknown>)[] = [
      () => queue.listKeys(),
      () => queue.jobsOf("1"),
      () => queue.explain("1"),
      () => queue.pauseKey("2"),
      () => queue.resumeKey("2"),
      () => queue.counts(),
      () => queue.check(),
      () => worker.redlock.check(),
    ];
    const answers = asked.map((ask) =>
      ask().then(
        (value) => things.push(value),
        (error: unknown) => things.push(error),
      ),
    );
    await Promise.race([Promise.all(answers), delay(500)]);
  }
}

async function addJobs(server: RedisServer): Promise<void> {
  const queue = new Queue("q", { connection: { path: server.path } });
  for (const k of ["1", "1", "2"]) await queue.add("job", { k });
  await queue.close();
}

describe.each(Object.keys(connections))("a secret of a worker's connection is in no error (%s)", (kind) => {
  it("is not shown when the password is refused", async () => {
    const server = await startServer("another");
    const told = new Told(connections[kind]?.(server.port) ?? {}, kind !== unfitToRun);
    await expect.poll(() => told.lines.some(({ event }) => event === "x.workers.error")).toBe(true);
    await told.askEverything();
    expect(await placesOf(secret, told.things)).toEqual([]);
  });

  it.skipIf(kind === unfitToRun)("is not shown when the user is removed, or the server is gone", async () => {
    const server = await startServer(secret);
    const told = new Told(connections[kind]?.(server.port) ?? {});
    await told.worker.waitUntilReady();
    await addJobs(server);
    await told.askEverything();
    await server.call("ACL", "SETUSER", "app", "-@all");
    await told.askEverything();
    await server.call("ACL", "DELUSER", "app");
    await told.askEverything();
    await server.stop();
    await told.askEverything();
    await expect.poll(() => told.things.some((thing) => thing instanceof Error)).toBe(true);
    expect(await placesOf(secret, [told.things, told.reasons])).toEqual([]);
  });
});

it("no error shows the command that the last node of a Cluster refused", async () => {
  const server = await startServer(secret);
  const { worker, lines, things } = new Told(connections["options"]?.(server.port) ?? {});
  const lastNodeError = Object.assign(new Error("WRONGPASS"), { command: { name: "auth", args: ["app", secret] } });
  worker.emit("error", Object.assign(new Error("Failed to refresh slots cache."), { lastNodeError }));
  const error = new TypeError("a class of its own");
  worker.emit("error", error);
  expect(things.slice(1)).toMatchObject([{ message: "Failed to refresh slots cache." }, error]);
  expect(things[2]).toBe(error);
  expect(lines.map(({ msg, queue, err }) => [msg, queue, (err as Error).message])).toEqual([
    ["worker failed, and tries again", "q", "Failed to refresh slots cache."],
    ["worker failed, and tries again", "q", "a class of its own"],
  ]);
  expect(await placesOf(secret, things)).toEqual([]);
});
