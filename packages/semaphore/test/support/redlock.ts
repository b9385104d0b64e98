/** Real nodes for one test file, and a `Redlock` for each process that a test plays. */
import { Redlock, type RedlockOptions } from "@x/redlock-core";
import { type RedisServer, startRedis, startRedisNodes } from "@x/test-support";
import { afterAll, beforeAll, onTestFinished } from "vitest";

/** Starts one server for all tests of the file. Each test uses its own names. */
export function useServer(): () => RedisServer {
  let server: RedisServer | undefined;
  beforeAll(async () => {
    server = await startRedis();
  });
  afterAll(async () => {
    await server?.stop();
  });
  return () => {
    if (server === undefined) throw new Error("no server yet");
    return server;
  };
}

/** Starts several servers, which forget nothing, for all tests of the file. */
export function useServers(count: number): () => readonly RedisServer[] {
  let servers: readonly RedisServer[] = [];
  beforeAll(async () => {
    servers = await startRedisNodes(count);
  });
  afterAll(async () => {
    await Promise.all(servers.map((server) => server.stop()));
  });
  return () => servers;
}

type At = Pick<RedisServer, "path">;

/** Waits for an answer for as long as a loaded machine may take. New nodes vote immediately. */
export function openRedlock(servers: At | readonly At[], options: RedlockOptions = {}): Redlock {
  const nodes = [servers].flat().map(({ path }) => ({ path }));
  const redlock = new Redlock(nodes, { nodeTimeout: 10_000, timeout: 60_000, quarantine: false, ...options });
  onTestFinished(async () => {
    await redlock.close();
  });
  return redlock;
}

let count = 0;

/** A name that no other test has. */
export function aName(): string {
  count += 1;
  return `test:${count}`;
}
