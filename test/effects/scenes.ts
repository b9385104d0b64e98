/**
 * Scenes in which a protection of `@x/effects` is the only thing between a fault and a broken promise. A scene throws
 * if the promise is broken. Scenes wait for events, so the schedule of a scene is always the same.
 */
import { type RedisServer, startCommitProxy, until } from "@x/test-support";
import { ExclusiveWorker } from "@x/workers";
import { Queue, Worker } from "bullmq";
import { Redis } from "ioredis";
import pg from "pg";

type EffectsModule = typeof import("@x/effects");

export interface Servers {
  readonly postgres: { readonly port: number; readonly user: string; readonly database: string };
  readonly redis: RedisServer;
}

let stages = 0;

/** The tables of one scene, in a shared database. */
export class Stage implements AsyncDisposable {
  readonly name = `scene${stages++}_`;
  readonly pool: pg.Pool;
  readonly connection: Redis;
  readonly module: EffectsModule;
  readonly servers: Servers;
  readonly #close: (() => Promise<unknown>)[] = [];

  private constructor(module: EffectsModule, servers: Servers) {
    this.module = module;
    this.servers = servers;
    this.pool = this.poolAt(servers.postgres.port);
    this.connection = new Redis({ host: "127.0.0.1", port: servers.redis.port, maxRetriesPerRequest: null });
    this.atEnd(() => this.connection.quit());
  }

  static async open(module: EffectsModule, servers: Servers): Promise<Stage> {
    const stage = new Stage(module, servers);
    await stage.effects().migrate();
    await stage.rows(`CREATE TABLE ${stage.name}log (seq bigserial, account int, n int)`);
    return stage;
  }

  poolAt(port: number): pg.Pool {
    const { user, database } = this.servers.postgres;
    const pool = new pg.Pool({ host: "127.0.0.1", port, user, database, max: 12 });
    pool.on("error", () => undefined);
    this.atEnd(() => pool.end());
    return pool;
  }

  effects(
    options: ConstructorParameters<EffectsModule["Effects"]>[1] = {},
    database: ConstructorParameters<EffectsModule["Effects"]>[0] = this.pool,
  ): InstanceType<EffectsModule["Effects"]> {
    return new this.module.Effects(database, { prefix: this.name, ...options });
  }

  relay(options: Partial<ConstructorParameters<EffectsModule["OutboxRelay"]>[1]> = {}, effects = this.effects()) {
    const election = { name: "none", run: () => Promise.resolve() };
    const relay = new this.module.OutboxRelay(effects, { election, connection: this.connection, ...options });
    this.atEnd(() => relay.stop());
    return relay;
  }

  queue(): Queue {
    const queue = new Queue(`${this.name}queue`, { connection: this.connection });
    this.atEnd(() => queue.close());
    return queue;
  }

  /** Registers the end of something that the scene has begun. The last registered end runs first. */
  atEnd(close: () => Promise<unknown>): void {
    this.#close.push(close);
  }

  async rows<Row>(text: string, values: unknown[] = []): Promise<Row[]> {
    return (await this.pool.query(text, values)).rows as Row[];
  }

  /** Writes an effect to the log. */
  readonly note =
    (account: number, n: number) =>
    async (tx: { query(text: string): Promise<unknown> }): Promise<number> => {
      await tx.query(`INSERT INTO ${this.name}log (account, n) VALUES (${account}, ${n})`);
      return n;
    };

  /** Returns the numbers of the effects, in their order. */
  async log(): Promise<number[]> {
    return (await this.rows<{ n: number }>(`SELECT n FROM ${this.name}log ORDER BY seq`)).map(({ n }) => n);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const close of this.#close.toReversed()) await close();
  }
}

export type Scene = (stage: Stage) => Promise<void>;

function expectSame(actual: readonly unknown[], expected: readonly unknown[], what: string): void {
  const [got, want] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (got !== want) throw new Error(`${what}: ${got}, not ${want}`);
}

const jobOf = (id: string) => ({ id, timestamp: 1, queueQualifiedName: "bull:payments" });

const sole = (assertCurrent: () => void = () => undefined) => {
  const controller = new AbortController();
  return { election: "none", signal: controller.signal, assertCurrent, end: () => controller.abort() };
};

interface Gate {
  readonly opened: Promise<void>;
  readonly open: () => void;
}

