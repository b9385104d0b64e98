/** Real nodes and clients for one test file, ended with it. */
import { type ManualClock, type RedisServer, type RedisServerOptions, startRedisNodes } from "@x/test-support";
import { expect, onTestFinished } from "vitest";
import { type NodeSource, Redlock, type RedlockOptions } from "../../src/index.ts";
import { defineScript, protocolOf } from "../../src/protocol.ts";

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
 * Opens a `Redlock` that is closed with the test. The nodes are new, so the default is no quarantine. The `Redlock`
 * waits for an answer for as long as a loaded machine may take. A test with nodes that hang sets a shorter time.
 */
export function openRedlock(nodes: readonly (RedisServer | NodeSource)[], options: RedlockOptions = {}): Redlock {
  const sources = nodes.map((node) => (isServer(node) ? { path: node.path } : node));
  const redlock = new Redlock(sources, { quarantine: false, nodeTimeout: 10_000, ...options });
  onTestFinished(async () => {
    await redlock.close();
  });
  return redlock;
}

/** Resolves when `count` waiters are in line on a quorum of the nodes. */
export async function inLine(redlock: Redlock, resource: string, count: number): Promise<void> {
  await expect
    .poll(async () => (await redlock.inspect(resource)).nodes.filter(({ waiters }) => waiters === count).length)
    .toBeGreaterThanOrEqual(redlock.quorum);
}

/** Returns how many scripts clients have sent to the node. Every request of this package is a script. */
export async function requestsOf(server: RedisServer | undefined): Promise<number> {
  return (await server?.calls("evalsha")) ?? 0;
}

function isServer(node: RedisServer | NodeSource): node is RedisServer {
  return typeof node === "object" && "freeze" in node;
}

/**
 * Resolves when every node has answered. A lock needs only a quorum of nodes, so the other nodes may still be
 * connecting after an acquisition. Without this wait, a node that a test freezes or kills would never receive requests
 * for a connected node.
 */
export async function everyNodeAnswers(redlock: Redlock): Promise<void> {
  const failed = async (): Promise<unknown[]> =>
    (await redlock.inspect("any")).nodes.filter(({ error }) => error !== undefined);
  await expect.poll(failed).toEqual([]);
}

/**
 * Lets time pass for a client of real nodes, in steps. Requests that the client sends in a step are answered before the
 * next step, so no load makes them late. Each step costs one more request.
 */
export async function pass(
  redlock: Redlock,
  clock: ManualClock,
  { steps, stepMs }: { readonly steps: number; readonly stepMs: number },
): Promise<void> {
  for (let step = 0; step < steps; step += 1) {
    await clock.advance(stepMs);
    // Nothing overtakes on a connection.
    await protocolOf(redlock).run(NOTHING, { keys: ["k"], args: [] });
  }
}

const NOTHING = defineScript("nothing", "return 1");
