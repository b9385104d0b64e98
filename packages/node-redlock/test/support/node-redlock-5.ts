/** Clients of node-redlock 5's entry that end with their test, and the votes of a call's attempts. */
import { errorOf, type RedisServer, startRedisNodes } from "@x/test-support";
import { Redis } from "ioredis";
import { expect, type Mock, onTestFinished } from "vitest";
import Redlock, {
  type Client,
  type EngineSettings,
  ExecutionError,
  type ExecutionResult,
  type Settings,
} from "../../src/index.ts";

/** Servers, and clients that end with the test. */
export async function nodes(
  count: number,
): Promise<{ readonly servers: readonly RedisServer[]; readonly clients: readonly Redis[] }> {
  const servers = await startRedisNodes(count);
  const clients = servers.map((server) => clientOf({ path: server.path }));
  onTestFinished(async () => {
    await Promise.all(servers.map((server) => server.stop()));
  });
  return { servers, clients };
}

export function clientOf(
  target: { readonly path: string; readonly keyPrefix?: string } | { readonly host: string; readonly port: number },
): Redis {
  const client = new Redis({ ...target });
  client.on("error", () => undefined);
  onTestFinished(() => client.disconnect());
  return client;
}

export function open(clients: readonly Client[], settings: Partial<Settings> & EngineSettings = {}): Redlock {
  return new Redlock(clients, settings);
}

/** Locks and releases repeatedly until the listener has been called. */
export async function lockUntilCalled(redlock: Redlock, resource: string, listener: Mock): Promise<void> {
  await expect
    .poll(async () => {
      await (await redlock.acquire([resource], 10_000)).release();
      return listener.mock.calls.length;
    })
    .toBeGreaterThan(0);
}

/** Returns the votes of each attempt, with the clients' indexes instead of the clients. */
export async function votesOf({ attempts }: ExecutionResult, clients: readonly Client[]): Promise<object[]> {
  return await Promise.all(
    attempts.map(async (attempt) => {
      const { votesFor, votesAgainst, ...sizes } = await attempt;
      const indexes = (voters: Iterable<Client>): number[] =>
        [...voters].map((voter) => clients.indexOf(voter)).toSorted((a, b) => a - b);
      return { ...sizes, votesFor: indexes(votesFor), votesAgainst: indexes(votesAgainst.keys()) };
    }),
  );
}

export async function votesAgainst({ attempts }: ExecutionError): Promise<Error[]> {
  const errors: Error[] = [];
  for (const attempt of attempts) errors.push(...(await attempt).votesAgainst.values());
  return errors;
}

export async function executionErrorOf(promise: Promise<unknown>): Promise<ExecutionError> {
  const error = await errorOf(promise);
  expect(error).toBeInstanceOf(ExecutionError);
  return error as ExecutionError;
}