function gate(): Gate {
  let open: () => void = () => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

/** A job is executed twice, as after a crash between its commit and its completion. */
const executedTwice: Scene = async (stage) => {
  const effects = stage.effects();
  const lock = { fencingToken: 1, resources: ["account:1"] };
  for (let run = 0; run < 2; run += 1) await effects.once({ job: jobOf("a"), lock }, stage.note(1, 1));
  expectSame(await stage.log(), [1], "effects of one job");
};

/**
 * A worker freezes before its transaction. Its job fails as stalled, the next job of the account runs, and then the
 * frozen worker resumes.
 */
const zombieAfterItsJobFailed: Scene = async (stage) => {
  const effects = stage.effects();
  const queue = stage.queue();
  const resumed = gate();
  const started = gate();
  const ended = gate();
  const shared = {
    connection: stage.connection,
    key: "account",
    resource: `${stage.name}account:`,
    onFailure: "skip",
    stalledInterval: 100,
    recheckInterval: 100,
    maxStalledCount: 0,
  } as const;
  // Like a frozen process, this worker does not renew BullMQ's lock. The lock of the key is deleted below.
  const frozen = new ExclusiveWorker<{ account: number; n: number }>(
    queue.name,
    async (job, _token, _signal, lock) => {
      started.open();
      await resumed.opened;
      await effects.once({ job, lock }, stage.note(1, job.data.n)).catch(() => undefined);
      ended.open();
    },
    { ...shared, lockDuration: 5_000, skipLockRenewal: true, skipStalledCheck: true },
  );
  frozen.on("error", () => undefined);
  stage.atEnd(() => frozen.close(true));
  await queue.add("charge", { account: 1, n: 1 });
  await started.opened;
  await frozen.redlock.forceRelease(`${stage.name}account:1`);
  await queue.add("charge", { account: 1, n: 2 });
  const other = new ExclusiveWorker<{ account: number; n: number }>(
    queue.name,
    async (job, _token, _signal, lock) => await effects.once({ job, lock }, stage.note(1, job.data.n)),
    { ...shared, lockDuration: 10_000 },
  );
  other.on("error", () => undefined);
  stage.atEnd(() => other.close());
  await until(async () => (await stage.log()).includes(2));
  resumed.open();
  await ended.opened;
  const log = await stage.log();
  if (log.join() === "2,1") throw new Error("the effect of the first job came after that of the second one");
  expectSame(log, [2], "effects");
};

/** The reply of a COMMIT is lost. */
const lostReply: Scene = async (stage) => {
  const proxy = await startCommitProxy(stage.servers.postgres.port, (commits) => (commits === 0 ? "after" : "pass"));
  stage.atEnd(() => proxy[Symbol.asyncDispose]());
  const effects = stage.effects({}, stage.poolAt(proxy.port));
  const result = await effects.once({ job: jobOf("a") }, stage.note(1, 1));
  expectSame([result, ...(await stage.log())], [1, 1], "result and effects");
};

/**
 * The first transaction enqueues, and then changes a row that the second transaction has changed and committed in the
 * meantime.
 */
const dependentTransactions: Scene = async (stage) => {
  const effects = stage.effects();
  const enqueued = gate();
  const committed = gate();
  const first = effects.transaction(async (tx) => {
    tx.enqueue("receipts", "first", {});
    await tx.query("SELECT 1");
    enqueued.open();
    await committed.opened;
    await stage.note(1, 1)(tx);
  });
  await enqueued.opened;
  await effects.transaction(async (tx) => {
    await stage.note(1, 2)(tx);
    tx.enqueue("receipts", "second", {});
  });
  committed.open();
  await first;
  const rows = await stage.rows<{ name: string }>(`SELECT name FROM ${stage.name}outbox o ORDER BY o.seq`);
  expectSame(
    rows.map(({ name }) => name),
    ["second", "first"],
    "order of the rows",
  );
};

/** Redis loses its data after some of the jobs took effect, and the kept rows are relayed again. */
const redisLosesItsData: Scene = async (stage) => {
  const effects = stage.effects();
  const queue = stage.queue();
  const numbers = Array.from({ length: 20 }, (_, n) => n);
  await effects.transaction((tx) => {
    for (const n of numbers) tx.enqueue(queue.name, "send", { n }, { removeOnComplete: true });
  });
  const relay = stage.relay({ keepFor: 3_600_000 });
  const term = sole();
  const led = relay.lead(term);
  await until(async () => (await queue.getWaitingCount()) === numbers.length);
  // The relay records the rows after it has added their jobs.
  await until(async () => (await effects.backlog()).rows === 0);
  let left = 8;
  const consumer = new Worker<{ n: number }>(
    queue.name,
    async (job) => {
      if (left === 0) {
        await stopped.opened;
        throw new Error("stopped");
      }
      left -= 1;
      return await effects.once({ job }, stage.note(1, job.data.n));
    },
    { connection: stage.connection, maxStalledCount: 1_000 },
  );
  const stopped = gate();
  consumer.on("error", () => undefined);
  await until(async () => (await stage.log()).length === 8);
  await until(async () => (await queue.getActiveCount()) === 1 && left === 0);
  const keys = await stage.connection.keys(`bull:${queue.name}:*`);
  await stage.connection.del(keys);
  stopped.open();
  await consumer.close();
  await effects.replay({ queue: queue.name, since: new Date(0) });
  const second = new Worker<{ n: number }>(
    queue.name,
    async (job) => await effects.once({ job }, stage.note(1, job.data.n)),
    { connection: stage.connection, maxStalledCount: 1_000 },
  );
  second.on("error", () => undefined);
  await until(
    async () => (await effects.backlog()).rows === 0 && (await queue.getJobCountByTypes("wait", "active")) === 0,
  );
  await second.close();
  term.end();
  await led;
  expectSame(await stage.log(), numbers, "effects");
};

/** Redis refuses the jobs for a while. */
const refusedJobs: Scene = async (stage) => {
  const effects = stage.effects();
  const queue = stage.queue();
  await effects.transaction((tx) => tx.enqueue(queue.name, "send", {}));
  // The key in which BullMQ counts the queue's jobs contains another value.
  await stage.connection.set(`bull:${queue.name}:id`, "not a number");
  const relay = stage.relay();
  const failed = new Promise((resolve) => relay.on("relayFailed", resolve));
  const term = sole();
  const led = relay.lead(term);
  await failed;
  await stage.connection.del(`bull:${queue.name}:id`);
  await until(async () => (await effects.backlog()).rows === 0);
  term.end();
  await led;
  expectSame([await queue.getWaitingCount()], [1], "jobs");
};

/** A leader reads rows, loses its term, and resumes after the next leader has relayed the rows. */
const formerLeader: Scene = async (stage) => {
  const queue = stage.queue();
  const read = gate();
  const resumed = gate();
  const database = {
    query: async (text: string, values: unknown[]) => {
      const { rows } = await stage.pool.query<object>(text, values);
      if (!text.includes("opts") || rows.length === 0) return rows;
      read.open();
      await resumed.opened;
      return rows;
    },
    transaction: () => Promise.reject(new Error("the relay needs no transaction")),
  };
  await stage.effects().transaction((tx) => tx.enqueue(queue.name, "send", {}, { removeOnComplete: true }));
  let isOver = false;
  const former = sole(() => {
    if (isOver) throw new Error("the term is over");
  });
  const frozen = stage.relay({}, stage.effects({}, database)).lead(former);
  await read.opened;
  isOver = true;
  const next = sole();
  const led = stage.relay().lead(next);
  let deliveries = 0;
  const plain = new Worker(
    queue.name,
    () => {
      deliveries += 1;
      return Promise.resolve();
    },
    { connection: stage.connection },
  );
  plain.on("error", () => undefined);
  await until(async () => deliveries === 1 && (await queue.getJobCountByTypes("wait", "active")) === 0);
  former.end();
  resumed.open();
  await frozen;
  next.end();
  await led;
  await until(async () => (await queue.getJobCountByTypes("wait", "active")) === 0);
  await plain.close();
  expectSame([deliveries], [1], "deliveries to a plain consumer");
};

/** Holders of the same resources claim them at the same time, in opposite order. */
const oppositeOrder: Scene = async (stage) => {
  const effects = stage.effects({ retries: 0 });
  const names = Array.from({ length: 12 }, (_, index) => `r${index}`);
  const runs = Array.from({ length: 60 }, (_, n) => {
    const resources = n % 2 === 0 ? names : names.toReversed();
    return effects.once({ key: `k${n}`, lock: { fencingToken: 1, resources } }, () => n);
  });
  const failed = (await Promise.allSettled(runs)).filter(({ status }) => status === "rejected");
  expectSame([failed.length], [0], "calls that failed");
};

export const SCENES = {
  "a job is executed twice": executedTwice,
  "a frozen worker resumes after its job failed": zombieAfterItsJobFailed,
  "the reply of a COMMIT is lost": lostReply,
  "a transaction depends on one that commits before it": dependentTransactions,
  "Redis loses its data": redisLosesItsData,
  "Redis refuses jobs for a while": refusedJobs,
  "a former leader resumes": formerLeader,
  "holders claim in opposite order": oppositeOrder,
} satisfies Readonly<Record<string, Scene>>;

export type SceneName = keyof typeof SCENES;

/** Plays a scene. Returns how the scene broke, or undefined if no promise was broken. */
export async function play(name: SceneName, module: EffectsModule, servers: Servers): Promise<string | undefined> {
  await using stage = await Stage.open(module, servers);
  try {
    await SCENES[name](stage);
    return undefined;
  } catch (error) {
    return String(error);
  }
}
