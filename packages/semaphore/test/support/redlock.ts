/** A real node for one test file, and a `Redlock` for each process that a test plays. */
import { Redlock, type RedlockOptions } from "@x/redlock-core";
import { type RedisServer, startRedis } from "@x/test-support";
import { afterAll, beforeAll, onTestFinished } from "vitest";

/** Starts one server for all tests of the file; each uses names of its own. */
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

/** Waits for an answer for as long as a loaded machine may take. */
export function openRedlock(server: RedisServer, options: RedlockOptions = {}): Redlock {
  const redlock = new Redlock({ path: server.path }, { nodeTimeout: 10_000, timeout: 60_000, ...options });
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
