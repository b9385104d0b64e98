/**
 * Wrong arguments of every function: each is refused by name, before anything is sent, and no error contains a secret.
 */
import { EventEmitter } from "node:events";
import { type Database, Effects, OutboxRelay } from "@x/effects";
import { LeaderElection } from "@x/leader";
import { coordinator } from "@x/leader/node-cron";
import { LeaderScheduler } from "@x/leader/scheduler";
import CompatRedlock from "@x/node-redlock";
import Redlock4 from "@x/node-redlock/v4";
import { fence, type LockNode, Redlock } from "@x/redlock-core";
import { protocolOf } from "@x/redlock-core/protocol";
import { CountDownLatch, ReadWriteLock, Semaphore } from "@x/semaphore";
import { placesOf, type RedisServer, startRedis } from "@x/test-support";
import { ExclusiveQueue, ExclusiveWorker } from "@x/workers";
import { PartitionedQueue, PartitionedWorker } from "@x/workers/partitions";
import { Queue, Worker } from "bullmq";
import fc from "fast-check";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { MODULES, NOT_CALLED, OBJECTS, type Parameter, type Subjects, TABLE, type TableEntry } from "./table.ts";
import { anything, type Legal, SECRET, VALUES } from "./values.ts";

const LONGEST_MESSAGE = 1_000;

let server: RedisServer;
let subjects: Subjects;
let close: () => Promise<void>;

beforeAll(async () => {
  server = await startRedis();
  const connection = { host: "127.0.0.1", port: server.port };
  const client = new Redis(connection);
  // No lease is renewed before the tests have ended.
  const redlock = new Redlock(server.url, { maxTtl: 3_600_000 });
  const election = new LeaderElection(redlock, { name: "idle" });
  const leading = new LeaderElection(redlock, { name: "led", leaseDuration: 3_600_000, retryPeriod: 1_000_000 });
  const scheduler = new LeaderScheduler({ election });
  const compat = new CompatRedlock([client]);
  const compat4 = new Redlock4([client]);
  const queue = new ExclusiveQueue("q", { connection, key: "k" });
  const worker = new ExclusiveWorker("q", null, { connection, key: "k", recheckInterval: 86_400_000 });
  const division = { connection, partitions: 2, key: "k" };
  const partitionedQueue = new PartitionedQueue("q", division);
  const partitionedWorker = new PartitionedWorker("q", () => Promise.resolve(), {
    ...division,
    autorun: false,
    recheckInterval: 86_400_000,
  });
  const lock = await redlock.acquire("held", { ttl: 3_600_000 });
  const { embedded } = protocolOf(redlock);
  if (embedded === undefined) throw new Error("one node has no embedded locks");
  await Promise.all([worker.waitUntilReady(), queue.waitUntilReady()]);
  await partitionedWorker.waitUntilReady();
  await partitionedQueue.waitUntilReady();
  const database: Database = {
    query: () => Promise.reject(new Error("sent")),
    transaction: () => Promise.reject(new Error("sent")),
  };
  const effects = new Effects(database);
  subjects = {
    node: {
      name: "unused",
      state: "ready",
      eval: () => Promise.reject(new Error("sent")),
      onStateChange: () => () => undefined,
      close: () => Promise.resolve(),
    } satisfies LockNode,
    redlock,
    lock,
    protocol: protocolOf(redlock),
    keys: protocolOf(redlock).keys,
    lease: protocolOf(lock),
    embedded,
    fenced: await fence(client, "fenced", 1),
    semaphore: new Semaphore(redlock, "few", { permits: 2 }),
    access: new ReadWriteLock(redlock, "shared").read,
    latch: new CountDownLatch(redlock, "last"),
    compatClient: client,
    compat,
    compatLock: await compat.acquire(["compat"], 60_000),
    compat4,
    compat4Lock: await compat4.lock("compat4", 60_000),
    election,
    term: await leading.campaign(),
    runCoordinator: coordinator(redlock),
    scheduler,
    schedule: scheduler.every("schedule", 60_000, () => undefined),
    queue,
    worker,
    database,
    effects,
    relay: new OutboxRelay(effects, { election: { name: "idle", run: () => Promise.resolve() }, connection }),
    partitionedQueue,
    partitionedWorker,
    connection,
  };
  close = async () => {
    await worker.close();
    await queue.close();
    await partitionedWorker.close();
    await partitionedQueue.close();
    await subjects.term.resign();
    await leading.stop();
    await election.stop();
    await redlock.close();
    await compat.quit();
    await server.stop();
  };
});

