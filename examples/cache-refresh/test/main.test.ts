import { startRedis } from "@x/test-support";
import { expect, it } from "vitest";
import { run } from "../src/main.ts";

it("asks the slow source once for a cold entry and once for an old one, and serves the old one meanwhile", async () => {
  await using server = await startRedis();
  const { coldLoads, staleLoads, served } = await run(server.url);
  expect([coldLoads, staleLoads]).toEqual([1, 1]);
  expect(served).toHaveLength(60);
  expect(new Set(served)).toEqual(new Set([1, 2]));
  expect(served.filter((version) => version === 1).length).toBeGreaterThan(50);
});
