/** Every client library that is supported, by name. */

import { GlideClient, Logger } from "@valkey/valkey-glide";
import { Redis } from "ioredis";
import { Redis as Redis5 } from "ioredis5";
import { createClient } from "redis";
import { createClient as createClient5 } from "redis5";
import { onTestFinished } from "vitest";
import { type NodeSource, systemClock } from "../../src/index.ts";
import type { NodeSettings } from "../../src/nodes/connection.ts";
import { GlideNode } from "../../src/nodes/glide.ts";

// Else it writes each failed request to the standard error output.
Logger.setLoggerConfig("off");

export { GlideClient };

/**
 * Not yet connected; closed with the `Redlock` that gets them, or with the test. `settings` are for those that do not
 * get them from the `Redlock`.
 */
export const clients: Readonly<Record<string, (url: string, settings?: Partial<NodeSettings>) => NodeSource>> = {
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
  GLIDE: (url, settings) => {
    const { hostname: host, port, username, password } = new URL(url);
    const credentials = password === "" ? {} : { credentials: { username, password } };
    const configuration = { addresses: [{ host, port: Number(port) }], ...credentials };
    return GlideNode.of(GlideClient, configuration, { nodeTimeoutMs: 1_000, clock: systemClock, ...settings });
  },
};
