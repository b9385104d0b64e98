/** The lock libraries behind one interface. Each stores a plain key for each resource on the nodes. */
import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { setTimeout as delay } from "node:timers/promises";
import NodeRedlockEntry from "@x/node-redlock";
import { Redlock } from "@x/redlock-core";
import { Redis } from "ioredis";
import { Mutex, RedlockMutex } from "redis-semaphore";
import { createLock, createRedlock, IoredisAdapter } from "redlock-universal";
import { NodeRedlock5, type Redlock5 } from "../support/redlock5.ts";
import { openLineAlone } from "./line-alone.ts";
import { openScriptAlone, openScriptTogether } from "./script-alone.ts";

export interface NodeAddress {
  readonly host: string;
  readonly port: number;
}

/** Releases the lock. */
export type Release = () => Promise<unknown>;

export interface LockDriver {
  /** While the lock is held, waits by the means of the library. */
  acquire(resource: string): Promise<Release>;
  /** Acquires the lock and extends it until the release. Rejects if the library cannot extend locks automatically. */
  hold(resource: string): Promise<Release>;
  close(): Promise<void>;
}

export interface DriverOptions {
  readonly ttl: number;
  /** Milliseconds between two attempts while the lock is held. Undefined for the library's default. */
  readonly retryDelay?: number | undefined;
}

export type DriverName =
  | "ioredis"
  | "our script alone"
  | "our script, together"
  | "a line alone"
  | "redlock 4"
  | "redlock 5"
  | "redlock-universal"
  | "redis-semaphore"
  | "ours"
  | "ours, as redlock 5";

/** The floor, the peers, and this project's package. */
export const driverNames: readonly DriverName[] = [
  "ioredis",
  "redlock 4",
  "redlock 5",
  "redlock-universal",
  "redis-semaphore",
  "ours",
  "ours, as redlock 5",
];

export const floor: DriverName = "ioredis";

/** Drivers that are only measured in pairs: the script of this project without the library. */
export const pairDriverNames: readonly DriverName[] = [...driverNames, "our script alone", "our script, together"];
export const peers: readonly DriverName[] = ["redlock 4", "redlock 5", "redlock-universal", "redis-semaphore"];

interface Redlock4 {
  acquire(resources: string[], ttl: number): Promise<{ unlock(): Promise<void> }>;
}

// The types of redlock 4 do not resolve here.
const NodeRedlock4 = createRequire(import.meta.url)("redlock4") as new (
  clients: readonly Redis[],
  settings: object,
) => Redlock4;

const open: Record<
  DriverName,
  (clients: readonly Redis[], options: DriverOptions) => LockDriver | Promise<LockDriver>
> = {
  ioredis: openPlain,
  "our script alone": (clients, { ttl }) => driver(clients, openScriptAlone(clients, ttl)),
  "our script, together": (clients, { ttl }) => driver(clients, openScriptTogether(clients, ttl)),
  "a line alone": async (clients, { ttl }) => {
    const [client] = clients;
    if (client === undefined || clients.length > 1) throw new RangeError("a line alone is on one node");
    return driver(clients, await openLineAlone(client, ttl));
  },
  "redlock 4": (clients, { ttl, retryDelay }) => {
    const redlock = new NodeRedlock4(clients, {
      retryCount: -1,
      ...(retryDelay === undefined ? {} : { retryDelay, retryJitter: retryDelay / 2 }),
    });
    return driver(clients, async (resource) => {
      const lock = await redlock.acquire([resource], ttl);
      return () => lock.unlock();
    });
  },
  "redlock 5": (clients, options) =>
    openRedlock5(new NodeRedlock5(clients, redlock5Settings(options)), clients, options),
  "ours, as redlock 5": (clients, options) =>
    openRedlock5(new NodeRedlockEntry(clients, redlock5Settings(options)), clients, options),
  "redlock-universal": (clients, { ttl, retryDelay }) => {
    const adapters = clients.map((client) => new IoredisAdapter(client));
    const retry = { retryAttempts: 1_000_000, ...(retryDelay === undefined ? {} : { retryDelay }) };
    const lockOf = (key: string): ReturnType<typeof createLock> => {
      const [adapter] = adapters;
      if (adapter !== undefined && adapters.length === 1) return createLock({ adapter, key, ttl, ...retry });
      return createRedlock({ adapters, key, ttl, ...retry });
    };
    return {
      ...driver(clients, async (resource) => {
        const lock = lockOf(resource);
        const handle = await lock.acquire();
        return () => lock.release(handle);
      }),
      hold: (resource) => holdUsing((routine) => lockOf(resource).using(routine)),
    };
  },
  "redis-semaphore": (clients, { ttl, retryDelay }) => {
    const mutexOf = (key: string, refreshInterval: number): Mutex | RedlockMutex => {
      const settings = {
        lockTimeout: ttl,
        acquireTimeout: Number.POSITIVE_INFINITY,
        refreshInterval,
        onLockLost: () => undefined,
        ...(retryDelay === undefined ? {} : { retryInterval: retryDelay }),
      };
      const [client] = clients;
      if (client !== undefined && clients.length === 1) return new Mutex(client, key, settings);
      return new RedlockMutex([...clients], key, settings);
    };
    const acquire = async (resource: string, refreshInterval: number): Promise<Release> => {
      const mutex = mutexOf(resource, refreshInterval);
      await mutex.acquire();
      return () => mutex.release();
    };
    return { ...driver(clients, (resource) => acquire(resource, 0)), hold: (resource) => acquire(resource, ttl * 0.8) };
  },
  ours: (clients, { ttl }) => {
    const redlock = new Redlock(clients, {
      ttl,
      maxTtl: ttl,
      timeout: Number.POSITIVE_INFINITY,
      // The servers are new, and a measurement need not wait for their quarantine.
      quarantine: false,
    });
    return {
      acquire: async (resource) => {
        const lock = await redlock.acquire(resource);
        return () => lock.release();
      },
      hold: async (resource) => {
        const lock = await redlock.acquire(resource, { autoExtend: true });
        return () => lock.release();
      },
      close: async () => {
        await redlock.close();
        for (const client of clients) client.disconnect();
      },
    };
  },
};

