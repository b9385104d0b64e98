/** Every client library that is supported, by name. */
import type { GlideClient } from "@valkey/valkey-glide";
import { Redis } from "ioredis";
import { Redis as Redis5 } from "ioredis5";
import { createClient } from "redis";
import { createClient as createClient5 } from "redis5";
import { onTestFinished } from "vitest";
import { type NodeSource, systemClock } from "../../src/index.ts";
import type { NodeSettings } from "../../src/nodes/connection.ts";
import { GlideNode } from "../../src/nodes/glide.ts";

/** GLIDE has no native part for Windows: its import throws there, and its tests are skipped. */
const glide = await import("@valkey/valkey-glide").catch((error: unknown) => {
  if (process.platform !== "win32") throw error;
  process.emitWarning(`Valkey GLIDE cannot be loaded, so its tests are SKIPPED: ${String(error)}`);
  return undefined;
});
// Without this, GLIDE writes each failed request to the standard error output.
glide?.Logger.setLoggerConfig("off");

export const hasGlide: boolean = glide !== undefined;

export function glideClass(): typeof GlideClient {
  if (glide === undefined) throw new Error("Valkey GLIDE cannot be loaded here");
  return glide.GlideClient;
}

type ClientMaker = (url: string, settings?: Partial<NodeSettings>) => NodeSource;

/**
 * Creates a client that is not yet connected, and that is closed with its `Redlock` or with the test. `settings` are
 * for clients that do not get them from the `Redlock`.
 */
export const clients: Readonly<Record<string, ClientMaker>> = {
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
  ...(hasGlide ? { GLIDE: openGlide } : {}),
};

function openGlide(url: string, settings?: Partial<NodeSettings>): NodeSource {
  const { hostname: host, port, username, password } = new URL(url);
  const credentials = password === "" ? {} : { credentials: { username, password } };
  const configuration = { addresses: [{ host, port: Number(port) }], ...credentials };
  return GlideNode.of(glideClass(), configuration, { nodeTimeoutMs: 1_000, clock: systemClock, ...settings });
}