afterAll(async () => await close());

/** Counts the sent commands, except questions about the server itself. */
async function sent(): Promise<Readonly<Record<string, number>>> {
  const stats = String(await server.call("INFO", "commandstats"));
  const calls = [...stats.matchAll(/^cmdstat_(\S+?):calls=(\d+)/gm)]
    .map(([, name = "", count]): [string, number] => [name, Number(count)])
    .filter(([name]) => !/^(info|ping|hello|client|select|config)/.test(name));
  return Object.fromEntries(calls);
}

/** The term opens its own channel in addition to the election's. */
async function sentBefore(): ReturnType<typeof sent> {
  await expect.poll(sent).toHaveProperty("subscribe", 1);
  return await sent();
}

function rightOf({ right, options }: Parameter): unknown {
  const given =
    typeof right === "function" && right.length === 1 ? (right as (of: Subjects) => unknown)(subjects) : right;
  return given === undefined && options !== undefined ? {} : given;
}

/** Passes one wrong value in one place. Resolves with undefined if the call is refused correctly. */
async function faultOf(
  entry: TableEntry,
  at: number,
  value: unknown,
  says: string | RegExp,
): Promise<string | undefined> {
  const args = Object.values(entry.parameters).map(rightOf);
  args[at] = value;
  let error: unknown;
  try {
    const result = await (entry.call(subjects, args as never[]) as Promise<unknown>);
    return `not refused, but ${typeof result}`;
  } catch (thrown) {
    error = thrown;
  }
  if (!(error instanceof TypeError) && !(error instanceof RangeError)) return String(error);
  const { message } = error;
  const isNamed = typeof says === "string" ? message.includes(says) : says.test(message);
  if (!isNamed || !/ must | is not a function| cannot be used |^unknown option /.test(message))
    return `says "${message.slice(0, 200)}"`;
  if (message.length > LONGEST_MESSAGE) return `says ${message.length} characters`;
  const places = await placesOf(SECRET, error);
  return places.length === 0 ? undefined : `shows the secret at ${places.join(", ")}`;
}

interface ArgumentPlace {
  readonly name: string;
  readonly entry: TableEntry;
  readonly at: number;
  readonly says: string | RegExp;
  readonly isLegal: Legal;
  /** Returns the argument with a value in this place. */
  readonly argument: (value: unknown) => unknown;
}

/** Returns every argument, and every option of an argument with options. */
function placesIn(name: string, entry: TableEntry): readonly ArgumentPlace[] {
  return Object.entries(entry.parameters).flatMap(([parameterName, parameter], at) => {
    const { options, says = parameterName, legal = isPlain } = parameter;
    const whole: ArgumentPlace = {
      name: `${name}(${parameterName})`,
      entry,
      at,
      says:
        options === undefined
          ? says
          : /options|unknown option|definition|policy|settings|scripts|request|clock|name|redlock|election|key|keys/,
      isLegal: safely(legal),
      argument: (value) => value,
    };
    const inside = Object.entries(options ?? {}).map(
      ([option, isLegal]): ArgumentPlace => ({
        name: `${name}({ ${option} })`,
        entry,
        at,
        says: option,
        isLegal: safely(isLegal),
        argument: (value) => ({ ...(rightOf(parameter) as object), [option]: value }),
      }),
    );
    return [whole, ...inside];
  });
}

