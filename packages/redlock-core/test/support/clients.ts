/** Every client library that is supported, by name. */
import { Redis } from "ioredis";
import { Redis as Redis5 } from "ioredis5";
import { createClient } from "redis";
import { createClient as createClient5 } from "redis5";
import { onTestFinished } from "vitest";
import type { NodeSource } from "../../src/index.ts";

/** Not yet connected; closed with the `Redlock` that gets them, or with the test. */
export const clients: Readonly<Record<string, (url: string) => NodeSource>> = {
  ioredis: (url) => {
    const client = new Redis(url, { lazyConnect: true });
    onTestFinished(() => client.disconnect());
    return client;
  },
  "ioredis 5": (url) => {
    const client = new Redis5(url, { lazyConnect: true });
    onTestFinished(() => client.disconnect());
    return client;
  },
  "node-redis": (url) => createClient({ url }),
  "node-redis 5": (url) => createClient5({ url }) as NodeSource,
};
