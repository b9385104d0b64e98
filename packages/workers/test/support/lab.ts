/** A queue on its own server, workers on it, and a record of their runs; all closed together. */
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { setTimeout as delay } from "node:timers/promises";
import { Redlock } from "@x/redlock-core";
import { type RedisServer, type RedisServerOptions, startRedis, until } from "@x/test-support";
import {
  ExclusiveQueue,
  type ExclusiveQueueOptions,
  ExclusiveWorker,
  type ExclusiveWorkerOptions,
  type JobLock,
} from "@x/workers";
import { type Job, Queue, Worker } from "bullmq";
import { Redis } from "ioredis";
import { connectTo, type LabConnection } from "./connections.ts";

export interface Data {
  readonly k?: unknown;
  readonly i: number;
  readonly ms?: number;
}

export interface Ran {
  readonly jobId: string;
  readonly key: string;
  readonly i: number;
  readonly fencingToken: number;
  readonly startedMs: number;
  endedMs: number | undefined;
}

type Body = (job: Job<Data>, signal: AbortSignal, lock: JobLock) => unknown;

/** After this time a closing lab ends running bodies, which may wait for a test that has failed. */
const PATIENCE_MS = 5_000;

export class Lab implements AsyncDisposable {
  readonly server: RedisServer;
  readonly ran: Ran[] = [];
  readonly errors: Error[] = [];
  readonly redis: Redis;
  readonly #closers: (() => Promise<unknown>)[] = [];
  /** Functions that end the running bodies. */
  readonly #ends = new Set<() => void>();
  #isOver = false;

  private constructor(server: RedisServer) {
    this.server = server;
    this.redis = new Redis({ path: server.path, maxRetriesPerRequest: null, retryStrategy: () => 50 });
    this.redis.on("error", () => {});
  }

  static async start(options: RedisServerOptions = {}): Promise<Lab> {
    return new Lab(await startRedis(options));
  }

  /** A separate connection for each queue and worker. */
  get connection(): LabConnection {
    const { connection, close } = connectTo(this.server.path);
    this.defer(close);
    return connection;
  }

  queue(name = "q", options: Partial<ExclusiveQueueOptions<Data>> = {}): ExclusiveQueue<Data> {
    const queue = new ExclusiveQueue<Data>(name, { connection: this.connection, ...options });
    queue.on("error", () => {});
    this.defer(async () => await queue.close());
    return queue;
  }

  /** Starts a worker whose runs are recorded. By default a job takes `data.ms` (2) milliseconds. */
  worker(
    body: Body = () => undefined,
    options: Partial<ExclusiveWorkerOptions<Data>> = {},
    name = "q",
  ): ExclusiveWorker<Data> {
    const worker = new ExclusiveWorker<Data>(
      name,
      async (job, _token, signal, lock) => {
        const record: Ran = {
          jobId: `${name}:${job.id}`,
          key: String(job.data.k),
          i: job.data.i,
          fencingToken: lock.fencingToken,
          startedMs: performance.now(),
          endedMs: undefined,
        };
        this.ran.push(record);
        try {
          await delay(job.data.ms ?? 2);
          return await this.#unlessOver(() => body(job, signal, lock));
        } finally {
          record.endedMs = performance.now();
        }
      },
      { connection: this.connection, concurrency: 20, key: "k", ...options },
    );
    return this.adopt(worker);
  }

  /** Resolves with the result, or with undefined when the lab is closed, because a failed test opens no gate. */
  async #unlessOver(body: () => unknown): Promise<unknown> {
    if (this.#isOver) return undefined;
    let end = (): void => {};
    const over = new Promise<void>((resolve) => (end = resolve));
    this.#ends.add(end);
    try {
      return await Promise.race([body(), over]);
    } finally {
      this.#ends.delete(end);
    }
  }

  adopt<W extends ExclusiveWorker<Data>>(worker: W): W {
    worker.on("error", (error) => this.errors.push(error));
    this.defer(async () => await worker.close());
    return worker;
  }

  /**
   * Resolves when a job of another queue on the same server, which is added now, has run. By then, every job that could
   * run before has begun.
   */
  async anotherRuns(): Promise<void> {
    const connection = this.connection;
    const [name, ran] = [`another-${this.#closers.length}`, gate()];
    const worker = new Worker(name, async () => ran.open(), { connection });
    worker.on("error", () => {});
    const queue = new Queue(name, { connection });
    queue.on("error", () => {});
    await worker.waitUntilReady();
    await queue.add("job", {});
    await ran.passed;
    await Promise.all([worker.close(), queue.close()]);
  }

