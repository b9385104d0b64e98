/** Real nodes and clients for one test file, ended with it. */
import { type RedisServer, type RedisServerOptions, startRedisNodes } from "@x/test-support";
import { expect, onTestFinished } from "vitest";
import { type NodeSource, Redlock, type RedlockOptions } from "../../src/index.ts";

/** Short leases, so that expiry and quarantine pass within a test. */
export const shortTtl = { ttl: 1_500, maxTtl: 1_500 } as const;

/** Starts servers that end with the test. */
export async function startNodes(count: number, options?: RedisServerOptions): Promise<RedisServer[]> {
  const servers = await startRedisNodes(count, options);
  onTestFinished(async () => {
    await Promise.all(servers.map((server) => server.stop()));
  });
  return servers;
}

/**
 * A `Redlock` that is closed with the test. Without quarantine, unless asked for: the nodes are new. It waits for an answer for as
 * long as a loaded machine may take; a test with nodes that hang asks for less.
 */
export function openRedlock(nodes: readonly (RedisServer | NodeSource)[], options: RedlockOptions = {}): Redlock {
  const sources = nodes.map((node) => (isServer(node) ? { path: node.path } : node));
  const redlock = new Redlock(sources, { quarantine: false, nodeTimeout: 10_000, ...options });
  onTestFinished(async () => {
    await redlock.close();
  });
  return redlock;
}

function isServer(node: RedisServer | NodeSource): node is RedisServer {
  return typeof node === "object" && "freeze" in node;
}

/**
 * Resolves when every node has answered. A lock needs only a quorum of them: after an acquisition the other nodes may still be
 * connecting, and a node that a test then freezes or kills never gets what is sent to a connected one.
 */
export async function everyNodeAnswers(redlock: Redlock): Promise<void> {
  const failed = async (): Promise<unknown[]> =>
    (await redlock.inspect("any")).nodes.filter(({ error }) => error !== undefined);
  await expect.poll(failed).toEqual([]);
}

/** Rejects nothing: the error of a promise that must reject. */
export async function errorOf(promise: Promise<unknown>): Promise<unknown> {
  return await promise.then(
    (value) => {
      throw new Error(`expected a rejection, got ${JSON.stringify(value)}`);
    },
    (error: unknown) => error,
  );
}
