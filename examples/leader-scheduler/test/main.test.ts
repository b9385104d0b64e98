import { spawnChild, startRedis } from "@x/test-support";
import { expect, it } from "vitest";

it("enqueues one job for every second, though its leader is killed twice", async () => {
  await using server = await startRedis();
  await using run = spawnChild(new URL("../src/main.ts", import.meta.url), { env: { REDIS_URL: server.url } });
  expect(await run.exited).toMatchObject({ code: 0 });
  const report = JSON.parse(run.output.trim().split("\n").at(-1) ?? "{}") as Record<string, number>;
  expect(report).toMatchObject({ leaders: 3, missing: 0, duplicates: 0 });
  expect(report["jobs"]).toBeGreaterThan(9);
}, 60_000);
