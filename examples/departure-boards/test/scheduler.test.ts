import { type Child, type RedisServer, spawnChild, startRedis } from "@x/test-support";
import { Queue } from "bullmq";
import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, it } from "vitest";
import { Cursor } from "../src/cursor.ts";
import { queueName, type Settings, toEnvironment } from "../src/settings.ts";

const prefix = "run:";
let server: RedisServer;
let redis: Redis;
let queue: Queue;
let cursor: Cursor;

beforeAll(async () => {
  server = await startRedis();
  redis = new Redis(server.url, { maxRetriesPerRequest: null });
  queue = new Queue(queueName, { connection: redis, prefix: `${prefix}bull` });
  cursor = new Cursor(redis, prefix);
});

afterAll(async () => {
  await queue.close();
  redis.disconnect();
  await server.stop();
});

function scheduler(name: string): Child {
  const settings: Settings = {
    prefix,
    redisUrl: server.url,
    lockRedisUrls: [server.url],
    flights: 700,
    naive: false,
    pauseMs: 0,
  };
  return spawnChild(new URL("../src/scheduler.ts", import.meta.url), { name, env: toEnvironment(settings, name) });
}

it("sends a chunk again that a killed leader sent, without another job of a flight, in the same order", {
  timeout: 60_000,
}, async () => {
  await using first = scheduler("first");
  await expect.poll(async () => (await cursor.state()).next, { timeout: 30_000 }).toBe(700);
  const jobs = await queue.getJobs(["wait"], 0, -1, true);
  expect(jobs.map((job) => job.id)).toEqual(Array.from({ length: 700 }, (_, index) => `flight-${index}`));
  await first.kill();
  // As if it had died between the chunk and the cursor.
  await redis.hset(`${prefix}cursor`, "next", 250);
  await using second = scheduler("second");
  await expect
    .poll(async () => await cursor.state(), { timeout: 30_000 })
    .toMatchObject({ leader: "second", next: 700 });
  expect((await queue.getJobs(["wait"], 0, -1, true)).map((job) => job.id)).toEqual(jobs.map((job) => job.id));
  expect(await second.kill("SIGTERM")).toEqual({ code: 0, signal: null });
});

it("keeps the leadership when everything is sent, and hands it over when asked to end", {
  timeout: 60_000,
}, async () => {
  await using leader = scheduler("leader");
  await expect.poll(async () => (await cursor.state()).leader, { timeout: 30_000 }).toBe("leader");
  await using follower = scheduler("follower");
  expect(await leader.kill("SIGTERM"), leader.output).toEqual({ code: 0, signal: null });
  await expect.poll(async () => (await cursor.state()).leader, { timeout: 30_000 }).toBe("follower");
  expect(await follower.kill("SIGTERM"), follower.output).toEqual({ code: 0, signal: null });
});
