/** The other libraries behind one interface, each with the key that it uses for a resource. */
import { createRequire } from "node:module";
import type { Redis } from "ioredis";
import { Mutex, RedlockMutex } from "redis-semaphore";
import { createLock, createRedlock, IoredisAdapter, LockAcquisitionError } from "redlock-universal";

export type Release = () => Promise<unknown>;

export interface Peer {
  /** Makes one attempt. Resolves with null if the resource is held. */
  tryAcquire(resource: string): Promise<Release | null>;
}

export interface PeerKind {
  readonly name: string;
  /** The prefix of the library's keys. */
  readonly keyPrefix: string;
  readonly open: (clients: readonly Redis[]) => Peer;
}

const ttl = 20_000;

interface Redlock4 {
  lock(resource: string, ttl: number): Promise<{ unlock(): Promise<unknown> }>;
}

export interface Redlock5 {
  on(event: "error", listener: () => void): unknown;
  acquire(resources: string[], duration: number): Promise<{ release(): Promise<unknown> }>;
}

type Make<Instance> = new (clients: readonly Redis[], settings: object) => Instance;

// The types of both libraries do not resolve here.
const require = createRequire(import.meta.url);
const NodeRedlock4 = require("redlock4") as Make<Redlock4>;
export const { default: NodeRedlock5 } = require("redlock") as { readonly default: Make<Redlock5> };

export const peerKinds: readonly PeerKind[] = [
  {
    name: "node-redlock 4",
    keyPrefix: "",
    open: (clients) => {
      const redlock = new NodeRedlock4(clients, { retryCount: 0 });
      return attempts("LockError", async (resource) => {
        const lock = await redlock.lock(resource, ttl);
        return () => lock.unlock();
      });
    },
  },
  {
    name: "node-redlock 5",
    keyPrefix: "",
    open: (clients) => {
      const redlock = new NodeRedlock5(clients, { retryCount: 0 });
      return attempts("ExecutionError", async (resource) => {
        const lock = await redlock.acquire([resource], ttl);
        return () => lock.release();
      });
    },
  },
  {
    name: "redlock-universal",
    keyPrefix: "",
    open: (clients) => {
      const adapters = clients.map((client) => new IoredisAdapter(client));
      return attempts(LockAcquisitionError.name, async (key) => {
        const [adapter] = adapters;
        const lock =
          adapter !== undefined && adapters.length === 1
            ? createLock({ adapter, key, ttl, retryAttempts: 0 })
            : createRedlock({ adapters, key, ttl, retryAttempts: 0 });
        const handle = await lock.acquire();
        return () => lock.release(handle);
      });
    },
  },
  {
    name: "redis-semaphore",
    keyPrefix: "mutex:",
    open: (clients) => ({
      tryAcquire: async (resource) => {
        const [client] = clients;
        const options = { lockTimeout: ttl, refreshInterval: 0, acquireAttemptsLimit: 1 };
        const mutex =
          client !== undefined && clients.length === 1
            ? new Mutex(client, resource, options)
            : new RedlockMutex([...clients], resource, options);
        return (await mutex.tryAcquire()) ? () => mutex.release() : null;
      },
    }),
  },
];

/** Adapts a library that reports a held resource with an error. */
function attempts(errorName: string, acquire: (resource: string) => Promise<Release>): Peer {
  return {
    tryAcquire: async (resource) => {
      try {
        return await acquire(resource);
      } catch (error) {
        if (error instanceof Error && error.name === errorName) return null;
        throw error;
      }
    },
  };
}
