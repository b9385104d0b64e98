/** Servers that lack commands, as managed services do. docs/locks/which-redis.md names the services. */
import { errorOf, type RedisServer, startRedis } from "@x/test-support";
import { ExclusiveQueue, ExclusiveWorker } from "@x/workers";
import { FlowProducer } from "bullmq";
import { describe, expect, it, onTestFinished } from "vitest";
import { flows, openRedlock } from "./rights/flows.ts";

async function startWithout(commands: readonly string[]): Promise<RedisServer> {
  const args = commands.flatMap((command) => ["--rename-command", command, ""]);
  const server = await startRedis({ persistence: true, args });
  onTestFinished(() => server.stop());
  return server;
}

/** Commands that at least one of ElastiCache, MemoryDB, Memorystore and Aiven refuses. Memorystore refuses CLIENT SETINFO. */
const REFUSED_BY_VENDORS = [
  ...["ACL", "BGREWRITEAOF", "BGSAVE", "CLIENT", "CLUSTER", "COMMAND", "CONFIG", "DEBUG", "FAILOVER", "LASTSAVE"],
  ...["MIGRATE", "MODULE", "MONITOR", "PSYNC", "REPLICAOF", "ROLE", "SAVE", "SHUTDOWN", "SLAVEOF", "SYNC"],
];

describe("without the commands that managed services refuse", () => {
  it.each(Object.keys(flows))("%s works", async (name) => {
    const server = await startWithout(REFUSED_BY_VENDORS);
    await flows[name]?.({ server, url: server.url, keyPrefix: "app:" });
  });
});

it.each([
  ["SCRIPT", "REFUSED", "SCRIPT_REFUSED the server has not loaded a script of locks: ERR unknown command ['`]script"],
  ["TIME", "REFUSED", "TIME_REFUSED the server refuses TIME, by which leases end"],
  ["INFO", "UNREACHABLE", "ERR unknown command ['`]info"],
  ["EVALSHA", "NO_LUA", "runs no Lua scripts"],
])("check() names %s if it is missing, and no lock is granted", async (command, code, message) => {
  const { url } = await startWithout([command]);
  const redlock = openRedlock(url, { timeout: 0 });
  const named = expect.stringMatching(new RegExp(message, "i")) as string;
  expect(await redlock.check()).toMatchObject([{ code, severity: "error", message: named }]);
  expect(await errorOf(redlock.acquire("r"))).toMatchObject({ name: "QuorumUnreachableError" });
});

it.each(["locks", "elections", "schedules"])("without EVAL %s work", async (name) => {
  const server = await startWithout(["EVAL"]);
  await flows[name]?.({ server, url: server.url, keyPrefix: "app:" });
});

it("without MULTI jobs are added and run, and only FlowProducer fails", async () => {
  const connection = { url: (await startWithout(["MULTI"])).url, maxRetriesPerRequest: null };
  const queue = new ExclusiveQueue("q", { connection });
  const worker = new ExclusiveWorker("q", () => Promise.resolve(), { connection, key: "k" });
  const producer = new FlowProducer({ connection });
  onTestFinished(async () => {
    await Promise.all([worker.close(), queue.close(), producer.close()]);
  });
  await queue.addBulk([1, 2].map((i) => ({ name: "job", data: { k: "a", i } })));
  await expect.poll(() => queue.getCompletedCount()).toBe(2);
  const flow = { name: "parent", queueName: "q", data: {}, children: [{ name: "child", queueName: "q", data: {} }] };
  await expect(producer.add(flow)).rejects.toThrow("without MULTI");
});