  defer(close: () => Promise<unknown>): void {
    this.#closers.push(close);
  }

  /** Resolves when `count` runs have ended. Unlike `finished`, it sends no script to Redis. The timeout starts anew. */
  async ended(count: number): Promise<void> {
    const ended = (): number => this.ran.filter((run) => run.endedMs !== undefined).length;
    for (let before = ended(); before !== count; before = ended()) await until(() => ended() !== before);
  }

  /** Pairs of runs of one key that overlapped in time. */
  overlaps(): string[] {
    const found: string[] = [];
    const last = new Map<string, Ran>();
    for (const run of this.#ofKeys()) {
      const before = last.get(run.key);
      if (before !== undefined && (before.endedMs ?? Number.POSITIVE_INFINITY) > run.startedMs) {
        found.push(`${before.jobId} and ${run.jobId}`);
      }
      last.set(run.key, run);
    }
    return found;
  }

  /** Places where a key's jobs did not start in the order of `i`. */
  inversions(): string[] {
    const found: string[] = [];
    const last = new Map<string, Ran>();
    for (const run of this.#ofKeys()) {
      const before = last.get(run.key);
      if (before !== undefined && before.i > run.i) found.push(`${before.i} before ${run.i} of ${run.key}`);
      last.set(run.key, run);
    }
    return found;
  }

  /** Jobs without a key have no order, and run concurrently. */
  #ofKeys(): Ran[] {
    return this.ran.filter(({ key }) => key !== "undefined");
  }

  /** The keys that the lane still holds for any key. */
  async leftovers(queue = "q"): Promise<string[]> {
    const keys = await this.redis.keys(`*:${queue}:lane:*`);
    return keys.filter((key) => !/lane:(seq|workers|rules|sweep)$/.test(key));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const patience = setTimeout(() => {
      this.#isOver = true;
      for (const end of this.#ends) end();
    }, PATIENCE_MS);
    try {
      for (const close of this.#closers.reverse()) await close();
    } finally {
      clearTimeout(patience);
    }
    this.redis.disconnect();
    await this.server.stop();
  }
}

/**
 * The option `timeout` of a worker whose jobs soon give up a held lock. A loaded machine answers within this time. A
 * lock without an answer is not known to be held, and is requested again a second later.
 */
export const SHORT_MS = 100;

export function jobs(count: number, keyOf: (i: number) => unknown, ms?: number): { name: string; data: Data }[] {
  return Array.from({ length: count }, (_, i) => ({
    name: "job",
    data: { k: keyOf(i), i, ...(ms === undefined ? {} : { ms }) },
  }));
}

/**
 * Resolves when `count` jobs have ended. The timeout begins again with every job that ends, because a loaded machine is
 * slow, not wrong.
 */
export async function finished(queue: Queue, count: number, timeout = 20_000): Promise<void> {
  const ended = (): Promise<number> => queue.getJobCountByTypes("completed", "failed");
  for (let before = await ended(); before !== count; before = await ended())
    await until(async () => (await ended()) !== before, timeout);
}

/** A promise, and the function that resolves it. */
export function gate(): { readonly passed: Promise<void>; open(): void } {
  let open = (): void => {};
  const passed = new Promise<void>((resolve) => (open = resolve));
  return { passed, open };
}

/** A `Redlock` that is closed with the lab. */
export function redlockOn(lab: Lab, nodes: ConstructorParameters<typeof Redlock>[0], options = {}): Redlock {
  const redlock = new Redlock(nodes, { ttl: 5_000, autoExtend: true, ...options });
  lab.defer(async () => await redlock.close());
  return redlock;
}

/** Messages of a diagnostics channel while the lab is open. */
export function listen<Message>(lab: Lab, name: string): Message[] {
  const messages: Message[] = [];
  const listener = (message: unknown): void => void messages.push(message as Message);
  subscribe(name, listener);
  lab.defer(async () => void unsubscribe(name, listener));
  return messages;
}

/** Returns how many scripts the queue's Redis has run. */
export async function scriptCalls({ server }: Lab): Promise<number> {
  return await server.calls("evalsha");
}