/** A value whose inspection throws is never legal. */
function safely(legal: Legal): Legal {
  return (value) => {
    try {
      return legal(value);
    } catch {
      return false;
    }
  };
}

/** An object without a name of its own has no wrong option. Its missing options are found with the options. */
const isPlain: Legal = (value) => value === undefined || Object.prototype.toString.call(value) === "[object Object]";

const places = Object.entries(TABLE).flatMap(([name, entry]) => placesIn(name, entry));

it("the list contains every exported function, constructor and method", () => {
  const known = new Set([...Object.keys(TABLE), ...Object.keys(NOT_CALLED)]);
  const unknown = Object.entries(MODULES).flatMap(([module, exported]) =>
    Object.entries(exported)
      .filter(([name]) => name !== "default")
      .flatMap(([name, value]) => namesOf(`${module}.`, name, value))
      .filter((name) => !known.has(name)),
  );
  const ofObjects = Object.entries(OBJECTS(subjects)).flatMap(([name, object]) =>
    [...methodsOf(object), ...methodsOf(Object.getPrototypeOf(object) as object)]
      .map((method) => `${name}.${method}`)
      .filter((method) => !known.has(method)),
  );
  expect([...unknown, ...ofObjects]).toEqual([]);
});

function namesOf(prefix: string, name: string, value: unknown): readonly string[] {
  if (typeof value !== "function") return [prefix + name];
  const { prototype } = value as { readonly prototype?: object };
  if (prototype === undefined || !String(value).startsWith("class ")) return [prefix + name];
  // Errors are created by their package.
  if (prototype instanceof Error) return [];
  return [`${prefix}new ${name}`, ...methodsOfClass(prototype).map((method) => `${prefix}${name}.${method}`)];
}

/** Classes of Node.js and BullMQ that classes of the packages extend. */
const FOREIGN: ReadonlySet<object> = new Set([Object, EventEmitter, Queue, Worker].map(({ prototype }) => prototype));

/** Returns the methods of a class, including those that the class inherits from another class of the packages. */
function methodsOfClass(prototype: object): readonly string[] {
  if (FOREIGN.has(prototype)) return [];
  return [...methodsOf(prototype), ...methodsOfClass(Object.getPrototypeOf(prototype) as object)];
}

function methodsOf(object: object): readonly string[] {
  if (object === Object.prototype) return [];
  return Object.entries(Object.getOwnPropertyDescriptors(object))
    .filter(([name, { value }]) => typeof value === "function" && name !== "constructor")
    .map(([name]) => name);
}

describe("a wrong argument", () => {
  it("of any kind is refused by name, without sending a command or showing a secret", {
    timeout: 120_000,
  }, async () => {
    const before = await sentBefore();
    const faults: string[] = [];
    for (const place of places) {
      for (const [name, value] of Object.entries(VALUES)) {
        if (place.isLegal(value())) continue;
        const fault = await faultOf(place.entry, place.at, place.argument(value()), place.says);
        if (fault !== undefined) faults.push(`${place.name} = ${name}: ${fault}`);
      }
    }
    expect(faults).toEqual([]);
    expect(await sent()).toEqual(before);
  });

  it("is refused by name even if it is random", { timeout: 120_000 }, async () => {
    const before = await sentBefore();
    const property = fc.asyncProperty(fc.constantFrom(...places), anything, async (place, make) => {
      const value = make();
      fc.pre(!place.isLegal(value));
      const fault = await faultOf(place.entry, place.at, place.argument(value), place.says);
      if (fault !== undefined) throw new Error(`${place.name}: ${fault}`);
    });
    await fc.assert(property, { seed: 16, numRuns: 10_000, interruptAfterTimeLimit: 20_000 });
    expect(await sent()).toEqual(before);
  });
});
