import { Redlock, type RedlockOptions } from "@x/redlock-core";
import { type RedisServer, startRedisNodes } from "@x/test-support";

/** Short enough for tests, long enough for a busy machine. */
export const LEASE = { leaseDuration: 1_500, renewDeadline: 1_000, retryPeriod: 200 } as const;
export const MAX_TTL = 3_000;

export interface Nodes extends AsyncDisposable {
  readonly servers: readonly RedisServer[];
  readonly paths: readonly string[];
  /** A client of all nodes; closed with the nodes. */
  redlock(options?: RedlockOptions): Redlock;
}

export async function startNodes(count: number): Promise<Nodes> {
  const servers = await startRedisNodes(count);
  const clients: Redlock[] = [];
  const paths = servers.map((server) => server.path);
  return {
    servers,
    paths,
    redlock(options?: RedlockOptions): Redlock {
      const client = connect(paths, options);
      clients.push(client);
      return client;
    },
    async [Symbol.asyncDispose](): Promise<void> {
      await Promise.all(clients.map((client) => client.close()));
      await Promise.all(servers.map((server) => server.stop()));
    },
  };
}

/**
 * Connects a client that waits for an answer for as long as `LEASE` allows, because a loaded machine is slow. New nodes
 * would cast no vote for `maxTtl`. A test that restarts nodes sets `quarantine` itself.
 */
export function connect(paths: readonly string[], options?: RedlockOptions): Redlock {
  return new Redlock(
    paths.map((path) => ({ path })),
    { ttl: MAX_TTL, maxTtl: MAX_TTL, nodeTimeout: 700, quarantine: false, ...options },
  );
}