export async function openDriver(
  name: DriverName,
  nodes: readonly NodeAddress[],
  options: DriverOptions,
): Promise<LockDriver> {
  const clients = nodes.map(({ host, port }) => new Redis(port, host));
  for (const client of clients) client.on("error", () => undefined);
  const opened = await open[name](clients, options);
  await (await opened.acquire(`warm-up:${randomUUID()}`))();
  return opened;
}

function driver(clients: readonly Redis[], acquire: (resource: string) => Promise<Release>): LockDriver {
  return {
    acquire,
    hold: async () => await Promise.reject(new Error("this library keeps no lock alive")),
    close: async () => {
      for (const client of clients) client.disconnect();
    },
  };
}

const releaseScript = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`;

/**
 * The floor: SET NX PX and a compare-and-delete script on all nodes, as everybody first writes them. With several nodes
 * the driver asks for all votes and undoes nothing. It is therefore not a Redlock, and shows the cost of the commands
 * alone.
 */
function openPlain(clients: readonly Redis[], { ttl, retryDelay = 10 }: DriverOptions): LockDriver {
  for (const client of clients) client.defineCommand("releaseLock", { numberOfKeys: 1, lua: releaseScript });
  const quorum = Math.floor(clients.length / 2) + 1;
  return driver(clients, async (resource) => {
    const token = randomUUID();
    const release: Release = () =>
      Promise.all(
        clients.map((client) =>
          (client as unknown as { releaseLock(key: string, token: string): Promise<number> }).releaseLock(
            resource,
            token,
          ),
        ),
      );
    for (;;) {
      const votes = await Promise.all(clients.map((client) => client.set(resource, token, "PX", ttl, "NX")));
      if (votes.filter((vote) => vote === "OK").length >= quorum) return release;
      if (clients.length > 1) await release();
      await delay(retryDelay * (0.5 + Math.random()));
    }
  });
}

function redlock5Settings({ retryDelay }: DriverOptions): object {
  return { retryCount: -1, ...(retryDelay === undefined ? {} : { retryDelay, retryJitter: retryDelay / 2 }) };
}

function openRedlock5(redlock: Redlock5, clients: readonly Redis[], { ttl }: DriverOptions): LockDriver {
  return {
    ...driver(clients, async (resource) => {
      const lock = await redlock.acquire([resource], ttl);
      return () => lock.release();
    }),
    hold: (resource) =>
      holdUsing((routine) => redlock.using([resource], ttl, { automaticExtensionThreshold: ttl / 2 }, routine)),
  };
}

/** Converts `using` to an acquisition: resolves when the routine has begun, and ends the routine at the release. */
function holdUsing(using: (routine: () => Promise<void>) => Promise<unknown>): Promise<Release> {
  return new Promise((resolve, reject) => {
    let end: () => void = () => undefined;
    const over = new Promise<void>((ended) => {
      end = ended;
    });
    const used = using(async () => {
      resolve(async () => {
        end();
        await used;
      });
      await over;
    });
    used.catch(reject);
  });
}
