import { type RedisServer, startRedis } from "@x/test-support";
import { ExclusiveWorker } from "@x/workers";
import { Queue } from "bullmq";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { SeededRandom } from "../world/random.ts";
import { type LaneData, LaneRun } from "./lanes.ts";

const SEED = process.env["SIMULATION_SEED"] ?? "ci";
const RUNS = Number(process.env["LANE_RUNS"] ?? 12);
let server: RedisServer;
let redis: Redis;

beforeAll(async () => {
  server = await startRedis();
  redis = new Redis({ path: server.path });
});

afterAll(async () => {
  redis?.disconnect();
  await server?.stop();
});

describe("lanes, step by step", () => {
  it.each(Array.from({ length: RUNS }, (_, run) => `${SEED}/${run}`))(
    "keep order and exclusion, lose nothing and get stuck nowhere: %s",
    async (seed) => {
      const random = new SeededRandom(seed);
      const name = seed.replace("/", "-");
      const connection = { path: server.path, maxRetriesPerRequest: null };
      const queue = new Queue<LaneData>(name, { connection });
      const workers = [1, 2].map(
        () =>
          new ExclusiveWorker<LaneData>(name, () => Promise.resolve(), {
            connection,
            key: "k",
            onFailure: "block",
            autorun: false,
            recheckInterval: 100,
            maxStalledCount: 1_000,
            skipStalledCheck: true,
          }),
      );
      for (const worker of workers) worker.on("error", () => undefined);
      const run = new LaneRun({ random, redis, queue, workers });
      try {
        await run.run(150);
      } finally {
        await Promise.all(workers.map((worker) => worker.close()));
        await queue.close();
      }
      expect(run.problems, run.log.join("\n")).toEqual([]);
      expect(run.completed).toBeGreaterThan(2);
    },
  );
});
